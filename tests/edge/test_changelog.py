"""The table "gone or changed → instead" of CHANGELOG.md: an old spelling works, or its error names the new one.

Each row has a test here, or names the test that holds it. What "instead" names has to exist.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import make_command
import pytest
from pydantic import TypeAdapter, ValidationError

from cannery import cli, doctor
from cannery.catalog.addresses import Index
from cannery.catalog.catalog import Pin
from cannery.catalog.component import Component, parse_component
from cannery.catalog.errors import faults
from cannery.cli.arguments import COMMANDS, make_parser
from cannery.engine.io.client import EngineError, registry_error
from cannery.errors import ExitCode, UsageError
from cannery.patches.summary import Difference, FileChanges, PatchChanges
from cannery.run.container import RunRequest, docker_arguments, make_container
from cannery.settings import of_file
from cannery.ship.bundle import Held, documents
from verifying.checks import CHECKS
from verifying.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str]]

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = (
    (ROOT / "CHANGELOG.md").read_text("utf-8").partition("### Gone or changed → instead")[2].partition("\nTags of")[0]
)
ROWS = {cells[0]: cells[1] for cells in (line.strip("| ").split(" | ") for line in TABLE.splitlines()[4:] if line)}
LINT = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "cannery/lint").rglob("*.py")))
# Rows that other tests hold: how a row begins, and the test.
HELD = {
    "`lock --upgrade": "tests/edge/test_cli.py",
    "fuzz, `diff -U0`": "tests/edge/test_patching.py::test_context_that_differs_is_no_fit_and_port_is_the_next_step",
    "`patches new` writes": "tests/edge/test_patches_new.py::test_every_changed_file_is_in_a_patch_that_is_read_again",
    "`verify` lists passed": "tests/edge/test_verify_run.py",
    "build output prints": "tests/edge/test_buildx.py::test_plain_lines_are_one_for_each_stage_that_ends",
    "`verify --against --json`": "tests/edge/test_against_command.py::test_words_that_do_not_go_together",
    "a setup.py as a place": "tests/unit/test_source_requires.py::test_a_list_that_only_a_run_would_give",
    "a failed lock guesses": "tests/edge/test_explain.py",
    "`push` reads CANN's": "tests/edge/test_patching.py",
    "a command stops at rows": "tests/edge/test_catalog_files.py::test_no_row_of_the_table_contradicts_another",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def build_py(*words: str) -> tuple[int, str]:
        code = cli.main(words, ROOT)
        text = capsys.readouterr()
        return code, " ".join((text.out + text.err).split())

    return build_py


@pytest.mark.parametrize("old", ROWS)
def test_a_row_has_its_test(old: str) -> None:
    held = [test for start, test in HELD.items() if old.startswith(start)]
    own = [start for start in OLD if old.startswith(start)]
    if not held and not own:
        pytest.skip("no test of its own: what it names instead is looked for alone")
    for test in held:
        path, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8")


def test_no_test_is_of_a_row_that_is_not_there() -> None:
    starts = [*HELD, *OLD]
    assert [start for start in starts if not any(old.startswith(start) for old in ROWS)] == []


@pytest.mark.parametrize("old", ROWS)
def test_what_is_named_instead_exists(old: str) -> None:
    options = {word for command in every_option() for word in command}
    for word in re.findall(r"`([^`]+)`", ROWS[old]):
        if word.startswith("-"):
            assert word.split()[0] in options, word
        elif word.split()[0] in COMMANDS:
            assert make_parser()
        elif re.fullmatch(r"[A-Z]+", word):
            assert word in make_command.KNOWN
        elif re.fullmatch(r"static\.[a-z-]+", word):
            assert word in CHECKS
    for path in re.findall(r"\b(?:docs/[\w./-]+|CONTRIBUTING\.md)", ROWS[old]):
        assert (ROOT / path).exists(), path


def every_option() -> list[list[str]]:
    script = (ROOT / "templates/rootfs/opt/cannery/verify.py").read_text("utf-8")
    found = [re.findall(r'add\("(--[\w-]+)"', script)]
    parsers = next(one.choices for one in make_parser()._actions if isinstance(one.choices, dict))
    return found + [list(action.option_strings) for parser in parsers.values() for action in parser._actions]


def refused(value: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        parse_component(value)
    return " ".join(f"{fault.what} {fault.hint}" for fault in faults(caught.value, Component))


def fuzz_names_truncated(_run: Run, _folder: Path) -> None:
    sets = {"folder": "a", "repos": {"a": "b"}, "fuzz": {"x": 1}}
    text = refused({"kind": "source", "summary": "s", "install": "wheel", "patch_sets": sets})
    assert "`truncated`" in text
    assert "patches port" in text


def summary_has_changes(_run: Run, _folder: Path) -> None:
    keys = {one.name for kind in (PatchChanges, FileChanges, Difference) for one in fields(kind)}
    assert not keys & {"defects", "header", "fuzz", "expected", "found"}
    assert "names" in keys


def port_wants_a_full_commit(run: Run, _folder: Path) -> None:
    code, text = run("patches", "port", "verl", "796871d7d", "abc1234")
    assert code == ExitCode.USAGE
    assert "in full (40 hex digits)" in text


def lint_run_names_what_it_does_not_read(run: Run, folder: Path) -> None:
    page, include, one = folder / "page.md", folder / "a.yaml", "docker run a:1"
    page.write_text(f"# Start\n\n```\n{one}\n```\n")
    include.write_text("include: [b.yaml]\nservices: {x: {image: a:1, extends: {service: y}}}\n")
    again = folder / "b.yaml"
    again.write_text("services: {x: {image: a:2}}\n")
    said = [
        run("lint-run", "--file", str(page)),
        run("lint-run", f"ssh host '{one}'"),
        run("lint-run", f"alias d='docker run'; d a:1; {one}"),
        run("lint-run", "--file", str(include)),
        run("lint-run", "--file", str(include), "--file", str(again)),
    ]
    wanted = ("give its command alone", "a plain docker run line", "", "docker compose config", "docker compose config")
    for (code, text), words in zip(said, wanted, strict=True):
        assert words in text, text
        assert code in {ExitCode.DONE, ExitCode.USAGE, ExitCode.FINDINGS}
    assert "extends is not read" in said[3][1]


def lint_run_notes_what_only_a_shell_expands(run: Run, _folder: Path) -> None:
    for text in ("--device=/dev/davinci{0..7} a:1", "$A a:1"):
        code, said = run("lint-run", f"A=(--rm)\nA+=(-it)\ndocker run {text}")
        assert code in {ExitCode.DONE, ExitCode.FINDINGS}
        assert said.count("[run.text.unread]") == 1
        assert "line 3" in said


def lint_run_looks_behind_the_image_alone(run: Run, _folder: Path) -> None:
    assert "run.image.behind" in run("lint-run", "docker run a:1 --device /dev/davinci0")[1]
    assert run("lint-run", "docker run python:3.11 python x.py --device npu") == (0, "no errors")


def codes_are_gone(_run: Run, _folder: Path) -> None:
    (row,) = (old for old in ROWS if old.startswith("codes `run.node.target`"))
    codes = re.findall(r"`run\.([\w.]+)`", row)
    assert len(codes) > 10
    assert [code for code in codes if re.search(rf'(?:Severity\.\w+|severity), "{re.escape(code)}"', LINT)] == []
    assert re.search(r'Severity\.\w+, "run.node.unknown"', LINT)


def v_is_verbose(_run: Run, _folder: Path) -> None:
    parser = make_parser()
    assert parser.parse_args(["verify", "quickstart", "--all"]).all
    assert parser.parse_args(["verify", "quickstart", "-v"]).verbose
    assert parser.parse_args(["run", "quickstart", "-v", "/a:/b"]).volume == ["/a:/b"]


def findings_have_a_fix(run: Run, _folder: Path) -> None:
    _, text = run("lint-run", "--json", "docker run --gpus all a:1")
    value = json.loads(text)
    assert value["schema"] == 2
    assert value["containers"][0]["findings"][0]["fix"]
    assert not {"corrected", "left"} & {*value, *value["containers"][0]}


def a_manifest_with_another_key_is_read(_run: Run, folder: Path) -> None:
    value = {"schema": 1, "strange": 1}
    (folder / "m.json").write_text(json.dumps(value))
    assert load_manifest(str(folder / "m.json")) == value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, json.loads((ROOT / "docs/manifest.schema.json").read_text("utf-8")))


def a_field_of_another_kind_is_refused(_run: Run, _folder: Path) -> None:
    assert "kind system has no such key" in refused({"kind": "system", "summary": "s", "hosts": {}})


def an_archive_is_another_kind(_run: Run, _folder: Path) -> None:
    text = refused({"kind": "archive", "summary": "s", "hosts": {"github": "a/b"}})
    assert "'archive' is not known take a component of kind system, native or source" in text
    assert "WHEELHOUSE" in text
    with pytest.raises(UsageError, match=r"mirrors\.files is not a table of mirrors"):
        of_file({"mirrors": {"files": {"github": "https://m.example/{repository}/{file}"}}}, "f", str)


def a_pull_without_layers_is_of_the_network(_run: Run, _folder: Path) -> None:
    for text in ("manifest unknown", "verification failed for digest sha256:0"):
        error = registry_error(EngineError(text), "pull", "r.example/x:1", str)
        assert error.code is ExitCode.NETWORK
        assert "does not give all of this image" in error.what


def setup_takes_variables(_run: Run, _folder: Path) -> None:
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    (setup,) = (line for line in lines if line.startswith("setup:"))
    assert "$(RUN)" not in lines[lines.index(setup) + 1]


def the_page_has_moved(_run: Run, _folder: Path) -> None:
    assert not (ROOT / "docs/profiles.md").exists()


def run_leaves_names_to_docker(_run: Run, _folder: Path) -> None:
    request = RunRequest("i", "1g", npu=False, name="a b", volumes=("/a:/x:or", "/b:/x"))
    words = docker_arguments(make_container(request, None, None))  # type: ignore[arg-type] # neither is looked at
    assert [word for word in ("a b", "/a:/x:or", "/b:/x") if word not in words] == []


def a_bundle_is_a_docker_archive(_run: Run, _folder: Path) -> None:
    names = [name for name, _ in documents(Held("sha256:0", "linux/amd64", ("a:1",), ()), None, b"{}", ())]
    assert "manifest.json" in names
    assert "oci-layout" not in names


def mirrors_are_settings(_run: Run, _folder: Path) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Index).validate_python({"urls": [], "mirrors": ["https://m.example/simple"]})
    assert next(faults(caught.value, Index)).what == "unknown key"
    text = '[mirrors.index]\n"pytorch-cpu" = "https://m.example/simple"\n'
    assert [*of_file(tomllib.loads(text), "f", str)] == ["mirrors.index.pytorch-cpu"]


def a_guides_version_is_a_pin(run: Run, _folder: Path) -> None:
    code, text = run("check", "verl-sglang", "--as-documented")
    assert code == ExitCode.USAGE
    assert "--pin NAME==VERSION" in text
    with pytest.raises(ValueError, match="PIN=NAME==VERSION"):
        make_command.command("check", {"PROFILE": "verl-sglang", "DOCUMENTED": "1"})
    with pytest.raises(ValidationError) as caught:
        Pin.model_validate({"name": "torch", "version": "2.9.0", "documented": "2.8.0"})
    assert "PIN=NAME==VERSION" in next(faults(caught.value, Pin)).hint


def an_index_is_no_wheel(_run: Run, _folder: Path) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Index).validate_python({"urls": ["https://m.example/torch-2.0-py3-none-any.whl#sha256=0"]})
    assert "WHEELHOUSE" in next(faults(caught.value, Index)).hint


def doctor_has_no_ports(_run: Run, _folder: Path) -> None:
    assert "ports" not in {check.__name__ for check in doctor.CHECKS}


def docker_shows_its_cache(_run: Run, _folder: Path) -> None:
    assert "build_cache" not in {check.__name__ for check in doctor.CHECKS}


def an_engine_is_a_tool_of_a_checkout(run: Run, _folder: Path) -> None:
    for words in (("engine",), ("engine", "start")):
        code, text = run(*words)
        assert code == ExitCode.USAGE
        assert "make engine-start" in text
        assert "install Docker Engine" in text
    targets = re.findall(r"^(engine-\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert [make_command.command(one, {}) for one in targets] == [["start"], ["stop"], ["status"], ["remove"]]


def clean_names_what_removes_docker_s(run: Run, _folder: Path) -> None:
    code, text = run("clean", "engine")
    assert code == ExitCode.USAGE
    assert "make engine-remove" in text


def modules_are_elsewhere(_run: Run, _folder: Path) -> None:
    assert find_spec("cannery.core") is None
    assert find_spec("cannery.edge") is None
    assert find_spec("cannery.catalog")


OLD: dict[str, Callable[[Run, Path], None]] = {
    "`fuzz:` of a component": fuzz_names_truncated,
    "defects in `patches summary`": summary_has_changes,
    "`patches port` of several": port_wants_a_full_commit,
    "`lint-run`: Markdown pages": lint_run_names_what_it_does_not_read,
    "`lint-run` expands": lint_run_notes_what_only_a_shell_expands,
    "`lint-run` names docker's": lint_run_looks_behind_the_image_alone,
    "codes `run.node.target`": codes_are_gone,
    "`-v` of `verify`": v_is_verbose,
    "`corrected` and `left`": findings_have_a_fix,
    "the verify script refuses a manifest": a_manifest_with_another_key_is_read,
    "an empty field of another kind": a_field_of_another_kind_is_refused,
    "components of kind `archive`": an_archive_is_another_kind,
    "a pull whose layers": a_pull_without_layers_is_of_the_network,
    "`PROFILE=` and other": setup_takes_variables,
    "`--as-documented`": a_guides_version_is_a_pin,
    "an index whose URL": an_index_is_no_wheel,
    "docs/profiles.md": the_page_has_moved,
    "`run` refuses names": run_leaves_names_to_docker,
    "a complete bundle is": a_bundle_is_a_docker_archive,
    "`mirrors` of an index": mirrors_are_settings,
    "`doctor`'s check `hccl.ports`": doctor_has_no_ports,
    "`doctor` shows what the build cache": docker_shows_its_cache,
    "`engine start`": an_engine_is_a_tool_of_a_checkout,
    "`clean engine`": clean_names_what_removes_docker_s,
    "Python modules": modules_are_elsewhere,
}


@pytest.mark.parametrize("start", OLD)
def test_an_old_spelling_works_or_names_the_new_one(start: str, run: Run, tmp_path: Path) -> None:
    OLD[start](run, tmp_path)
