"""The real images/, and what is said when one of its files is wrong."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from checkouts import FROZEN
from packaging.utils import canonicalize_name
from packaging.version import Version
from table_rows import contradictions

from cannery import cli
from cannery.catalog.compatibility import Rank
from cannery.catalog.errors import CatalogError, as_line
from cannery.catalog.io.read import load_catalog
from cannery.catalog.target import parse_cann, parse_chip
from cannery.errors import ExitCode
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, Chip, Severity

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog

ROOT = Path(__file__).resolve().parent.parent.parent
QUICKSTART = "profiles/quickstart.yaml"
ONES = "1" * 40


@pytest.fixture(scope="module")
def real() -> Catalog:
    return load_catalog(ROOT / "images")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FROZEN, tmp_path / "images"))


def edit(images: Path, name: str, old: str, new: str) -> int:
    """Replace `old` once, and return the line of the first change."""
    text = (images / name).read_text(encoding="utf-8")
    assert text.count(old) >= 1, f"{old!r} is not in {name}: the test needs another word"
    (images / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1 + (len(new) - len(new.lstrip("\n")))


def problems(images: Path) -> str:
    """Every problem, a line each; one that not every profile meets is told by the catalog, the others are an error."""
    error = None
    try:
        parts = load_catalog(images).problems
    except CatalogError as caught:
        error, parts = caught, caught.parts
    if error is not None:
        assert error.code is ExitCode.USAGE
        assert error.where == (parts[0].where if len(parts) == 1 else "images/")
        assert error.hint
        assert len(parts) == 1 or error.what.splitlines() == [f"{len(parts)} problems", *map(as_line, parts)]
    assert parts
    assert all(part.where.startswith("images/") and part.what for part in parts)
    return "\n".join(map(as_line, parts))


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


def test_python_3_10_has_a_cann_8_3_base_on_manylinux_alone(real: Catalog) -> None:
    tags = [tag for cann in ("8.3.rc1", "8.3.rc2") for tag in real.bases[cann].tags]
    assert [tag for tag in tags if tag.endswith("py3.10")] == [
        f"8.3.rc1-{chip}-manylinux_2_28-py3.10" for chip in ("310p", "910b")
    ]


def test_every_torch_npu_extends_the_torch_whose_number_it_carries_on_one_cann(real: Catalog) -> None:
    rows = [row for row in real.compatibility.rows if row.name == "torch-npu"]
    assert len(rows) > 40
    assert [str(row) for row in rows if Version(row.version).base_version != row.fits["torch"]] == []
    assert all(parse_cann(row.fits["cann"]) == row.fits["cann"] for row in rows)


def test_the_table_says_no_row_twice_and_has_no_idle_source(real: Catalog) -> None:
    table = real.compatibility
    rows = [(row.name, row.version, tuple(sorted(row.fits.items())), row.source) for row in table.rows]
    assert [row for row in rows if rows.count(row) > 1] == []
    used = {row.source for row in table.rows} | {item.source for item in table.compatible}
    assert used == {*table.sources}


def test_names_in_the_table_are_normal_and_ranges_only_where_they_are_read_as_such(real: Catalog) -> None:
    for row in real.compatibility.rows:
        assert all(canonicalize_name(key) == key for key in row.fits), row
        exact = {"cann", "driver"} | ({"torch"} if row.name in {"torch-npu", "torchvision", "torchaudio"} else set())
        assert all(row.fits[key][0].isdigit() for key in exact & {*row.fits}), row


def fitting(real: Catalog, of: str, rank: Rank) -> list[dict[str, str]]:
    table = real.compatibility
    return [row.fits for row in table.rows if row.of == of and table.sources[row.source].rank is rank]


def test_rows_that_stacks_stand_on(real: Catalog) -> None:
    assert fitting(real, "vllm-ascend==0.13.0", Rank.METADATA) == [
        {"torch": "2.8.0", "torch-npu": "2.8.0.post2", "triton-ascend": "3.2.0"}
    ]
    (policy,) = fitting(real, "vllm-ascend==0.13.0", Rank.TABLE)
    assert (policy["vllm"], policy["cann"], policy["python"]) == ("0.13.0", "8.5.0", ">=3.10,<3.12")
    (policy,) = fitting(real, "vllm-ascend==0.14.0rc1", Rank.TABLE)
    assert policy["vllm"] == "0.14.1"
    assert fitting(real, "vllm==0.11.0", Rank.BUILD) == [{"torch": "2.8.0", "python": ">=3.9,<3.14"}]
    assert fitting(real, "torchvision==0.22.1", Rank.METADATA) == [{"torch": "2.7.1"}]
    assert fitting(real, "torch==2.6.0", Rank.TABLE) == [{"python": ">=3.9,<3.12"}]
    (sdist,) = fitting(real, "vllm-ascend==0.23.0.post1", Rank.METADATA)
    assert sdist == {"torch": "2.10.0", "torch-npu": "2.10.0.post4", "triton-ascend": "3.2.2"}
    (policy,) = fitting(real, "vllm-ascend==0.23.0.post1", Rank.TABLE)
    assert (policy["vllm"], policy["cann"], policy["python"]) == ("0.23.0", "9.1.0", ">=3.10,<3.13")
    (policy,) = fitting(real, "vllm-ascend==0.30.0rc2", Rank.TABLE)
    assert (policy["vllm"], policy["cann"]) == ("0.30.0", "9.2.0")
    for release, cann in (("2.10.0.post4", "9.1.0"), ("2.10.0.post6", "9.1.0"), ("2.13.0", "9.2.0")):
        assert [row["cann"] for row in fitting(real, f"torch-npu=={release}", Rank.TABLE)] == [cann]
    (pins,) = fitting(real, "triton-ascend==3.2.1", Rank.METADATA)
    assert (pins["numpy"], pins["attrs"], pins["scipy"]) == ("1.26.4", "24.2.0", "1.13.1")
    assert fitting(real, "vllm==0.33.0", Rank.BUILD) == [{"torch": "2.14.0"}]
    (guide,) = fitting(real, "mindspeed-rl==2.2.0", Rank.TABLE)
    assert (guide["torch-npu"], guide["cann"], guide["driver"], guide["python"]) == (
        "2.5.1",
        "8.3.rc1",
        "25.3.0",
        "3.10",
    )


@pytest.mark.parametrize(
    ("of", "makers", "user"),
    [
        ("torch-npu==2.7.1.post2", ["8.5.0"], "8.3.rc1"),
        ("torch-npu==2.5.1", ["8.1.rc1"], "8.3.rc1"),
        ("torch-npu==2.6.0", ["8.2.rc1"], "8.3.rc1"),
        ("torch-npu==2.7.1.post1", [], "8.3.rc2"),
    ],
)
def test_a_set_in_use_on_another_cann_stands_beside_the_makers_row(
    real: Catalog, of: str, makers: list[str], user: str
) -> None:
    assert [fits["cann"] for fits in fitting(real, of, Rank.TABLE)] == makers
    assert user in [fits["cann"] for fits in fitting(real, of, Rank.DOCUMENT)]


def test_what_builds_call_a_chip_is_of_that_family(real: Catalog) -> None:
    assert {chip: access.socs[0] for chip, access in real.chips.items() if access.socs} == {
        "910b": "ascend910b1",
        "a3": "ascend910_9391",
        "310p": "ascend310p1",
        "950": "ascend950dt_9582",
    }
    for chip, access in real.chips.items():
        for soc in access.socs:
            if soc != "ascend910_9579":  # what the 950 was called before it had a name
                assert parse_chip(soc.partition("vir")[0]) == chip


def test_the_table_refuses_variables_that_contradict_the_set(real: Catalog) -> None:
    rules = {(rule.variable, rule.beside): rule for rule in real.compatibility.env}
    alloc = rules["PYTORCH_NPU_ALLOC_CONF", "vllm-ascend"]
    assert re.search(alloc.value or "", "page_size:1g,expandable_segments:True")
    assert not re.search(alloc.value or "", "expandable_segments:False")
    assert alloc.severity is Severity.ERROR
    assert rules["VLLM_VERSION", "vllm"].value is None
    nz = rules["VLLM_ASCEND_ENABLE_NZ", "verl"]
    assert [value for value in "012" if re.search(nz.value or "", value)] == ["1", "2"]


def test_versions_and_dates_need_no_quotes(images: Path) -> None:
    edit(images, QUICKSTART, 'python: "3.11"', "python: 3.10")
    edit(images, QUICKSTART, 'exclude_newer: "2026-11-20"', "exclude_newer: 2026-11-20")
    found = load_catalog(images).profiles["quickstart"]
    assert (found.target.python, found.exclude_newer) == ("3.10", "2026-11-20")


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (QUICKSTART, "shm_size: 16g", "shm_sise: 16g", "shm_sise: unknown key; did you mean shm_size"),
        (QUICKSTART, "{name: verl,", "{nmae: verl,", "components.12.nmae: unknown key; did you mean name"),
        (QUICKSTART, "- {name: numpy}", "- numpy", "a mapping is expected here; write `- {name: numpy}`"),
        # A key of another place is not offered again.
        (
            QUICKSTART,
            "chip: 910b,",
            "chip: 910b, shm_size: 3g,",
            "target.shm_size: unknown key; known: arch, cann, chip",
        ),
        ("components/torch.yaml", "kind: wheels\n", "", "kind: missing"),
        (QUICKSTART, "name: tensordict", "name: tensordickt", "or did you mean tensordict"),
        (QUICKSTART, 'cann: "8.5.0"', 'cann: "8.5.9"', "no CANN line '8.5.9'; did you mean 8.5."),
        (QUICKSTART, "chip: 910b", "chip: 910bb", "target.chip: '910bb' is not known"),
        (QUICKSTART, "summary:", "sumary:", "summary: missing; this key has to be given"),
        (
            "components/torch.yaml",
            "index: pytorch-cpu",
            "index: torch-cpu",
            "no index 'torch-cpu'; did you mean",
        ),
        (
            "components/mindspeed-rl.yaml",
            "megatron: megatron-lm/",
            "megatron: megatron-ml/",
            "tree_links.megatron: no component 'megatron-ml'",
        ),
        (
            "components/torch-npu.yaml",
            '">=2.7.1": 1',
            '">=2.7.1": 2',
            "cxx_abi.by_release.amd64.>=2.7.1: ",
        ),
        ("components/torch.yaml", "    source:", "    sauce:", ".sauce: unknown key; did you mean source?"),
        (
            "components/torch.yaml",
            "kind: wheels",
            "kind: wheel",
            "kind: 'wheel' is not known; did you mean wheels?",
        ),
        ("chips.yaml", '"910b":', "910bx:", "no chip '910bx'; did you mean 910b"),
        ("chips.yaml", "cards: 8", "cards: none", "910b.cards:"),
        ("bases/8.5.0.yaml", "atb_abi: 1}", "abt_abi: 1}", "unknown key; did you mean atb_abi"),
        ("bases/8.5.0.yaml", "cann: 8.5.0", "cann: 8.5.7", "cann: '8.5.7' is not in the file's name"),
        (
            "compatibility.yaml",
            'torch: "2.12.0"',
            'torch: "~2.12"',
            "rows.0.fits.torch: '~2.12' is not a range of versions",
        ),
        (
            "compatibility.yaml",
            "of: torch-npu==",
            "of: torch-npu>=",
            "rows.0.of: 'torch-npu>=2.12.0' is not NAME==VERSION",
        ),
        ("compatibility.yaml", "source: ascend-pytorch}", "source: ascend}", "a source that is not in `sources`"),
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
    two = edit(images, QUICKSTART, 'python: "3.11"', "python: three")
    edit(images, "tools.yaml", "requirements:", "requirement:")
    (images / "components/verl.yaml").write_text("kind: wheels\nkind: system\n")
    (images / "components/ray.yaml").write_text("kind: [wheels\n")
    lines = problems(images).splitlines()
    assert len(lines) == 6
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
    first, second = problems(images).splitlines()
    known = ", ".join(sorted(path.stem for path in (images / "components").iterdir()))
    assert "torch, torch-memory-saver, torch-npu, " in known
    assert first.endswith(
        "components.7.name: no component 'Peft'; make images/components/peft.yaml (docs/reference/fields.md), "
        f"or take one of {known}"
    )
    assert "images/components/torch-npux.yaml (docs/reference/fields.md), or did you mean torch-npu" in second


def test_a_system_component_takes_no_version(images: Path) -> None:
    edit(images, QUICKSTART, "{name: jemalloc}", '{name: jemalloc, version: "5.3"}')
    assert "components.0: jemalloc is of kind system: no version" in problems(images)


@pytest.mark.parametrize(
    ("pin", "what"),
    [
        (
            'release: "0.13.0", commit: "' + ONES + '"',
            "vllm is of kind source; name its commit, or a release instead",
        ),
        ('version: "0.13.0"', "vllm is of kind source: no version"),
        ("reason: none", "vllm is of kind source; name its commit, or a release instead"),
        ('commit: "' + ONES + '"', f"nothing is known of vllm {ONES}; add it to revisions in images/components/"),
    ],
)
def test_a_source_is_pinned_to_something_that_is_known(images: Path, pin: str, what: str) -> None:
    edit(images, QUICKSTART, "{name: jemalloc}", f"{{name: vllm, {pin}}}")
    assert f"components.0: {what}" in problems(images)


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
        ("mine.yml", "only files named .yaml are read here; name it mine.yaml, or keep it elsewhere"),
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
    assert "images/profiles/old: folders are not read here" in text
    assert "there is a quickstart.yaml already, so remove one of them" in text


@pytest.mark.parametrize(
    "name", ["README", "README.md", ".mine.yaml.swp", ".#mine.yaml", "._mine.yaml", "mine.yaml~", "mine.yaml.orig"]
)
def test_what_may_lie_beside_the_files(images: Path, name: str) -> None:
    before = sorted(path.stem for path in (images / "profiles").iterdir())
    (images / "profiles" / name).write_text("no profile")
    assert sorted(load_catalog(images).profiles) == before


WORDS = [
    (QUICKSTART, "components", "torch", "components:"),
    (QUICKSTART, "components", {"a": 1}, "components:"),
    (
        QUICKSTART,
        "components",
        ["torch"],
        "components.0:",
    ),
    (QUICKSTART, "components", None, "components:"),
    (QUICKSTART, "components", [], "components:"),
    (QUICKSTART, "constraints", ["a>1"], "constraints.0:"),
    (QUICKSTART, "constraints", [{"requirement": "a>1", "reason": "x"}], "0.reason:"),
    (QUICKSTART, "constraints", [{"requirement": "a>1"}], "constraints.0.reason:"),
    (
        QUICKSTART,
        "constraints",
        [{"requirement": "a=1", "reason": "long enough"}],
        "constraints.0.requirement:",
    ),
    (
        QUICKSTART,
        "excludes",
        [{"requirement": "a>1", "reason": "long enough"}],
        "excludes.0.requirement:",
    ),
    (QUICKSTART, "documents", "a", "documents:"),
    (QUICKSTART, "target", "8.5.0", "target:"),
    (QUICKSTART, "summary", ["a"], "summary:"),
    (QUICKSTART, "summary", None, "summary:"),
    (QUICKSTART, "exclude_newer", None, "exclude_newer:"),
    (QUICKSTART, "base", "stand-in", "base:"),
    (QUICKSTART, "base", 3, "base:"),
    (QUICKSTART, "env", ["A=b"], "env:"),
    (QUICKSTART, "env", {"A-B": "x"}, "env.A-B:"),
    (QUICKSTART, "env", {1: "x"}, "env.1:"),
    (
        QUICKSTART,
        "may_skip",
        {"stand-in": []},
        "may_skip.stand-in:",
    ),
    (QUICKSTART, "may_skip", {"real": ["npu.node"]}, "may_skip.real.0:"),
    (QUICKSTART, "may_skip", {"real": ["train.steps"]}, "may_skip.real.0:"),
    (QUICKSTART, "may_skip", {"real": ["nodes"]}, "may_skip.real.0:"),
    (QUICKSTART, "pip_check_allow", ["("], "pip_check_allow.0:"),
    (
        "components/numpy.yaml",
        "imports",
        ["numpy"],
        "imports.0:",
    ),
    ("components/numpy.yaml", "imports", [{"module": "a-b"}], "imports.0.module:"),
    ("components/numpy.yaml", "system", {"apt": ["a"]}, "system:"),
    ("components/jemalloc.yaml", "index", "ascend", "index:"),
    ("components/jemalloc.yaml", "system", {"yum": ["a"]}, "system.yum:"),
    ("components/jemalloc.yaml", "links", {"/a": "b"}, "links./a:"),
    ("components/jemalloc.yaml", "libraries", ["lib.so"], "libraries.0:"),
    (
        "components/torch.yaml",
        "index",
        None,
        "binds:",
    ),
    ("components/torch.yaml", "metadata", {"2.13.x": {}}, "metadata.2.13.x:"),
    ("chips.yaml", "910b", {"cards": "no"}, "910b.cards:"),
    ("chips.yaml", "910b", {"cards": 0}, "910b.cards:"),
    (
        "chips.yaml",
        "910b",
        "x",
        "910b:",
    ),
    ("bases/8.5.0.yaml", "tags", {"t": {"python": "3.11.4", "atb_abi": 2}}, "tags.t.atb_abi:"),
    ("standin/recipe.yaml", "libraries", {"a": {"opened": "so"}}, "libraries.a.opened:"),
    ("tools.yaml", "exclude_newer", "soon", "exclude_newer:"),
]


@pytest.mark.parametrize(("name", "key", "value", "field"), WORDS)
def test_what_is_wrong_has_its_file_and_field(images: Path, name: str, key: str, value: object, field: str) -> None:
    content = yaml.safe_load((images / name).read_text(encoding="utf-8"))
    (images / name).write_text(yaml.safe_dump({**content, key: value}, allow_unicode=True), encoding="utf-8")
    lines = problems(images).splitlines()
    assert [line for line in lines if re.search(rf"^images/{re.escape(name)}:\d+: .*{re.escape(field)}", line)]
    for leak in ("Tuple", "valid dictionary", "[key]", "  → "):
        assert leak not in "".join(lines)


def test_one_fault_is_told_once(images: Path) -> None:
    edit(images, QUICKSTART, "components:", "components: [torch]\nx-components:")
    lines = [line for line in problems(images).splitlines() if "components" in line]
    assert [line.split(": ")[1] for line in lines] == ["components.0", "x-components"]


def test_a_whole_file_of_another_shape(images: Path) -> None:
    (images / QUICKSTART).write_text("- a\n")
    assert problems(images).startswith(f"images/{QUICKSTART}:1: ")


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


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("indexes.yaml", '"https://download.pytorch.org/whl/cpu"', '"http://[bad/simple"', "pytorch-cpu.urls.0: "),
        (
            "indexes.yaml",
            '["https://download.',
            '["https://me:s3cr3t@download.',
            "pytorch-cpu.urls.0: ",
        ),
        (
            "indexes.yaml",
            '["https://download.',
            '["me:s3cr3t@download.',
            "pytorch-cpu.urls.0: ",
        ),
        ("indexes.yaml", '["https://download.pytorch.org/whl/cpu"]', '"https://a:s3cr3t/b@c"', "pytorch-cpu.urls: "),
        ("indexes.yaml", "pytorch-cpu:", "default:", "'default' is the index of the host's pip settings"),
        ("indexes.yaml", "pytorch-cpu:", '"https://a:s3cr3t@c":', "credentials in it"),
        (
            "hosts.yaml",
            "{repository}.git",
            "{x}.git",
            "github.url: 'https://github.com/{x}.git' has to contain {repository}",
        ),
        ("hosts.yaml", "https://github", "https://s3cr3t@github", "github.url: this text has credentials"),
        ("bases/registries.yaml", "quay.io/", "me:s3cr3t@quay.io/", "repositories.1: a repository of a registry is"),
        ("chips.yaml", '"910b":', "911:", "no chip '911'"),
        ("compatibility.yaml", "driver: 25.3.rc1", "driver: new", ".fits.driver: 'new' is not a driver version"),
        (
            "compatibility.yaml",
            "source: ascend-pytorch}",
            "source: ascend}",
            "rows.0.source: a source that is not in `sources`",
        ),
        (QUICKSTART, "arch: [amd64, arm64]", "arch: [amd64, x86_64]", "target.arch.1: amd64 is given twice"),
        (QUICKSTART, "name: torch-npu,", "name: torch,", "components.4: torch is given twice; remove one of them"),
        (QUICKSTART, "{name: jemalloc}", '{name: jemalloc, reason: !!float ""}', "the tag !!float has no use here"),
    ],
)
def test_a_fault_is_told_at_its_line_without_secrets(images: Path, name: str, old: str, new: str, says: str) -> None:
    line = edit(images, name, old, new)
    text = problems(images)
    assert f"images/{name}:{line}: " in text
    assert says in text
    assert "s3cr3t" not in text


def test_no_row_of_the_table_contradicts_another(real: Catalog) -> None:
    assert [str(fault) for fault in contradictions(real.compatibility)] == []


def test_a_file_of_another_kind_does_not_fill_the_screen(images: Path) -> None:
    (images / QUICKSTART).write_text("".join(f"key{number}: x\n" for number in range(5000)))
    begin = time.process_time()
    lines = problems(images).splitlines()
    assert len(lines) == 31
    assert lines[-1].startswith(f"images/{QUICKSTART}: 4974 more problems; ")
    assert time.process_time() - begin < 20


def test_aliases_that_multiply_are_refused(images: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 45))]
    (images / QUICKSTART).write_text("\n".join(lines))
    assert "more than 100000 values, aliases counted in full" in problems(images)


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_program_reads_has_where_and_hint(
    images: Path, count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = edit(images, QUICKSTART, "shm_size: 16g", "shm_sise: 16g")
    if count == 2:
        edit(images, "hosts.yaml", "{repository}.git", "{x}.git")
    monkeypatch.setenv("CANNERY_CACHE", str(images / "cache"))
    assert cli.main(["check", "quickstart", "--json"], images.parent) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 2
    assert found["where"] == (f"images/{QUICKSTART}:{line}" if count == 1 else "images/")
    assert found["hint"].startswith("did you mean shm_size" if count == 1 else "fix them from the top")
    assert f"images/{QUICKSTART}:{line}: shm_sise: unknown key" in f"{found['where']}: {found['error']}"


def test_unknown_keys_hide_no_component_that_is_missing(images: Path) -> None:
    edit(images, QUICKSTART, "shm_size: 16g", "shm_sise: 16g")
    edit(images, QUICKSTART, "{name: verl,", "{name: verll,")
    edit(images, QUICKSTART, "{name: ray}", "{name: rai, verzion: 1}")
    found = problems(images)
    assert "shm_sise: unknown key" in found
    assert "no component 'verll'" in found
    assert ".verzion: unknown key" in found
    assert "no component 'rai'" in found


def test_an_unknown_key_that_an_alias_repeats_is_reported_at_each(images: Path) -> None:
    text = (images / QUICKSTART).read_text()
    lines = "overrides:\n- &a {requirement: foo<2, reason: because, bogus: 1}\n- *a\n"
    (images / QUICKSTART).write_text(re.sub(r"(?m)^overrides:\n(?:[ -].*\n)*", "", text) + lines)
    assert problems(images).count(".bogus: unknown key; known: reason, requirement") == 2


@pytest.mark.parametrize(
    ("file", "key", "other"),
    [
        ("profiles/mindspeed-rl.yaml", "{name: vllm-ascend, commit:", "{name: vllm-ascend, comit:"),
        ("components/sgl-kernel-npu.yaml", "soc_variable:", "soc_varible:"),
    ],
)
def test_a_misspelt_key_is_one_problem(images: Path, file: str, key: str, other: str) -> None:
    line = edit(images, file, key, other)
    (one,) = problems(images).splitlines()
    assert one.startswith(f"images/{file}:{line}: ")
    assert "did you mean" in one


def test_a_broken_file_stops_the_profiles_that_use_it_and_no_other(images: Path) -> None:
    whole = load_catalog(images)
    line = edit(images, "components/verl-npu.yaml", "kind: source", "kind: sauce")
    edit(images, "profiles/verl-qwen3.5.yaml", "summary:", "sumary:")
    edit(images, "bases/8.1.rc1.yaml", "toolkit_home:", "toolkit:")
    (images / "components/unused.yaml").write_text("kind: none\n")
    catalog = load_catalog(images)
    uses = {name for name, one in whole.profiles.items() if any(pin.name == "verl-npu" for pin in one.components)}
    base = {name for name, one in whole.profiles.items() if one.target.cann == "8.1.rc1"}
    stopped = {*uses, *base, "verl-qwen3.5"}
    assert uses
    assert base
    assert {*catalog.profiles} == {*whole.profiles} - stopped
    assert "quickstart" in catalog.profiles
    for name in sorted(stopped):
        with pytest.raises(CatalogError):
            select(catalog, name, Options(), Arch.AMD64)
    with pytest.raises(CatalogError) as caught:
        select(catalog, min(uses - base - {"verl-qwen3.5"}), Options(), Arch.AMD64)
    assert caught.value.where == f"images/components/verl-npu.yaml:{line}"
    # Another profile cannot be built for the CANN line that is broken.
    with pytest.raises(CatalogError):
        select(catalog, "quickstart", Options(cann="8.1.rc1"), Arch.AMD64)
    assert any(part.where.startswith("images/components/unused.yaml:") for part in catalog.problems)


@pytest.mark.parametrize("name", ["chips.yaml", "indexes.yaml", "hosts.yaml", "tools.yaml", "compatibility.yaml"])
def test_a_broken_file_that_all_profiles_need_stops_all(images: Path, name: str) -> None:
    (images / name).write_text("a: [\n")
    with pytest.raises(CatalogError):
        load_catalog(images)


def test_commands_go_on_with_one_warning_and_stop_for_what_is_broken(
    images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANNERY_CACHE", str(images / "cache"))
    line = edit(images, "profiles/verl-npu.yaml", "summary:", "sumary:")
    assert cli.main(["list"], images.parent) == 0
    found = capsys.readouterr()
    assert "quickstart" in found.out
    assert "verl-npu" not in {row.partition(" ")[0] for row in found.out.splitlines()}
    (warning,) = found.err.splitlines()
    assert "verl-npu" in warning
    assert f"images/profiles/verl-npu.yaml:{line}" in warning
    assert cli.main(["show", "verl-npu"], images.parent) == 2
    assert f"images/profiles/verl-npu.yaml:{line}" in capsys.readouterr().err
    edit(images, "indexes.yaml", "urls:", "url:")
    assert cli.main(["list"], images.parent) == 2
