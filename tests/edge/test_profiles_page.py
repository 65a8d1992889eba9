"""The pages about profiles are not stale: their tables are the models, and their examples and defaults are true."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import reference
import yaml

from cannery.catalog.addresses import Host
from cannery.catalog.catalog import Profile
from cannery.catalog.component import (
    Known,
    Native,
    Part,
    Release,
    Revision,
    Source,
)
from cannery.catalog.fields import LONGEST_NAME, NPU_CHECKS
from cannery.catalog.io.read import load_catalog
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, BaseKind, Chip, ComponentKind, Install

if TYPE_CHECKING:
    from cannery.catalog.component import Closed

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("docs/reference/fields.md", "docs/authoring/profiles.md", "docs/authoring/components.md")
PAGE = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
TABLES: dict[str, type[Closed]] = {heading: models[0] for heading, models in reference.MODELS.items()}


def section(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def rows(heading: str) -> list[tuple[str, ...]]:
    """The cells of the table of fields: field, what, default, example, when wrong."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """The page's YAML files by the name in their first line."""
    found = {}
    for text in blocks("yaml"):
        head, _, content = text.partition("\n")
        found[head.removeprefix("# images/")] = content
    return found


FIELDS = [(heading, *row) for heading in TABLES for row in rows(heading)]


def test_the_reference_is_what_parser_models_and_locks_make_of_it() -> None:
    pages = {
        "commands.md": reference.commands_page(),
        "fields.md": reference.fields_page(),
        "locks.md": reference.locks_page(),
    }
    stale = [name for name, text in pages.items() if (ROOT / "docs/reference" / name).read_text("utf-8") != text]
    assert stale == [], "run: make reference"


def test_a_new_field_is_in_the_table_and_its_words_are_wanted() -> None:
    table = "| `url` | its URL | required | `url: x` | error |\n| `gone` | it is gone | none | `gone: 1` | error |\n"
    url, mirrors = reference.field_rows((Host,), table)
    assert url == "| `url` | its URL | required | `url: x` | error |\n"
    assert mirrors == "| `mirrors` | ? | `[]` | ? | ? |\n"
    place = next(row for row in reference.field_rows((Profile,), table) if row.startswith("| `place`"))
    words = "Its place in lists of profiles, lowest first. Replaced profiles come last."
    assert place == f"| `place` | {words} | `50` | ? | ? |\n"


def test_no_words_are_left_open() -> None:
    assert [row[1] for row in FIELDS if len(row) != 6 or reference.OPEN in row] == []


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: f"{row[0]}.{row[1]}")
def test_an_example_is_true(row: tuple[str, ...]) -> None:
    heading, field, _what, default, example, _wrong = row
    name = field.strip("`")
    model = kind_with(name) if heading == "Component" else TABLES[heading]
    value: dict[str, Any] = yaml.safe_load(example.strip("`"))
    assert list(value) == [name]
    made = model.model_validate({**needed(heading, name), **value})
    told = None if default in {"none", "required"} else yaml.safe_load(default.strip("`"))
    assert made.model_dump(mode="json")[name] != told, "an example shows something else than the default"


def needed(heading: str, name: str) -> dict[str, Any]:
    """What a model needs beside the field `name`: the page's own examples of the required ones."""
    value: dict[str, Any] = {}
    for row in rows(heading):
        if row[2] == "required":
            value |= yaml.safe_load(row[3].strip("`"))
    if heading == "Component":
        value |= beside(name)
    if name == "without":
        value |= {"extends": "quickstart"}
    if heading == "edits":  # one thing each, and an import has its condition
        other = {"imports": "when", "when": "imports"}.get(name, "comments_out" if name in value else "")
        value |= {
            field: yaml.safe_load(row[3].strip("`"))[field]
            for row in rows(heading)
            if (field := row[0].strip("`")) == other
        }
    return value


def beside(name: str) -> dict[str, Any]:
    """The kind of component that has the field `name`, and what that kind needs: the page's own examples again."""
    kind = None if name in Part.model_fields else kind_with(name)
    more = {"index"} if name in {"binds", "metadata", "index_except"} else set()
    if kind in {Source, Native}:
        more = {"install", "revisions", "hosts"}
    examples: dict[str, Any] = {}
    for row in rows("Component"):
        if row[0].strip("`") in more:
            examples |= yaml.safe_load(row[3].strip("`"))
    return examples if kind is None else {"kind": str(get_args(kind.model_fields["kind"].annotation)[0]), **examples}


def kind_with(name: str) -> type[Part]:
    """The first kind of component that has the field `name`."""
    return next(kind for kind in reference.KINDS if name in kind.model_fields)


def test_the_closed_words_stand_in_it() -> None:
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)))
    assert {*NPU_CHECKS, *BaseKind, *Chip, *ComponentKind, *Install} <= quoted
    assert f"at most {LONGEST_NAME}\ncharacters" in PAGE


def test_a_release_has_the_fields_of_a_revision_but_its_version() -> None:
    assert [*Revision.model_fields] == [*Known.model_fields, "version", "release"]
    assert [*Release.model_fields] == [*Known.model_fields, "sdist"]
    assert "A release has the same fields,\nwithout `version` and `release`, and `sdist: true` if" in PAGE


def test_the_yaml_files_are_valid_and_the_worked_example_works(tmp_path: Path) -> None:
    images = Path(shutil.copytree(ROOT / "images", tmp_path / "images", ignore=shutil.ignore_patterns("locks")))
    given = files()
    assert set(given) == {"components/peft.yaml", "profiles/rl-own-apex.yaml", "profiles/small.yaml"}
    for name, text in given.items():
        (images / name).write_text(text, encoding="utf-8")
    # What the page says to do: copy quickstart, and add the line that the diff marks.
    (diff,) = blocks("diff")
    assert [line[0] for line in diff.splitlines()] == [" ", "+", " "]
    before, new, after = (line[1:] for line in diff.splitlines())
    quickstart = (images / "profiles/quickstart.yaml").read_text(encoding="utf-8")
    assert f"{before}\n{after}\n" in quickstart, "the lines around the new one are not quickstart's any more"
    mine = quickstart.replace(f"{before}\n", f"{before}\n{new}\n")
    (images / "profiles/mine.yaml").write_text(mine, encoding="utf-8")
    catalog = load_catalog(images)
    asked = {
        name: set(lock_request(select(catalog, name, Options(), Arch.AMD64)).requirements)
        for name in ("quickstart", "mine", "small")
    }
    assert asked["mine"] - asked["quickstart"] == {"peft"}
    assert {"torch==2.9.0+cpu", "torch-npu==2.9.0", "pip"} <= asked["small"]


def test_links_within_the_page_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^a-z0-9_ -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^##+ (.*)$", PAGE, re.MULTILINE)
    }
    links = set(re.findall(r"\]\(#([^)]*)\)", PAGE))
    assert links
    assert links <= headings
