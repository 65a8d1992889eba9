"""Releases of sources in real locks, and SRC_ and GIT_MIRROR on the command line, on a small checkout."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from git_trees import Repo
from small_checkout import Small, make_small
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.lock.lock import parse_lock
from cannery.sources.io import planned_sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "a" * 40
ENGINE = f"""\
kind: source
summary: serves models
hosts: {{github: made-up/engine}}
install: wheel
revisions:
  {COMMIT}:
    version: "0.11.0.dev3"
    release: "0.11.0"
    requires: ["dep==1.0"]
    requires_from: [requirements.txt]
    source: its list
releases:
  "0.11.0": {{sdist: true, requires: ["dep"], source: its PKG-INFO}}
  "0.12.0": {{requires: ["dep"], source: its METADATA}}
imports: [{{module: engine}}]
"""
PROFILE = """\
summary: with a source
target: {{cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [amd64]}}
exclude_newer: "2026-06-01"
components:
  - {{name: torch, version: "2.8.0"}}
  - {{name: torch-npu, version: "2.8.0"}}
  - {{name: engine, {pin}}}
"""


@pytest.fixture
def index() -> Iterator[StubIndex]:
    with StubIndex() as found:
        yield found


@pytest.fixture
def small(
    tmp_path: Path, index: StubIndex, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Small:
    found = make_small(tmp_path, index, capsys, monkeypatch)
    (found.root / "images/components/engine.yaml").write_text(ENGINE)
    return found


def use(small: Small, pin: str) -> None:
    small.profile("served").write_text(PROFILE.format(pin=pin))


def engine_file(small: Small) -> str | None:
    path = small.root / "images/locks/served/py3.11-amd64.txt"
    files = {package.name: package.file for package in parse_lock(path.read_text(), path.name).packages}
    return files.get("engine")


def test_a_commit_is_no_package_and_a_release_is_its_sdist_or_its_wheel(small: Small, index: StubIndex) -> None:
    index.add(make_wheel("engine", "0.11.0", ["cuda-only"]))
    index.add(make_sdist("engine", "0.11.0"))
    index.add(make_wheel("engine", "0.12.0"))
    for pin, file in [
        (f"commit: {COMMIT}", None),
        ('release: "0.11.0"', "engine-0.11.0.tar.gz"),
        ('release: "0.12.0"', "engine-0.12.0-py3-none-any.whl"),
    ]:
        use(small, pin)
        done = small("lock", "served")
        assert done.code == 0, done.err
        assert engine_file(small) == file
        assert small("check", "served").code == 0


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ([], 3, "engine 0.11.0: the host's indexes have no source distribution of it"),
        (["wheel"], 3, "they have engine-0.11.0-py3-none-any.whl"),
    ],
)
def test_a_release_without_the_wanted_file_is_named(
    small: Small, index: StubIndex, files: list[str], code: int, words: str
) -> None:
    if files:
        index.add(make_wheel("engine", "0.11.0"))
    use(small, 'release: "0.11.0"')
    done = small("lock", "served")
    assert done.code == code
    assert words in done.err
    assert not (small.root / "images/locks/served").exists()


def test_a_release_whose_index_fails_is_exit_7(small: Small, index: StubIndex) -> None:
    index.page_status["engine"] = 503
    use(small, 'release: "0.11.0"')
    done = small("lock", "served")
    assert done.code == 7
    assert "not reached: index default" in done.err
    assert "server error (HTTP 503)" in done.err


def test_sources_release_is_a_trial_with_a_lock_of_its_own(small: Small, index: StubIndex) -> None:
    index.add(make_sdist("engine", "0.11.0"))
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    before = small.files()
    done = small("plan", "served", "--sources", "release", "--base", "standin", "--json")
    assert done.code == 0, done.err
    assert "resolving served for amd64 with releases of engine" in done.err
    assert json.loads(done.out)["reference"].endswith("-trial-standin")
    (layer,) = (one for one in json.loads(done.out)["layers"] if one["name"] == "engine")
    assert layer["summary"] == "engine 0.11.0, wheel of release 0.11.0"
    assert small.files() == before
    again = small("plan", "served", "--sources", "release", "--base", "standin", "--json")
    assert (again.code, again.out, "resolving" in again.err) == (0, done.out, False)


def test_a_local_tree_is_a_part_of_the_plan(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    tree = tmp_path / "tree"
    (tree / "engine").mkdir(parents=True)
    (tree / "setup.py").write_text("one")

    def plan(*words: str) -> dict[str, str]:
        done = small("plan", "served", "--base", "standin", "--json", *words)
        assert done.code == 0, done.err
        value = json.loads(done.out)
        return {"reference": value["reference"], **{layer["name"]: layer["digest"] for layer in value["layers"]}}

    plain, first = plan(), plan("--src", f"engine={tree}")
    (tree / "setup.py").write_text("two")
    second = plan("--src", f"engine={tree}")
    assert [one["reference"].count("-trial-standin") for one in (plain, first)] == [0, 1]
    changed = {name for name in plain if plain[name] != first[name]}
    assert changed == {"reference", "engine", "files"}
    assert {name for name in first if first[name] != second[name]} == {"reference", "engine", "files"}


def test_a_local_tree_that_asks_for_other_packages_is_reported(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    tree = tmp_path / "tree"
    (tree / "src/engine").mkdir(parents=True)
    for text, words in (("dep==1.0", ""), ("dep==1.1", "dep: known has dep==1.0, the tree has dep==1.1")):
        (tree / "requirements.txt").write_text(text)
        done = small("render", "served", "--base", "standin", "--src", f"engine={tree}")
        assert done.code == 0, done.err
        assert ("engine: asks for other packages" in done.err) is bool(words)
        assert words in done.err


def test_check_takes_a_tree_and_reports_what_is_missing_in_it(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    tree = tmp_path / "tree"
    (tree / "src/engine").mkdir(parents=True)
    (tree / "requirements.txt").write_text("dep==1.1")
    (tree / ".gitmodules").write_text('[submodule "x"]\n\tpath = csrc/lib\n\turl = https://git.example/a/b\n')
    done = small("check", "served", "--base", "standin", "--src", f"engine={tree}", "--json")
    assert done.code == 0, done.err
    found = [row for row in json.loads(done.out)["findings"] if row["code"] == "source-tree"]
    assert [row["severity"] for row in found] == ["warning", "warning"]
    assert "engine: asks for other packages" in found[0]["what"]
    assert found[1]["what"].startswith("engine: csrc/lib: ")
    assert "git submodule update --init --recursive" in found[1]["what"]
    rendered = small("render", "served", "--base", "standin", "--src", f"engine={tree}")
    assert rendered.code == 0
    assert found[1]["what"] in rendered.err
    (tree / "csrc/lib").mkdir(parents=True)
    (tree / "csrc/lib/a.h").write_text("")
    (tree / "src/engine/a.py").write_text("<<<<<<< HEAD\n")
    (tree / "src/engine/b.py").write_text("match x:\n    case 1: pass\n")
    (tree / "tests").mkdir()
    (tree / "tests/bad.py").write_text("print 'Python 2'\n")
    done = small("check", "served", "--base", "standin", "--src", f"engine={tree}", "--json")
    words = [row["what"] for row in json.loads(done.out)["findings"] if row["code"] == "source-tree"]
    assert words[0].startswith("engine: Python 3.11 cannot compile src/engine/a.py, line 1: "), words
    assert "more files" not in words[0]
    (tree / "src/engine/a.py").unlink()
    (tree / "requirements.txt").write_text("dep==1.0")
    assert "source-tree" not in small("check", "served", "--base", "standin", "--src", f"engine={tree}").out
    bad = small("check", "served", "--src", "engin=.")
    assert (bad.code, "SRC_engin: no source of served" in bad.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--src", "engin=."], "SRC_engin: no source of served"),
        (["--src", "engine"], "--src: 'engine' is not NAME=DIR"),
        (["--src", "engine=/nowhere"], "SRC_engine: '/nowhere' is not a folder"),
        (["--git-mirror", "/nowhere"], "GIT_MIRROR: '/nowhere' is not a folder"),
        (["--sources", "commit"], "SOURCES: 'commit' is not known"),
        (["--src", "engine=~nobody-has-this-name/x"], "SRC_engine: '~nobody-has-this-name/x' is not a folder"),
        (["--git-mirror", "~nobody-has-this-name"], "GIT_MIRROR: '~nobody-has-this-name' is not a folder"),
        (["--wheelhouse", "~nobody-has-this-name"], "WHEELHOUSE: '~nobody-has-this-name' is not a folder"),
        (["--src", "engine=/", "--src", "engine=/usr"], "SRC_engine: named twice, '/' and '/usr'"),
    ],
)
def test_bad_words_are_exit_2(small: Small, words: list[str], error: str) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    done = small("plan", "served", "--base", "standin", *words)
    assert done.code == 2
    assert error in done.err


def test_a_commit_that_is_not_in_the_mirror_is_named(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    (tmp_path / "mirror").mkdir()
    done = small("render", "served", "--base", "standin", "--git-mirror", str(tmp_path / "mirror"))
    assert done.code == 7
    assert "engine" in done.err
    assert "made-up/engine" in done.err
    assert "SOURCES=release:engine uses release 0.11.0 of the package index instead" in done.err


def test_a_tree_that_changes_between_plan_and_tar_is_exit_4(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    (tmp_path / "tree/engine").mkdir(parents=True)
    (tmp_path / "tree/engine/a.py").write_text("1")
    real = planned_sources.local_trees

    def then_it_changes(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type] # as it was called
        (tmp_path / "tree/engine/a.py").write_text("2")
        return found

    monkeypatch.setattr(planned_sources, "local_trees", then_it_changes)
    done = small("render", "served", "--base", "standin", "--src", f"engine={tmp_path / 'tree'}")
    assert (done.code, "SRC_engine: the tree changed while it was read" in done.err) == (4, True), done.err


def test_a_commit_of_a_tree_is_in_the_plan_and_not_in_its_layer(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    repo = Repo(tmp_path / "repo")
    repo.commit({"engine/a.py": "1"})
    shutil.copytree(tmp_path / "repo", tmp_path / "plain", ignore=shutil.ignore_patterns(".git"))

    def plan(folder: str) -> dict[str, str]:
        done = small("plan", "served", "--base", "standin", "--json", "--src", f"engine={tmp_path / folder}")
        value = json.loads(done.out)
        return {"reference": value["reference"], **{layer["name"]: layer["digest"] for layer in value["layers"]}}

    one, other = plan("repo"), plan("plain")
    assert {name for name in one if one[name] != other[name]} == {"reference", "files"}


def test_a_folder_of_another_project_is_no_tree_of_the_source(small: Small, tmp_path: Path) -> None:
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    (tmp_path / "other").mkdir()
    done = small("plan", "served", "--base", "standin", "--src", f"engine={tmp_path / 'other'}")
    assert done.code == 2
    assert "has no engine" in done.err


def test_no_release_takes_the_place_of_a_tree_of_ones_own(small: Small, index: StubIndex, tmp_path: Path) -> None:
    index.add(make_sdist("engine", "0.11.0"))
    use(small, f"commit: {COMMIT}")
    assert small("lock", "served").code == 0
    (tmp_path / "tree/engine").mkdir(parents=True)
    words = ("plan", "served", "--base", "standin", "--src", f"engine={tmp_path / 'tree'}", "--sources")
    done = small(*words, "release:engine")
    assert (done.code, "SOURCES: engine is a tree of yours (SRC_engine)" in done.err) == (2, True)
    assert small(*words, "release").code == 2  # no other source has a release


def test_a_release_that_is_pinned_already_is_reported(small: Small, index: StubIndex) -> None:
    index.add(make_sdist("engine", "0.11.0"))
    use(small, 'release: "0.11.0"')
    assert small("lock", "served").code == 0
    done = small("plan", "served", "--base", "standin", "--sources", "release:engine")
    assert (done.code, "engine is not a source at a commit" in done.err) == (2, True)
