"""The real profiles: every target that a CANN image exists for either renders, or is refused with the reason by name.

And goldens of a few of them, in tests/golden/images: Dockerfile, bake file and source steps, without the digests that
any change of a lock moves. `make goldens` rewrites them; the diff is the review.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.compat.rules import check_recipe
from cannery.compat.subject import errors
from cannery.context import Context
from cannery.errors import FindingsError
from cannery.lock.io.store import read_locks
from cannery.pipeline import lock_store
from cannery.plan import Inputs
from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.render.lint import lint
from cannery.render.render import BAKE_FILE, DOCKERFILE, render
from cannery.vocab import Arch
from tests.golden.bake_keys import unknown_keys
from tests.golden.test_render import TEMPLATES, compare, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.store import LockSet
    from cannery.plan import Plan

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "images"
GOLDENS = Path(__file__).parent / "images"
# What is kept between runs is kept nowhere here.
CONTEXT = Context(ROOT, Path(os.devnull), {}, Arch.AMD64, is_terminal=False)
# Those that have a golden below; another one is welcome and not asked for.
PROFILES = ("mindspeed-rl", "quickstart", "verl-npu", "verl-qwen3.5", "verl-sglang")
# Chips that no table of native builds has a name for, and the profiles that compile for one.
WITHOUT_SOC = {("verl-npu", "910"), ("verl-qwen3.5", "910")}
# Profiles with triton-ascend, and the chips that it is not for.
WITH_TRITON, WITHOUT_TRITON = {"verl-qwen3.5", "verl-sglang"}, {"310p", "910"}
STANDIN_PYTHON = "3.11"
# Real ones differ by release of the templates; goldens show what they make.
DIGESTS = {"tools/common/stage.py": "goldens", "tools/source.py": "goldens"}


@dataclass(frozen=True)
class Cell:
    """One target of a profile, on a real base or the stand-in."""

    profile: str
    base: str
    chip: str
    os: str
    python: str
    arch: str

    def __str__(self) -> str:
        return f"{self.profile} {self.base} {self.chip} {self.os} py{self.python} {self.arch}"


@dataclass(frozen=True)
class Outcome:
    """What becomes of a cell: a plan and its files, or the codes and texts of what refuses it."""

    plan: Plan | None = None
    files: tuple[tuple[str, str], ...] = ()
    codes: frozenset[str] = frozenset()
    texts: str = ""

    @property
    def dockerfile(self) -> str:
        return dict(self.files)[DOCKERFILE]


@cache
def raw(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((IMAGES / name).read_text(encoding="utf-8")))


@cache
def tags(profile: str) -> frozenset[str]:
    """The tags that exist in the profile's CANN line, without the CANN version."""
    cann = raw(f"profiles/{profile}.yaml")["target"]["cann"]
    return frozenset(tag.removeprefix(f"{cann}-") for tag in raw(f"bases/{cann}.yaml")["tags"])


@cache
def cells(profile: str) -> tuple[Cell, ...]:
    """Every combination of the chips, systems and Pythons that occur in the line, with each kind of base.

    Of both arches for the profile's own chip; a chip changes nothing that an arch does.
    """
    words = [tag.split("-") for tag in tags(profile)]
    chips, systems, pythons = (sorted({word[i] for word in words}) for i in range(3))
    bases = ("standin",) if raw(f"profiles/{profile}.yaml").get("base") == "standin" else ("real", "standin")
    own = raw(f"profiles/{profile}.yaml")["target"]["chip"]
    made = product(bases, chips, systems, pythons, Arch)
    return tuple(
        Cell(profile, base, chip, os, py.removeprefix("py"), str(arch))
        for base, chip, os, py, arch in made
        if chip == own or arch is Arch.ARM64
    )


ALL = tuple(cell for profile in PROFILES for cell in cells(profile))


@cache
def catalog() -> Catalog:
    return CONTEXT.catalog()


@cache
def locks(profile: str, python: str, arch: str) -> LockSet:
    """The committed locks; they are the same for every chip, system and base."""
    recipe = select(catalog(), profile, Options(python=python, arch=arch), Arch.AMD64)
    return read_locks(lock_store(CONTEXT), catalog(), recipe)


@cache
def outcome(cell: Cell) -> Outcome:
    """Do with a cell what `build.py render` does on an x86-64 host, with the committed locks."""
    base = cell.base if cell.base == "standin" else None
    options = Options(chip=cell.chip, os=cell.os, python=cell.python, arch=cell.arch, base=base)
    try:
        recipe = select(catalog(), cell.profile, options, Arch.AMD64)
        read = locks(cell.profile, cell.python, cell.arch)
        failed = errors([*check_recipe(recipe, catalog(), dict(read.locks), Arch.AMD64), *read.findings])
        if failed or read.tools is None:
            return Outcome(codes=frozenset(f.code for f in failed), texts="\n".join(map(str, failed)))
        socs = catalog().chips[recipe.target.chip].socs
        plan = make_plan(
            recipe,
            Inputs(read.locks, read.tools, DIGESTS, Arch.AMD64, catalog().standin, catalog().compatibility, socs=socs),
        )
    except FindingsError as error:
        return Outcome(codes=frozenset({"raised"}), texts=str(error))
    return Outcome(plan, tuple(render(plan, TEMPLATES, catalog().compatibility).items()))


def reasons(cell: Cell) -> frozenset[str]:
    """Why a cell must be refused, worked out from the files alone; nothing when it must render."""
    if cell.base == "standin" and cell.python != STANDIN_PYTHON:
        return frozenset({"raised"})
    found = set() if f"{cell.chip}-{cell.os}-py{cell.python}" in tags(cell.profile) else {"base-tag"}
    # On the stand-in nothing is compiled for a chip.
    found |= {"soc"} if cell.base == "real" and (cell.profile, cell.chip) in WITHOUT_SOC else set()
    found |= {"chip"} if cell.profile in WITH_TRITON and cell.chip in WITHOUT_TRITON else set()
    found |= set() if all(lock_head(cell, arch) for arch in Arch) else {"lock"}
    return frozenset(found)


@cache
def lock_head(cell: Cell, arch: str) -> dict[str, Any]:
    """The first line of the committed lock; empty when there is none."""
    path = IMAGES / f"locks/{cell.profile}/py{cell.python}-{arch}.txt"
    if not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")))


by_profile = pytest.mark.parametrize("profile", PROFILES)


def rendered(profile: str) -> Iterator[tuple[Cell, Plan, Outcome]]:
    for cell in cells(profile):
        found = outcome(cell)
        if found.plan is not None:
            yield cell, found.plan, found


def test_the_matrix_has_every_tag_of_every_profile_s_line() -> None:
    assert len(PROFILES) >= 5
    for profile in PROFILES:
        those = {f"{c.chip}-{c.os}-py{c.python}" for c in cells(profile)}
        assert tags(profile) <= those
        assert {c.arch for c in cells(profile)} == {"amd64", "arm64"}


@by_profile
def test_every_target_is_rendered_or_refused_as_it_has_to_be(profile: str, tmp_path: Path) -> None:
    """One test a profile: a matrix is worked out once, and not in each process of a run in parallel."""
    each_renders_or_is_refused_for_its_reasons(profile)
    a_refusal_names_what_is_missing(profile)
    rendered_files_hold_together(profile)
    the_base_and_its_package_manager_are_the_target_s(profile)
    hadolint_has_nothing_to_say(profile, tmp_path)


def each_renders_or_is_refused_for_its_reasons(profile: str) -> None:
    wrong = {
        str(cell): (sorted(found.codes), sorted(reasons(cell)), found.texts)
        for cell in cells(profile)
        if (found := outcome(cell)).codes != reasons(cell)
    }
    assert wrong == {}, "cell: (refused for, expected, texts)"
    # Both systems, and more than one chip: a matrix that is refused as a whole would be no matrix.
    done = [cell for cell, _, _ in rendered(profile)]
    assert len({cell.chip for cell in done}) >= 2
    assert {family(cell) for cell in done} >= {"ubuntu", "openeuler"}


def a_refusal_names_what_is_missing(profile: str) -> None:
    for cell in cells(profile):
        found = outcome(cell)
        if "base-tag" in found.codes:
            wanted = f"{cell.chip}-{cell.os}-py{cell.python} exists"
            assert wanted in found.texts
            assert any(tag in found.texts for tag in tags(profile)), f"{cell}: no tag that exists\n{found.texts}"
        if "lock" in found.codes:
            assert f"images/locks/{profile}/py{cell.python}-{cell.arch}.txt: the lock is missing" in found.texts
        if "soc" in found.codes:
            assert f"chip {cell.chip}" in found.texts
        if "raised" in found.codes and cell.base == "standin" and cell.python != STANDIN_PYTHON:
            assert f"only Python {STANDIN_PYTHON}, not {cell.python}" in found.texts


def rendered_files_hold_together(profile: str) -> None:
    for cell, plan, found in rendered(profile):
        text = found.dockerfile
        assert lint(text) == (), cell
        assert not re.search(r"\{\{|\{%|\bNone\b|\bUndefined\b", text), cell
        check_stages(text, str(cell))
        document = json.loads(dict(found.files)[BAKE_FILE])
        assert unknown_keys(document) == []
        bake = document["target"]["image"]
        assert bake["platforms"] == [f"linux/{cell.arch}"]
        assert bake["tags"] == list(plan.references)


def family(cell: Cell) -> str:
    """The system's name without its version: ubuntu, openeuler, manylinux."""
    return cell.os.rstrip("0123456789._")


def check_stages(text: str, cell: str) -> None:
    """Every stage once, and each that something stands on or copies from made before."""
    made: set[str] = set()
    for line in text.splitlines():
        start = re.fullmatch(r"FROM (?:--platform=\S+ )?(\S+) AS (\S+)", line)
        if start:
            assert start[1] in made or ":" in start[1], f"{cell}: {line}"
            assert start[2] not in made, f"{cell}: {line}"
            made.add(start[2])
        for name in re.findall(r"(?:--|,)from=([^\s,]+)", line):
            assert name in made, f"{cell}: {line}"
    assert "image" in made


def test_a_copy_from_a_stage_that_is_not_made_is_seen() -> None:
    good = "FROM a:1 AS one\nFROM one AS image\nCOPY --link --from=one /out/ /\n"
    check_stages(good, "good")
    for bad in (
        good.replace("from=one", "from=two"),
        good.replace("FROM one", "FROM two"),
        good.replace("image", "one"),
    ):
        with pytest.raises(AssertionError):
            check_stages(bad, "bad")


def the_base_and_its_package_manager_are_the_target_s(profile: str) -> None:
    cann = raw(f"profiles/{profile}.yaml")["target"]["cann"]
    registries = raw("bases/registries.yaml")
    for cell, plan, found in rendered(profile):
        tag = f"{cann}-{cell.chip}-{cell.os}-py{cell.python}"
        first = registries.get("by_os", {}).get(cell.os, registries["repositories"])[0]
        wanted = f"cannery-standin:{tag}-{cell.arch}-" if cell.base == "standin" else f"{first}:{tag}"
        assert plan.base_reference.startswith(wanted), cell
        assert f"FROM {plan.base_reference} AS " in found.dockerfile
        is_apt = cell.base == "standin" or cell.os.startswith("ubuntu")
        assert f"system.sh {'apt' if is_apt else 'dnf'} " in found.dockerfile, cell
        assert f"system.sh {'dnf' if is_apt else 'apt'} " not in found.dockerfile, cell


def hadolint_has_nothing_to_say(profile: str, folder: Path) -> None:
    # Chips and Pythons change words in a Dockerfile, not its instructions, and what an arch changes is looked at in
    # test_render: one of each base and package manager is looked at.
    kinds: dict[tuple[str, ...], str] = {}
    for cell, _, found in rendered(profile):
        is_apt = cell.base == "standin" or family(cell) == "ubuntu"
        kinds.setdefault((cell.base, "apt" if is_apt else "dnf"), found.dockerfile)
    files = []
    for kind, text in kinds.items():
        path = folder / "-".join(kind)
        path.write_text(text, encoding="utf-8")
        files.append(str(path))
    command = [tool("hadolint"), "--config", str(ROOT / ".hadolint.yaml"), "--failure-threshold", "style", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("real", "apt") not in kinds or ("real", "dnf") in kinds
    assert (done.returncode, done.stdout) == (0, "")


# A profile's own target where its lock is complete, one on openEuler, one for A3, one for x86-64.
SHOWN = {
    "mindspeed-rl": Cell("mindspeed-rl", "real", "910b", "ubuntu22.04", "3.10", "arm64"),
    "quickstart": Cell("quickstart", "standin", "910b", "ubuntu22.04", "3.11", "amd64"),
    "verl-npu": Cell("verl-npu", "real", "910b", "ubuntu22.04", "3.11", "arm64"),
    "verl-npu-openeuler": Cell("verl-npu", "real", "910b", "openeuler24.03", "3.11", "arm64"),
    "verl-qwen3.5": Cell("verl-qwen3.5", "real", "910b", "ubuntu22.04", "3.11", "arm64"),
    "verl-qwen3.5-a3": Cell("verl-qwen3.5", "real", "a3", "ubuntu22.04", "3.11", "arm64"),
    "verl-sglang": Cell("verl-sglang", "real", "910b", "ubuntu22.04", "3.11", "arm64"),
}


def compact(found: Outcome) -> dict[str, str]:
    """Return the files that a golden shows, with the digests of plan and stand-in by name."""
    assert found.plan is not None, found.texts
    names = {found.plan.digest: "<plan>"}
    for reference in (found.plan.base_reference, found.plan.build_reference):
        if reference.startswith("cannery-standin:"):
            names[reference.rpartition("-")[2]] = "<standin>"
    shown = {}
    for name, text in found.files:
        if name in {DOCKERFILE, BAKE_FILE} or name.startswith("steps/"):
            shown[name] = re.sub("|".join(names), lambda match: names[match[0]], text)
    return shown


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_rendered_is_the_golden(name: str, request: pytest.FixtureRequest) -> None:
    wanted, folder = compact(outcome(SHOWN[name])), GOLDENS / name
    if request.config.getoption("--rewrite-goldens"):
        shutil.rmtree(folder, ignore_errors=True)
        for file, text in wanted.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    compare(wanted, folder)


def test_every_profile_has_its_golden_and_every_golden_its_case() -> None:
    assert sorted(path.name for path in GOLDENS.iterdir()) == sorted(SHOWN)
    for profile in PROFILES:
        target = raw(f"profiles/{profile}.yaml")["target"]
        mine = SHOWN[profile]
        assert (mine.chip, mine.os, mine.python) == (target["chip"], target["os"], target["python"])
    assert {cell.arch for cell in SHOWN.values()} == {"amd64", "arm64"}
    assert {cell.chip for cell in SHOWN.values()} >= {"910b", "a3"}
    assert any(cell.os.startswith("openeuler") for cell in SHOWN.values())


def test_the_digest_of_the_patches_of_a_source_stays() -> None:
    """It is part of the tag of an image: another way to read the fields of a component must not change it."""
    plan = outcome(SHOWN["verl-npu"]).plan
    assert plan is not None
    found = {step.name: [one.key for one in step.patched_by] for step in plan.sources if step.patched_by}
    assert found == {
        "transformers-src": ["0bccd3652266165a"],
        "verl-npu": ["cf36a8c013a32801"],
        "verl-src": ["c777485346e264c7"],
    }
