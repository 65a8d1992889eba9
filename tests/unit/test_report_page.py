"""The page about an image: what is in it, that it needs no other file, and that no text of others is markup in it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from factories import catalog, inputs, plan, profile, recipe, source_recipe

from cannery.build.io.buildx import keep_spans, read_spans
from cannery.build.progress import BuildState, apply
from cannery.build.stages import Span
from cannery.build.stages import spans as build_spans
from cannery.compat.subject import error, note, warning
from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options
from cannery.render.render import stage_name
from cannery.report.bill import make_bill
from cannery.report.difference import Contents, Table, difference, prose, table_lines
from cannery.report.io.page import last_proof, page_html
from cannery.report.page import LEFT, NOT_VERIFIED, WIDTH, Known, Page, make_page, page_markdown

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.plan import Plan

NASTY = "<script>alert(1)</script>\"'&|`*_"
PROOF: dict[str, Any] = {
    "result": "passed",
    "counts": {"passed": 2, "failed": 0, "skipped": 1},
    "checks": [{"id": "static.env", "status": "passed", "message": "all"}],
}
FINDINGS = (note("n", "a note"), error("e", "an error", "why", "fix"), warning("w", "a warning"))


def page(made: Plan | None = None, **changes: object) -> Page:
    made = made or plan()
    known = Known(changes.pop("proof", None), changes.pop("spans", ()))  # type: ignore[arg-type]
    given: dict[str, Any] = {"findings": (), "known": known, "changes": None, **changes}
    return make_page(made, make_bill(made, {"ray": "Apache-2.0"}, catalog().hosts), **given)


def table(found: Page, title: str) -> dict[str, tuple[str, ...]]:
    (one,) = (one for one in found.tables if one.title == title)
    return {row[0]: row for row in one.rows}


class Tags(HTMLParser):
    """Holds that tags are closed in their order; collects attributes and texts."""

    VOID = frozenset({"meta", "input", "rect", "link", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_components_have_what_is_known_of_them() -> None:
    found = table(page(), "Components")
    assert found["torch"][1:5] == ("2.9.0+cpu", "", "", "torch-cpu")
    assert found["torch"][6] == "what torch_npu extends"
    assert found["ray"][1:5] == ("2.50.0", "", "Apache-2.0", "default")
    assert found["jemalloc"][1] == "of the base's OS"


def test_sources_have_their_commit() -> None:
    made = source_recipe()
    found = page(make_plan(made, inputs(made)))
    assert table(found, "Components")["engine"][1:3] == ("0.11.0", "a" * 12)


def test_every_package_and_layer_is_listed() -> None:
    made = plan()
    found = page(made)
    assert set(table(found, "Packages")) == {one.name for one in made.lock.packages}
    assert table(found, "Packages")["sympy"][6] == "torch"
    assert table(found, "Packages")["ray"][6] == "the profile"
    assert [row[0] for one in found.tables if one.title == "Layers" for row in one.rows] == [
        layer.name for layer in made.layers
    ]
    drawn = {tile.name: tile.size for tile in found.tiles if tile.name}
    assert drawn == {one.name: one.size for one in made.lock.packages if one.size}


def test_findings_come_with_errors_first() -> None:
    found = page(findings=FINDINGS)
    assert list(table(found, "Findings")) == ["error e", "warning w", "note n"]
    assert dict(found.facts)["findings"] == "1 note, 1 error, 1 warning"
    assert dict(page().facts)["findings"] == "none"


def test_bounds_have_their_reasons() -> None:
    bounds = [{"requirement": "ray<3", "reason": "made-up reason"}]
    bent = profile(overrides=bounds, excludes=[{"requirement": "vim", "reason": "made-up reason"}])
    found = recipe(found=catalog(profiles={"stack": bent}))
    rows = next(one.rows for one in page(make_plan(found, inputs(found))).tables if one.title == "Bounds and overrides")
    assert rows == (("ray<3", "override", "made-up reason"), ("vim", "exclude", "made-up reason"))


def test_how_it_was_proved() -> None:
    assert dict(page().facts)["verify"] == NOT_VERIFIED
    found = page(plan(Options(base="standin")), proof=PROOF)
    assert dict(found.facts)["verify"] == "passed on this host: 2 passed, 1 skipped"
    assert "nothing is computed on an NPU" in dict(found.facts)["base"]
    assert table(found, "Verify")["static.env"] == ("static.env", "passed", "all")


def test_the_page_is_whole_and_needs_no_other_file() -> None:
    old = Contents("old", {"ray": "9.0"}, {})
    text = page_html(page(findings=FINDINGS, proof=PROOF, changes=difference(old, old)), "1.0")
    tags = Tags(text)
    assert not any({"src", "href", "xlink:href", "srcset"} & set(attributes) for _, attributes in tags.found)
    assert "url(" not in text
    assert "@import" not in text
    assert "No difference." in text
    assert "prefers-color-scheme: dark" in text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags.found


def test_no_text_of_others_is_markup() -> None:
    nasty = (error(NASTY, NASTY, NASTY, NASTY), error("", "", "", ""))
    sides = Contents(NASTY, {NASTY: NASTY}, {}), Contents("b", {}, {NASTY: NASTY}, env={})
    made = plan()
    packages = tuple(replace(one, index=NASTY, via=(NASTY,)) for one in made.lock.packages)
    made = replace(made, lock=replace(made.lock, packages=packages), forced=(NASTY,))
    found = page(made, findings=nasty, changes=difference(*sides))
    tags = Tags(page_html(found, NASTY))
    assert sum(tag == "script" for tag, _ in tags.found) == 1
    assert NASTY in "".join(tags.texts)
    markdown = page_markdown(found)
    assert "<script>" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows if "\\<script" in line} <= {3, 4, 5, 8}


def test_markdown_has_what_is_open_alone() -> None:
    text = page_markdown(page(findings=FINDINGS))
    assert "### Components" in text
    assert "### Packages" not in text


def test_a_folded_table_in_markdown() -> None:
    lines = list(table_lines(Table("t", ("a", "b"), (("1", "2"),), open=False)))
    assert lines == [
        "",
        "<details><summary>t: 1</summary>",
        "",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "",
        "</details>",
    ]
    assert prose("a\n| b") == "a \\| b"


# The result of verify that is shown.


def stored(cache: Path, name: str, made: Plan, age: int, **changes: object) -> None:
    path = cache / "verified" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"profile": made.recipe.name, "plan": made.digest, **PROOF, **changes}))
    os.utime(path, (1e9 - age, 1e9 - age))


def test_the_newest_result_of_this_plan(tmp_path: Path) -> None:
    made = plan()
    assert last_proof(tmp_path, made) is None
    stored(tmp_path, "a.json", made, 1, result="failed")
    stored(tmp_path, "b.json", made, 0, plan="other")
    stored(tmp_path, "c.json", made, 5)
    found = last_proof(tmp_path, made)
    assert found is not None
    assert found["result"] == "failed"


def test_a_result_of_one_level_does_not_stand_for_the_image(tmp_path: Path) -> None:
    made = plan()
    counts = {"passed": 1, "failed": 0, "skipped": 0}
    stored(tmp_path, "a.json", made, 0, counts=counts, asked={"levels": ["train"], "manifest_sha256": ""})
    found = last_proof(tmp_path, made)
    assert dict(page(proof=found).facts)["verify"] == "passed on this host (only level train): 1 passed"
    stored(tmp_path, "b.json", made, 9, asked={"levels": [], "manifest_sha256": ""})
    found = last_proof(tmp_path, made)
    assert dict(page(proof=found).facts)["verify"] == "passed on this host: 2 passed, 1 skipped"


def test_a_result_of_the_other_architecture_is_not_of_this_image(tmp_path: Path) -> None:
    made = plan()
    where = {"id": "static.base", "status": "passed", "message": "toolkit (/usr/local/Ascend/aarch64-linux/x.info)"}
    stored(tmp_path, "a.json", made, 0, checks=[where])
    assert last_proof(tmp_path, made) is None
    assert last_proof(tmp_path, plan(Options(arch="arm64"))) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"profile": 1}', "\x00", '{"profile": "p", "plan": "q"}'])
def test_a_result_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    made = plan()
    stored(tmp_path, "a.json", made, 9)
    (tmp_path / "verified/b.json").write_text(text)
    assert last_proof(tmp_path, made) is not None


# The last build.


def test_the_last_build_is_drawn_in_the_order_of_its_beginnings() -> None:
    made = plan()
    torch = next(layer for layer in made.layers if layer.name == "torch")
    spans = (
        Span(stage_name(torch), 110.0, 30.0),
        Span("wheels and sources", 100.0, 10.0),
        Span("byte code", 139.0, 0.1),
        Span("export", 138.0, 2.0),
    )
    found = page(made, spans=spans)
    assert [(bar.label, bar.seconds) for bar in found.bars] == [
        ("wheels and sources", 10.0),
        ("torch", 30.0),
        ("image written to the engine", 2.0),
    ]
    first, second, last = found.bars
    assert (first.x, first.width * 3) == (LEFT, pytest.approx(second.width))
    assert last.x + last.width == pytest.approx(LEFT + WIDTH)
    assert dict(found.facts)["last build"] == f"40.0 s: 1 of {len(made.layers)} layers made, the others reused"
    text = page_html(found, "0.2.0")
    assert "image written to the engine: 2.0 s" in Tags(text).texts
    assert "The last build" not in page_html(page(made), "0.2.0")
    assert "last build" not in page_markdown(page(made))


def test_a_trial_is_one_layer() -> None:
    made = plan(Options(pins=("ray==2.47.1",)))
    assert dict(page(made, spans=(Span("trial", 1.0, 0.0),)).facts)["last build"].startswith("0.0 s: one layer on")


def test_what_was_made_is_kept_for_its_image_alone(tmp_path: Path) -> None:
    spans = (Span("group-torch", 1.5, 2.5),)
    keep_spans(tmp_path, "a:1", spans)
    assert read_spans(tmp_path, "a:1") == spans
    keep_spans(tmp_path, "a:1", ())
    assert read_spans(tmp_path, "a:1") == spans
    assert read_spans(tmp_path, "a:2") == ()
    for text in ("[]", "{", '{"image": "a:1", "made": [{"stage": 1}]}'):
        (tmp_path / "log/timeline.json").write_text(text)
        assert read_spans(tmp_path, "a:1") == ()
    keep_spans(tmp_path / "log/timeline.json", "a:1", spans)


def test_what_a_build_made_and_not_what_it_reused() -> None:
    def vertex(name: str, begun: int, ended: int, **more: object) -> dict[str, object]:
        at = "2026-11-29T12:00:{:02}+00:00"
        return {"digest": name, "name": name, "started": at.format(begun), "completed": at.format(ended), **more}

    state = BuildState()
    parts = [vertex("[group-ray 2/2] RUN x", 5, 9), vertex("[group-torch 2/2] RUN y", 5, 5, cached=True)]
    state = apply(state, {"vertexes": parts}, str)
    (made,) = build_spans(state)
    assert (made.stage, made.seconds) == ("group-ray", 4.0)
