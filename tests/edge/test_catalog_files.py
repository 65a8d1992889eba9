"""The real images/, and what is said when one of its files is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.version import Version

from cannery.core.errors import UsageError
from cannery.core.lock_request import lock_request
from cannery.core.recipe import Options, select
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
        (QUICKSTART, "name: tensordict", "name: tensordickt", "or did you mean tensordict"),
        (QUICKSTART, 'cann: "8.5.0"', 'cann: "8.5.9"', "no CANN line '8.5.9'; did you mean 8.5."),
        (QUICKSTART, "chip: 910b", "chip: 910bb", "target.chip: '910bb' is not known"),
        (QUICKSTART, "summary:", "sumary:", "summary: missing; this key has to be given"),
        (QUICKSTART, 'version: "0.9.1"', "version: 0.9", 'unquoted 0.9 is a number to YAML; quote it: "0.9"'),
        (
            "components/torch.yaml",
            "index: pytorch-cpu",
            "index: torch-cpu",
            "no index 'torch-cpu'; did you mean",
        ),
        ("components/torch.yaml", "    source:", "    sauce:", ".sauce: unknown key; did you mean source?"),
        (
            "components/torch.yaml",
            "kind: wheels",
            "kind: wheel",
            "kind: 'wheel' is not known; known: wheels, system; did",
        ),
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


def test_a_component_without_a_file_says_which_to_make(images: Path) -> None:
    edit(images, QUICKSTART, "  - {name: tensordict}", "  - {name: Peft}\n  - {name: torch_npux}")
    first, second = problems(images).splitlines()[1:]
    assert first.endswith(
        "components.7.name: no component 'Peft'; make images/components/peft.yaml (docs/profiles.md), "
        "or take one of jemalloc, numpy, pip, ray, tensordict, torch, torch-npu, transformers, verl"
    )
    assert "images/components/torch-npux.yaml (docs/profiles.md), or did you mean torch-npu" in second


def test_a_system_component_takes_no_version(images: Path) -> None:
    edit(images, QUICKSTART, "{name: jemalloc}", '{name: jemalloc, version: "5.3"}')
    assert "components.0: jemalloc is of kind system: no version, no extras" in problems(images)


@pytest.mark.parametrize("name", ["torch_npu", "My Comp", "Ray2"])
def test_a_component_is_named_in_normal_form(images: Path, name: str) -> None:
    (images / f"components/{name}.yaml").write_text("kind: wheels\nsummary: x\n")
    wanted = name.lower().replace("_", "-").replace(" ", "-")
    text = problems(images)
    assert text.startswith(f"images/components/{name}.yaml: a component's name is lower-case letters")
    assert text.endswith(f"; name the file {wanted}.yaml")


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("My Prof", "my-prof.yaml"),
        ("_mine", "mine.yaml"),
        ("a--b", "a-b.yaml"),
        ("mine-", "mine.yaml"),
        ("x" * 61, f"{'x' * 60}.yaml"),
    ],
)
def test_a_profile_is_named_as_an_image_can_be(images: Path, name: str, offer: str) -> None:
    shutil.copy(images / QUICKSTART, images / f"profiles/{name}.yaml")
    text = problems(images)
    assert text.startswith(f"images/profiles/{name}.yaml: {name!r} cannot be the name of an image: lower-case letters")
    assert text.endswith(f"at most 60 characters; name the file {offer}")


@pytest.mark.parametrize("name", ["mine", "a.b_c-d", "8.5", "x" * 60])
def test_a_good_name_of_a_profile(images: Path, name: str) -> None:
    shutil.copy(images / QUICKSTART, images / f"profiles/{name}.yaml")
    assert name in load_catalog(images).profiles


@pytest.mark.parametrize("folder", ["profiles", "components", "bases"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine.yml", "only files named .yaml are read here: name it mine.yaml, or keep it elsewhere"),
        ("mine.YAML", "name it mine.yaml,"),
        ("mine", "name it mine.yaml,"),
        ("notes.txt", "name it notes.txt.yaml, or keep it elsewhere"),
    ],
)
def test_a_file_that_would_be_passed_over(images: Path, folder: str, name: str, says: str) -> None:
    (images / folder / name).write_text("summary: x\n")
    text = problems(images)
    assert text.startswith(f"images/{folder}/{name}: ")
    assert says in text


def test_a_yml_beside_the_yaml_and_a_folder(images: Path) -> None:
    (images / "profiles/quickstart.yml").touch()
    (images / "profiles/old").mkdir()
    text = problems(images)
    assert "images/profiles/old: a folder is not read here" in text
    assert "there is a quickstart.yaml already, so remove one of them" in text


@pytest.mark.parametrize(
    "name", ["README", "README.md", ".mine.yaml.swp", ".#mine.yaml", "._mine.yaml", "mine.yaml~", "mine.yaml.orig"]
)
def test_what_may_lie_beside_the_files(images: Path, name: str) -> None:
    (images / "profiles" / name).write_text("no profile")
    assert list(load_catalog(images).profiles) == ["quickstart"]


WORDS = [
    (QUICKSTART, "components", "torch", "components: a list of mappings like {name: …} is wanted here, not the text"),
    (QUICKSTART, "components", {"a": 1}, "components: a list of mappings like {name: …} is wanted here, not a mapping"),
    (
        QUICKSTART,
        "components",
        ["torch"],
        "components.0: a mapping like {name: …} is wanted here, not the text 'torch'",
    ),
    (QUICKSTART, "components", None, "components: a list of mappings like {name: …} is wanted here, and nothing is"),
    (QUICKSTART, "components", [], "components: at least 1 entry is wanted here"),
    (QUICKSTART, "constraints", ["a>1"], "constraints.0: a mapping like {requirement: …, reason: …} is wanted here"),
    (QUICKSTART, "constraints", [{"requirement": "a>1", "reason": "x"}], "0.reason: 'x' is too short: at least 8 char"),
    (QUICKSTART, "constraints", [{"requirement": "a>1"}], "constraints.0.reason: missing; this key has to be given"),
    (
        QUICKSTART,
        "constraints",
        [{"requirement": "a=1", "reason": "long enough"}],
        "'a=1' is not a requirement (written",
    ),
    (
        QUICKSTART,
        "excludes",
        [{"requirement": "a>1", "reason": "long enough"}],
        "excludes: 'a>1': a name alone is wanted",
    ),
    (QUICKSTART, "documents", "a", "documents: a list is wanted here, not the text 'a'; in brackets it is one: [a]"),
    (QUICKSTART, "target", "8.5.0", "target: a mapping like {cann: …, chip: …, os: …, python: …} is wanted here, not"),
    (QUICKSTART, "summary", ["a"], "summary: a text is wanted here, not a list"),
    (QUICKSTART, "summary", None, "summary: a text is wanted here, and nothing is given"),
    (QUICKSTART, "exclude_newer", None, "exclude_newer: a text is wanted here, and nothing is given"),
    (QUICKSTART, "base", "stand-in", "base: 'stand-in' is not known; known: cann, standin; did you mean standin?"),
    (QUICKSTART, "base", 3, "base: cann or standin is wanted here, not a number"),
    (QUICKSTART, "env", ["A=b"], "env: a mapping of names to values is wanted here, not a list"),
    (QUICKSTART, "env", {"A-B": "x"}, "env.A-B: 'A-B' is not the name of an environment variable (letters, digits, _)"),
    (QUICKSTART, "env", {1: "x"}, "env.1: unquoted 1 is a number to YAML; quote it"),
    (
        QUICKSTART,
        "may_skip",
        {"stand-in": []},
        "may_skip.stand-in: 'stand-in' is not known; known: real, standin, cust",
    ),
    (QUICKSTART, "may_skip", {"real": ["npu.node"]}, "may_skip.real.0: no check 'npu.node'; did you mean npu.nodes"),
    (QUICKSTART, "may_skip", {"real": ["nodes"]}, "may_skip.real.0: 'nodes' is not a check of the verify script, like"),
    (QUICKSTART, "pip_check_allow", ["("], "pip_check_allow.0: '(' is not a regular expression: "),
    (
        "components/numpy.yaml",
        "imports",
        ["numpy"],
        "imports.0: a mapping like {module: …} is wanted here, not the text",
    ),
    ("components/numpy.yaml", "imports", [{"module": "a-b"}], "imports.0.module: 'a-b' is not a module or attribute"),
    ("components/numpy.yaml", "system", {"apt": ["a"]}, "the file: kind wheels has no system"),
    ("components/jemalloc.yaml", "index", "ascend", "the file: kind system has no index"),
    ("components/jemalloc.yaml", "system", {"yum": ["a"]}, "system.yum: 'yum' is not known; known: apt, dnf"),
    ("components/jemalloc.yaml", "links", {"/a": "b"}, "links./a: a mapping of names to values is wanted here, not"),
    ("components/jemalloc.yaml", "libraries", ["lib.so"], "libraries.0: 'lib.so' is not an absolute path"),
    ("components/torch.yaml", "index", None, "the file: binds and metadata say more about an index: name one as index"),
    ("components/torch.yaml", "metadata", {"2.13.x": {}}, "metadata.2.13.x: '2.13.x' is not a version"),
    ("chips.yaml", "910b", {"cards": "no"}, "910b.cards: a whole number is wanted here, not the text 'no'"),
    ("chips.yaml", "910b", {"cards": 0}, "910b.cards: at least 1 is wanted here"),
    (
        "chips.yaml",
        "910b",
        "x",
        "910b: a mapping like {names: …, cards: …, managers: …, mounts: …} is wanted here, not",
    ),
    ("bases/8.5.0.yaml", "tags", {"t": {"python": "3.11.4", "atb_abi": 2}}, "tags.t.atb_abi: 0 or 1 is wanted here"),
    ("standin/recipe.yaml", "libraries", {"a": {"opened": "so"}}, "libraries.a.opened: true or false is wanted here"),
    ("tools.yaml", "exclude_newer", "soon", "exclude_newer: 'soon' is not a date written like 2026-11-20"),
]


@pytest.mark.parametrize(("name", "key", "value", "says"), WORDS)
def test_what_is_wrong_is_said_in_plain_words(images: Path, name: str, key: str, value: object, says: str) -> None:
    content = yaml.safe_load((images / name).read_text(encoding="utf-8"))
    (images / name).write_text(yaml.safe_dump({**content, key: value}, allow_unicode=True), encoding="utf-8")
    text = problems(images)
    assert f"images/{name}:" in text
    assert says in text
    for leak in (
        "Input should",
        "Field required",
        "valid dictionary",
        "should have at least",
        "[key]",
        "Tuple",
        "  → ",
    ):
        assert leak not in text


def test_one_fault_is_told_once(images: Path) -> None:
    edit(images, QUICKSTART, "components:", "components: [torch]\nx-components:")
    lines = [line for line in problems(images).splitlines() if "components" in line]
    assert [line.split(": ")[1] for line in lines] == ["components.0", "x-components"]


def test_a_whole_file_of_another_shape(images: Path) -> None:
    (images / QUICKSTART).write_text("- a\n")
    wanted = (
        "the file: a mapping like {summary: …, target: …, exclude_newer: …, components: …} is wanted here, not a list"
    )
    assert problems(images) == f"images/{QUICKSTART}:1: {wanted}"


def test_no_profile_at_all_is_a_problem(images: Path) -> None:
    shutil.rmtree(images / "profiles")
    assert "images/profiles: no file found" in problems(images)


def test_a_folder_that_cannot_be_read_is_named(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert "images/profiles: cannot be read: [Errno 13] Permission denied" in problems(images)


def test_a_missing_file_is_named(images: Path) -> None:
    (images / "tools.yaml").unlink()
    assert "images/tools.yaml: cannot be read" in problems(images)
