"""The pages about profiles are not stale: their tables are the models, and their examples and defaults are true."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml

from cannery.catalog.catalog import Host, Index, Later, Pin, Profile, Reasoned, TargetDefaults, Warned
from cannery.catalog.component import (
    Archive,
    CxxAbi,
    Edit,
    Import,
    Known,
    Native,
    OnStandIn,
    Part,
    PatchSets,
    Release,
    Revision,
    Source,
    StandInMetadata,
    Submodule,
    System,
    Tarball,
    Wheels,
)
from cannery.catalog.fields import LONGEST_NAME, NPU_CHECKS
from cannery.catalog.image_user import ImageUser
from cannery.catalog.io.read import load_catalog
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, BaseKind, Chip, ComponentKind, Install

if TYPE_CHECKING:
    from cannery.catalog.component import Closed

KINDS = (Wheels, Source, Native, Tarball, System)
ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("docs/reference/fields.md", "docs/authoring/profiles.md", "docs/authoring/components.md")
PAGE = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
# The heading above a model's table.
TABLES: dict[str, type[Closed]] = {
    "Profile": Profile,
    "target": TargetDefaults,
    "components": Pin,
    "constraints, overrides and excludes": Reasoned,
    "warnings": Warned,
    "exclude_newer_packages": Later,
    "user": ImageUser,
    "imports": Import,
    "metadata": StandInMetadata,
    "cxx_abi": CxxAbi,
    "revisions and releases": Revision,
    "patch_sets": PatchSets,
    "edits": Edit,
    "archives": Archive,
    "standin": OnStandIn,
    "submodules": Submodule,
    "Indexes": Index,
    "Hosts": Host,
}


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


FIELDS = [(heading, *row) for heading in (*TABLES, "Component") for row in rows(heading)]


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_has_every_field_in_order(heading: str) -> None:
    assert [row[0].strip("`") for row in rows(heading)] == list(TABLES[heading].model_fields)
    assert all(len(row) == 5 and all(row) for row in rows(heading))


def test_the_table_of_components_has_the_fields_of_every_kind() -> None:
    assert {row[0].strip("`") for row in rows("Component")} == {name for kind in KINDS for name in kind.model_fields}
    assert all(len(row) == 5 and all(row) for row in rows("Component"))


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: f"{row[0]}.{row[1]}")
def test_an_example_and_a_default_are_true(row: tuple[str, ...]) -> None:
    heading, field, _what, default, example, _wrong = row
    name = field.strip("`")
    model = kind_with(name) if heading == "Component" else TABLES[heading]
    value: dict[str, Any] = yaml.safe_load(example.strip("`"))
    assert list(value) == [name]
    made = model.model_validate({**needed(heading, name), **value})
    info = model.model_fields[name]
    if heading != "Component" or name in Part.model_fields:  # what only some kinds need is among "when wrong"
        assert (default == "required") is info.is_required()
    if heading == "Component" and info.is_required():
        assert made.model_dump(mode="json")[name]
    elif not info.is_required():
        told = None if default == "none" else yaml.safe_load(default.strip("`"))
        assert told == model.model_construct().model_dump(mode="json", include={name}, warnings=False)[name]
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
    if kind is Tarball:
        more = {"hosts", "archives", "steps", "files"}
    examples: dict[str, Any] = {}
    for row in rows("Component"):
        if row[0].strip("`") in more:
            examples |= yaml.safe_load(row[3].strip("`"))
    return examples if kind is None else {"kind": str(get_args(kind.model_fields["kind"].annotation)[0]), **examples}


def kind_with(name: str) -> type[Part]:
    """The first kind of component that has the field `name`."""
    return next(kind for kind in KINDS if name in kind.model_fields)


def test_the_closed_words_stand_in_it() -> None:
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)))
    assert {*NPU_CHECKS, *BaseKind, *Chip, *ComponentKind, *Install} <= quoted
    assert f"at most {LONGEST_NAME}\ncharacters" in PAGE


def test_a_release_has_the_fields_of_a_revision_but_its_version() -> None:
    assert [*Revision.model_fields] == [*Known.model_fields, "version", "release"]
    assert [*Release.model_fields] == [*Known.model_fields, "sdist"]
    assert "Of a release\nthe same fields are known, without `version` and `release`, and `sdist: true` where" in PAGE


def test_the_yaml_files_are_valid_and_the_worked_example_works(tmp_path: Path) -> None:
    images = Path(shutil.copytree(ROOT / "images", tmp_path / "images", ignore=shutil.ignore_patterns("locks")))
    given = files()
    assert set(given) == {"components/peft.yaml", "profiles/small.yaml"}
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
