"""The real images/, and what is said when one of its files is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from cannery.core.errors import UsageError
from cannery.core.recipe import Options, lock_request, select
from cannery.core.words import Arch, Chip
from cannery.edge.catalog import load_catalog

if TYPE_CHECKING:
    from cannery.core.catalog import Catalog

ROOT = Path(__file__).resolve().parent.parent.parent
QUICKSTART = "profiles/quickstart.yaml"


@pytest.fixture(scope="module")
def real() -> Catalog:
    return load_catalog(ROOT / "images")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "images", tmp_path / "images", ignore=shutil.ignore_patterns("locks")))


def edit(images: Path, name: str, old: str, new: str) -> int:
    """Replace `old` once, and return the line of the first change."""
    text = (images / name).read_text(encoding="utf-8")
    assert text.count(old) >= 1, f"{old!r} is not in {name}: the test needs another word"
    (images / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1 + (len(new) - len(new.lstrip("\n")))


def problems(images: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_catalog(images)
    return str(caught.value)


def test_every_profile_has_a_base_and_a_request(real: Catalog) -> None:
    assert "quickstart" in real.profiles
    for name, profile in real.profiles.items():
        for arch in profile.target.arch:
            recipe = select(real, name, Options(arch=str(arch)), Arch.AMD64)
            assert lock_request(recipe).requirements


def test_every_chip_can_be_reached_and_every_base_tag_names_its_target(real: Catalog) -> None:
    assert set(real.chips) == {chip.value for chip in Chip}
    for cann, line in real.bases.items():
        for tag, facts in line.tags.items():
            assert tag.startswith(f"{cann}-")
            assert tag.endswith(f"-py{Version(facts.python).major}.{Version(facts.python).minor}")
            assert any(f"-{os}-" in tag for os in line.env), f"{tag}: no ENV for its OS"


def test_no_cann_8_3_base_has_python_3_10(real: Catalog) -> None:
    tags = [tag for cann in ("8.3.rc1", "8.3.rc2") for tag in real.bases[cann].tags]
    assert tags
    assert not [tag for tag in tags if tag.endswith("py3.10")]


def test_every_pair_of_the_table_extends_its_own_release(real: Catalog) -> None:
    for row in real.compatibility.torch_pairs:
        assert Version(row.torch_npu).base_version == Version(row.torch).base_version
        assert row.source
        assert row.date


def test_an_unquoted_version_says_how_to_quote_what_was_written(images: Path) -> None:
    line = edit(images, QUICKSTART, 'python: "3.11"', "python: 3.10")
    text = problems(images)
    assert f"images/{QUICKSTART}:{line}: target.python:" in text
    assert 'quote it: "3.10"' in text


def test_an_unquoted_date_says_how_to_quote_it(images: Path) -> None:
    line = edit(images, QUICKSTART, 'exclude_newer: "2026-11-20"', "exclude_newer: 2026-11-20")
    assert f"images/{QUICKSTART}:{line}: exclude_newer: unquoted 2026-11-20 is a date" in problems(images)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (QUICKSTART, "shm_size: 16g", "shm_sise: 16g", "shm_sise: unknown key; did you mean shm_size"),
        (QUICKSTART, "{name: verl,", "{nmae: verl,", "components.8.nmae: unknown key; did you mean name"),
        (QUICKSTART, "name: tensordict", "name: tensordickt", "no component 'tensordickt'; did you mean tensordict"),
        (QUICKSTART, 'cann: "8.5.0"', 'cann: "8.5.9"', "no CANN line '8.5.9'; did you mean 8.5."),
        (QUICKSTART, "chip: 910b", "chip: 910bb", "target.chip: '910bb' is not known"),
        (QUICKSTART, "summary:", "sumary:", "summary: Field required"),
        (QUICKSTART, 'version: "0.9.1"', "version: 0.9", 'unquoted 0.9 is a number to YAML; quote it: "0.9"'),
        (
            "components/torch.yaml",
            "index: pytorch-cpu",
            "index: torch-cpu",
            "no index 'torch-cpu'; did you mean",
        ),
        ("components/torch.yaml", "    source:", "    sauce:", ".sauce: unknown key; did you mean source?"),
        ("components/torch.yaml", "kind: wheels", "kind: wheel", "kind: Input should be 'wheels' or 'system'"),
        ("chips.yaml", '"910b":', "910bx:", "chip 910b is missing"),
        ("chips.yaml", "cards: 8", "cards: none", "910b.cards:"),
        ("bases/8.5.0.yaml", "atb_abi: 1}", "abt_abi: 1}", "unknown key; did you mean atb_abi"),
        ("bases/8.5.0.yaml", "cann: 8.5.0", "cann: 8.5.7", "cann is '8.5.7', the file name says '8.5.0'"),
        ("compatibility.yaml", 'torch: "2.12.0"', 'torch: "2.12.x"', "torch_pairs.0.torch: '2.12.x' is not a version"),
        ("indexes.yaml", "urls:", "url:", "pytorch-cpu.url: unknown key; did you mean urls?"),
        ("tools.yaml", "requirements: [", 'requirements: ["a=1", ', "is not a requirement"),
        ("standin/recipe.yaml", "schema: 1", "shema: 1", "shema: unknown key; did you mean schema?"),
    ],
)
def test_a_slip_is_named_with_file_and_nearest_word(images: Path, name: str, old: str, new: str, says: str) -> None:
    edit(images, name, old, new)
    text = problems(images)
    assert f"images/{name}" in text
    assert says in text


def test_all_problems_come_at_once_with_their_lines(images: Path) -> None:
    one = edit(images, QUICKSTART, "shm_size: 16g", "shm_sise: 16g")
    two = edit(images, QUICKSTART, 'python: "3.11"', "python: 3.10")
    edit(images, "tools.yaml", "requirements:", "requirement:")
    (images / "components/verl.yaml").write_text("kind: wheels\nkind: system\n")
    (images / "components/ray.yaml").write_text("kind: [wheels\n")
    lines = problems(images).splitlines()
    assert lines[0] == "6 problems in images/"
    text = "\n".join(lines)
    for where in (f"{QUICKSTART}:{one}:", f"{QUICKSTART}:{two}:", "components/verl.yaml:2:", "components/ray.yaml:2:"):
        assert f"images/{where}" in text
    assert text.count("images/tools.yaml:") == 2


@pytest.mark.parametrize("text", ["- a\n", "just words\n", "3\n"])
@pytest.mark.parametrize("name", [QUICKSTART, "chips.yaml", "indexes.yaml"])
def test_a_file_that_is_no_table(images: Path, name: str, text: str) -> None:
    (images / name).write_text(text)
    assert f"images/{name}:1:" in problems(images)


def test_a_component_is_named_in_normal_form(images: Path) -> None:
    (images / "components/torch_npu.yaml").write_text("kind: wheels\nsummary: x\n")
    assert "name the file torch-npu.yaml" in problems(images)


def test_no_profile_at_all_is_a_problem(images: Path) -> None:
    shutil.rmtree(images / "profiles")
    assert "images/profiles: no file found" in problems(images)


def test_a_missing_file_is_named(images: Path) -> None:
    (images / "tools.yaml").unlink()
    assert "images/tools.yaml: cannot be read" in problems(images)
