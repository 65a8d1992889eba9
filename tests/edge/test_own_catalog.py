"""Profiles and components outside the checkout (`--catalog`), and profiles that extend others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.catalog.io.read import load_catalog
from cannery.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A catalog of the user's: it is in the working folder."""
    for name in ("profiles", "components"):
        (tmp_path / "own" / name).mkdir(parents=True)
    return tmp_path / "own"


def pins(small: Small, name: str, *words: str) -> list[tuple[str, str]]:
    done = small("show", name, "--json", *words)
    assert done.code == ExitCode.DONE, done.err
    return [(row["name"], row["pin"]) for row in json.loads(done.out)["components"]]


def refused(small: Small, *words: str) -> tuple[str, str]:
    """File with line, and the whole text, of an error of the catalog."""
    done = small(*words, "--json")
    assert done.code == ExitCode.USAGE
    value = json.loads(done.out)
    return value["where"], f"{value['error']} {value['hint']}"


STACK_PINS = [("pip", ""), ("torch", "2.8.0"), ("torch-npu", "2.8.0"), ("tool", "1.0"), ("lib", "")]


def test_a_profile_outside_locks_and_checks(small: Small, own: Path) -> None:
    small.index.add(make_wheel("extra", "3.0"))
    (own / "components/extra.yaml").write_text("kind: wheels\nsummary: mine\n")
    (own / "profiles/mine.yaml").write_text("extends: stack\nsummary: mine\ncomponents: [{name: extra}]\n")
    before = small.files()
    assert small("lock", "mine", "--catalog", "own").code == ExitCode.DONE
    assert small.files() == before, "nothing is written into the checkout"
    assert "\nextra==3.0" in (own / "locks/mine/py3.11-amd64.txt").read_text()
    assert small("check", "mine", "--catalog", "own").code == ExitCode.DONE
    assert small("plan", "mine", "--catalog", str(own)).code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.USAGE, "without the catalog there is no such profile"


def test_the_environment_names_it_too(small: Small, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "profiles/mine.yaml").write_text("extends: stack\n")
    monkeypatch.setenv("CANNERY_CATALOG", "own")
    assert pins(small, "mine") == STACK_PINS
    monkeypatch.setenv("CANNERY_CATALOG", "elsewhere")
    assert small("list").code == ExitCode.USAGE


def test_a_file_takes_the_place_of_the_built_in_one(small: Small, own: Path) -> None:
    (own / "components/lib.yaml").write_text("kind: wheels\nsummary: my lib\n")
    text = small("show", "stack", "--catalog", "own").out
    assert "my lib" in text
    assert "my lib" not in small("show", "stack").out
    # Its lock is another matter than the checkout's, and goes beside it.
    assert small("lock", "stack", "--arch", "amd64", "--catalog", "own").code == ExitCode.DONE
    assert (own / "locks/stack/py3.11-amd64.txt").is_file()


OWN_ROWS = """\
sources: {mine: {what: tried here, rank: table, date: "2026-07-01"}}
rows:
  - {of: tool==1.0, fits: {torch: "2.9.0"}, source: mine}
"""


def test_an_own_table_is_laid_over_the_built_in_one_by_release(small: Small, own: Path) -> None:
    (own / "compatibility.yaml").write_text(OWN_ROWS)
    done = small("check", "stack", "--catalog", "own")
    assert (done.code, "tool 1.0 is made for torch 2.9.0" in done.out, "tried here" in done.out) == (3, True, True)
    built_in = small("check", "stack", "--catalog", "own", "--pin", "torch==2.10.0")
    assert "torch-npu 2.8.0 is made for torch 2.8.0" in built_in.out
    (own / "compatibility.yaml").write_text(OWN_ROWS.replace("tool==1.0", "torch-npu==2.8.0"))
    done = small("check", "stack", "--catalog", "own")
    assert "torch-npu 2.8.0 is made for torch 2.9.0" in done.out
    assert "is made for torch 2.8.0" not in done.out
    assert small("check", "stack").code == ExitCode.DONE


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [("mine", "s", 1, "a name of its own"), ("source: mine", "source: his", 3, "his"), ("==1.0", "", 3, "tool")],
)
def test_a_wrong_own_table_is_named_by_its_line(
    small: Small, own: Path, old: str, new: str, line: int, word: str
) -> None:
    (own / "compatibility.yaml").write_text(OWN_ROWS.replace(old, new))
    where, text = refused(small, "check", "stack", "--catalog", "own")
    assert (where, word in text) == (f"own/compatibility.yaml:{line}", True)


def test_a_release_that_no_component_knows_is_shown(small: Small, own: Path) -> None:
    commit, known = "a" * 40, "{version: '1.0', source: s}"
    text = f"kind: source\nsummary: s\ninstall: wheel\nhosts: {{github: o/r}}\nrevisions: {{{commit}: {known}}}\n"
    (own / "components/src.yaml").write_text(text)
    for pin, shown in (("release: 9.9.9", "== 9.9.9"), (f"commit: {commit}", f"github:o/r at {commit}")):
        (own / "profiles/mine.yaml").write_text(f"extends: stack\ncomponents: [{{name: src, {pin}}}]\n")
        done = small("show", "mine", "--catalog", "own")
        assert (done.code, done.err) == (ExitCode.DONE, "")
        assert shown in next(line for line in done.out.splitlines() if line.startswith("  src "))


def test_errors_name_the_file_of_the_right_folder(small: Small, own: Path) -> None:
    (own / "profiles/mine.yaml").write_text("summary: mine\nshm_size: lots\n")
    where, _ = refused(small, "show", "mine", "--catalog", "own")
    assert where.startswith(("own/profiles/mine.yaml:", "images/"))
    (own / "profiles/mine.yaml").write_text("extends: stack\ncomponents: [{name: nothere}]\n")
    where, text = refused(small, "show", "mine", "--catalog", "own")
    assert (where, "nothere" in text) == ("own/profiles/mine.yaml:2", True)
    (own / "profiles/mine.yaml").unlink()
    (own / "components/lib.yaml").write_text("kind: wheels\nsummary: mine\nindexx: a\n")
    where, _ = refused(small, "show", "stack", "--catalog", "own")
    assert where == "own/components/lib.yaml:3"


@pytest.mark.parametrize("name", ["locks", "profiles"])
def test_a_catalog_may_have_little(small: Small, own: Path, name: str) -> None:
    (own / "components").rmdir()
    (own / "profiles").rmdir()
    (own / name).mkdir(exist_ok=True)
    assert pins(small, "stack", "--catalog", "own") == STACK_PINS


# extends


def test_own_values_take_the_place_of_inherited_ones(small: Small) -> None:
    small.profile("base").write_text(
        small.profile().read_text()
        + 'env: {A: "1", B: "2"}\n'
        + "constraints: [{requirement: 'dep<9', reason: as made here}, {requirement: 'lib<9', reason: made here too}]\n"
        + "documents: [one]\n"
    )
    small.profile("mine").write_text(
        "extends: base\nsummary: mine\ntarget: {arch: [amd64]}\nenv: {B: null-and-void}\ndocuments: [two]\n"
        "constraints: [{requirement: 'lib<3', reason: another one here}]\n"
    )
    catalog = load_catalog(small.root / "images")
    mine, base = catalog.profiles["mine"], catalog.profiles["base"]
    assert (mine.summary, mine.env, mine.documents) == ("mine", {"A": "1", "B": "null-and-void"}, ("two",))
    assert (list(mine.target.arch), mine.target.cann) == (["amd64"], base.target.cann)
    assert [bound.requirement for bound in mine.constraints] == ["dep<9", "lib<3"]
    assert mine.components == base.components


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ("[{name: extra}]", [*STACK_PINS, ("extra", "")]),
        ("[{name: torch}, {name: extra}]", [*STACK_PINS[:2], ("extra", ""), *STACK_PINS[2:]]),
        ("[{name: Tool, version: '1.5'}]", [*STACK_PINS[:3], ("Tool", "1.5"), STACK_PINS[4]]),
        (
            "[{name: tool, reason: free again}, {name: extra}]",
            [*STACK_PINS[:3], ("tool", ""), STACK_PINS[4], ("extra", "")],
        ),
        ("[{name: pip}]", STACK_PINS),
    ],
)
def test_components_keep_their_place(small: Small, components: str, expected: list[tuple[str, str]]) -> None:
    for name in ("extra", "Tool"):
        (small.root / f"images/components/{name.lower()}.yaml").write_text("kind: wheels\nsummary: mine\n")
    small.profile("mine").write_text(f"extends: stack\ncomponents: {components.replace('Tool', 'tool')}\n")
    assert pins(small, "mine") == [(name.lower(), pin) for name, pin in expected]


def test_without_leaves_out_all_about_a_package(small: Small) -> None:
    text = small.profile().read_text() + "excludes: [{requirement: tool, reason: it is in the way}]\n"
    small.profile("base").write_text(text.replace('  - {name: tool, version: "1.0"}\n', ""))
    small.profile("mine").write_text("extends: base\nwithout: [tool, lib]\ncomponents: [{name: tool}]\n")
    mine = load_catalog(small.root / "images").profiles["mine"]
    assert [pin.name for pin in mine.components] == ["pip", "torch", "torch-npu", "tool"]
    assert mine.excludes == ()


def test_a_chain_and_a_stale_lock(small: Small) -> None:
    small.profile("one").write_text(
        "extends: stack\ncomponents: [{name: tool, version: '1.5'}]\nexclude_newer: '2026-07-20'\n"
    )
    small.profile("two").write_text("extends: one\nwithout: [lib]\n")
    assert pins(small, "two") == [*STACK_PINS[:3], ("tool", "1.5")]
    assert small("lock", "two").code == ExitCode.DONE
    assert small("check", "two").code == ExitCode.DONE
    small.profile().write_text(small.profile().read_text().replace('tool, version: "1.0"', 'tool, version: "1.5"'))
    assert small("check", "two").code == ExitCode.DONE, "two has that pin from one"
    small.profile("one").write_text("extends: stack\nexclude_newer: '2026-07-21'\n")
    assert small("check", "two").code == ExitCode.FINDINGS


@pytest.mark.parametrize(
    ("bound", "component", "code"),
    [
        ("excludes: [{requirement: lib, reason: in the way}]", "{name: lib}", "excluded"),
        ("overrides: [{requirement: 'tool==1.0', reason: in the way}]", "{name: tool, version: '1.5'}", "override"),
        ("constraints: [{requirement: 'tool<1.5', reason: in the way}]", "{name: tool, version: '1.5'}", "constraint"),
    ],
)
def test_what_an_inherited_bound_forbids_is_refused(small: Small, bound: str, component: str, code: str) -> None:
    small.profile("base").write_text(f"extends: stack\nwithout: [lib]\n{bound}\n")
    small.profile("one").write_text(f"extends: base\ncomponents: [{component}]\n")
    small("lock", "one")
    found = small("check", "one", "--json")
    assert found.code == ExitCode.FINDINGS
    assert code in {one["code"] for one in json.loads(found.out)["findings"] if one["severity"] == "error"}


WRONG = {
    "cycle": ({"one": "extends: two\n", "two": "extends: one\n"}, "one:1", ["one.yaml", "two.yaml"]),
    "itself": ({"one": "summary: s\nextends: one\n"}, "one:2", ["one.yaml extends images/profiles/one.yaml"]),
    "unknown": ({"one": "extends: stac\n"}, "one:1", ["'stac'", "stack"]),
    "nothing to leave": ({"one": "extends: stack\nwithout: [extra]\n"}, "one:2", ["stack.yaml", "'extra'"]),
    "twice": ({"one": "extends: stack\ncomponents: [{name: lib, version: '1.0'}, {name: lib, version: '2.0'}]\n"},
              "one:2", ["lib is given twice"]),
    "own fault": ({"one": "extends: stack\ncomponents:\n  - {name: tool, version: yes}\n"}, "one:3", ["quote it"]),
    "words": ({"two": "extends: stack\ncomponents: [odd]\n", "one": "extends: two\ncomponents:\n- lib\n"},
              "one:3", ["a mapping is expected"]),
    "no name": ({"one": "extends: [stack]\n"}, "one:1", ["extends"]),
    "no parent": ({"one": "summary: s\nwithout: [lib]\n"}, "one:2", ["extends"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_extension_names_both_files(small: Small, case: str) -> None:
    texts, where, words = WRONG[case]
    for name, text in texts.items():
        small.profile(name).write_text(text)
    found = small("show", "one", "--json")
    assert found.code == ExitCode.USAGE
    value = json.loads(found.out)
    # A fault may be met in both of them: each is then a problem of its own.
    problems = value.get("problems") or [value]
    name, _, line = where.partition(":")
    mine = next(one for one in problems if one["where"].startswith(f"images/profiles/{name}.yaml:{line}"))
    for word in words:
        assert word in f"{mine['error']} {mine['hint']}"
    assert small("check", "stack").code == ExitCode.DONE, "other profiles can be used"


def test_a_broken_parent_breaks_the_child_alone(small: Small) -> None:
    small.profile("base").write_text(small.profile().read_text().replace("chip: 910b", "chip: tin"))
    small.profile("mine").write_text("extends: base\n")
    assert small("check", "stack").code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.USAGE
