"""`diff`, `sbom` and `report` on this checkout's own profiles: no engine, no network."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker.errors
import pytest

from cannery import cli
from cannery.commands import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = ROOT / "images/locks"
OLD, NEW = LOCKS / "quickstart/py3.11-amd64.txt", LOCKS / "verl-vllm/py3.11-amd64.txt"


@pytest.fixture
def build(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(word) for word in words], ROOT)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "defect" not in said.err
        return code, said.out, said.err

    return run


def value_of(build: Run, *words: object) -> dict[str, Any]:
    code, out, _ = build(*words, "--json")
    assert code == 0
    return dict(json.loads(out))


def test_two_locks(build: Run) -> None:
    changes = value_of(build, "diff", OLD, NEW)["changes"]
    torch = next(one for one in changes if (one["section"], one["name"]) == ("packages", "torch"))
    assert (torch["old"], torch["change"]) == ("2.13.0+cpu", "changed")
    assert {"section": "packages", "name": "vllm-ascend"}.items() <= next(
        one.items() for one in changes if one["name"] == "vllm-ascend"
    )


def test_two_locks_take_less_than_a_second_of_cpu() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run((sys.executable, ROOT / "build.py", "diff", OLD, NEW), check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_a_profile_and_its_lock(build: Run) -> None:
    found = value_of(build, "diff", "quickstart", OLD, "--arch", "amd64")
    assert found["changes"] == []
    assert found["not_compared"] == ["sources", "layers", "environment"]


def test_a_target_of_both_profiles(build: Run) -> None:
    code, out, _ = build("diff", "quickstart", "quickstart", "--arch", "arm64", "--format", "markdown")
    assert code == 0
    assert "No difference." in out


def test_a_profile_of_an_older_commit(build: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkout of this test is a repository of its own: its profile is edited after the commit."""
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.example")
    for name in ("images", "templates"):
        subprocess.run(("cp", "-r", ROOT / name, tmp_path), check=True)
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run((*git, *words), check=True)
    profile = tmp_path / "images/profiles/quickstart.yaml"
    profile.write_text(f"{profile.read_text()}\nenv: {{MADE_UP: here}}\n")
    assert cli.main(["diff", "HEAD:quickstart", "quickstart", "--json"], tmp_path) == 0
    changes = {one["name"]: one["new"] for one in json.loads(capsys.readouterr().out)["changes"]}
    assert changes["MADE_UP"] == "here"
    assert "torch" not in changes
    profile.write_text("no profile")
    subprocess.run((*git, "commit", "-qam", "two"), check=True)
    subprocess.run((*git, "checkout", "-q", "HEAD^", "."), check=True)
    assert cli.main(["diff", "HEAD:quickstart", "quickstart"], tmp_path) == 2
    assert "error: HEAD:quickstart: this version of Cannery cannot plan it" in capsys.readouterr().err
    code, _, err = build("diff", "no-such-branch:quickstart", "quickstart")
    assert (code, "no revision 'no-such-branch'" in err) == (2, True)
    code, _, err = build("diff", "--", "quickstart", "quickstart")
    assert code == 2


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("quickstar", 2, "did you mean quickstart?"),
        ("missing.txt", 2, "no file 'missing.txt'"),
        ("docs", 2, "no file 'docs'"),
        ("README.md", 2, "a lock starts with a JSON comment"),
        ("docs/manifest.schema.json", 2, "this is not a manifest"),
        ("https://name:word@r.example/x:1", 2, "an image reference has no scheme"),
        ("-x:quickstart", 2, ""),
        ("team/Foo:1", 2, "'team/Foo:1' is not an image reference"),
        ("HEAD:nosuch", 2, "no profile 'nosuch'"),
        ("HEAD:quickstar", 2, "did you mean quickstart?"),
    ],
)
def test_words_that_name_nothing(build: Run, monkeypatch: pytest.MonkeyPatch, word: str, code: int, said: str) -> None:
    monkeypatch.chdir(ROOT)
    found, _, err = build("diff", word, "quickstart")
    assert (found, said in err) == (code, True), err
    assert "name:word" not in err


# Images.


class Images:
    """The SDK's images: one, with two layers."""

    def __init__(self, layers: Sequence[str] = ("sha256:1", "sha256:2")) -> None:
        self.id = "sha256:" + "b" * 64
        self.attrs: dict[str, Any] = {
            "Id": self.id,
            "Architecture": "amd64",
            "Config": {"Env": ["A=1"], "Labels": {}},
            "RootFS": {"Layers": layers},
        }
        self.images = self

    def get(self, reference: str) -> Images:
        if reference in {"mine:1", self.id}:
            return self
        raise docker.errors.ImageNotFound("none")


class Engine:
    arch = "amd64"

    def foreign(self, _arch: str) -> None:
        """No image is."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "packages": [["torch", "2.9.0", []]],
        "texts": {},
        "python": "3.11",
        "prefix": "/opt/venv",
        "versions": {},
        "lost": [],
    }
    monkeypatch.setattr(place, "find_engine", lambda *_, **__: Engine())
    monkeypatch.setattr(place, "docker_client", lambda _engine: Images())
    monkeypatch.setattr("cannery.commands.verify.read_image", lambda *_: seen)
    return seen


def test_an_image_made_by_hand(build: Run, engine: dict[str, Any]) -> None:
    found = value_of(build, "diff", OLD, "mine:1")
    torch = next(one for one in found["changes"] if one["name"] == "torch")
    assert (torch["old"], torch["new"]) == ("2.13.0+cpu", "2.9.0")
    found = value_of(build, "diff", "mine:1", "mine:1")
    assert (found["changes"], found["layers"]["new"]) == ([], 0)


def test_layers_of_two_images_are_printed_once_and_short(
    build: Run, engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    layers = iter(([one], [one, other]))
    monkeypatch.setattr(place, "docker_client", lambda _engine: Images(next(layers)))
    code, out, _ = build("diff", "mine:1", "mine:1")
    assert (code, out.splitlines()[1:]) == (0, ["layers: 1 added", f"  + {'2' * 12}", "1 of 2 layers are new"])


def test_layers_of_a_plan_are_not_those_of_an_image(build: Run, engine: dict[str, Any]) -> None:
    """A plan has the digests of what its layers are made from, and an image those of their content."""
    found = value_of(build, "diff", "quickstart", "mine:1")
    assert "layers" in found["not_compared"]
    assert found["layers"] is None
    assert {one["section"] for one in found["changes"]}.isdisjoint({"layers"})


def test_an_image_that_is_not_there(build: Run, engine: dict[str, Any]) -> None:
    code, _, err = build("diff", "quickstart", "other:1")
    assert (code, "no image other:1" in err) == (2, True)


def test_a_manifest_that_somebody_edited_is_left_aside(build: Run, engine: dict[str, Any]) -> None:
    whole = {"schema": 1, "profile": "p", "plan": "q", "target": {"cann": "8.5.0"}, "sources": []}
    engine["texts"] = {"/opt/cannery/manifest.json": json.dumps(whole)}
    found = value_of(build, "diff", "mine:1", "quickstart")
    assert "sources" in found["not_compared"]


# sbom.


def test_the_bill_of_a_profile(build: Run, tmp_path: Path) -> None:
    lock = OLD.read_text()
    code, out, _ = build("sbom", "quickstart", "--arch", "amd64")
    assert code == 0
    value = json.loads(out)
    wheels = [one for one in value["components"] if one.get("purl", "").startswith("pkg:pypi/")]
    assert len(wheels) == lock.count("\n    --hash=") == json.loads(lock.splitlines()[0][2:])["packages"]
    assert all(one["hashes"][0]["content"] in lock for one in wheels)
    file = tmp_path / "q.json"
    assert build("sbom", "quickstart", "--arch", "amd64", "--output", file)[:2] == (0, f"{file}\n")
    assert file.read_text() == out


def test_the_bill_of_a_profile_with_sources(build: Run) -> None:
    code, out, _ = build("sbom", "verl-npu", "--arch", "arm64", "--format", "spdx")
    assert code == 0
    names = {one["name"]: one for one in json.loads(out)["packages"]}
    assert names["verl"]["externalRefs"][0]["referenceLocator"].startswith("pkg:github/")
    assert "***" not in out  # a package URL is no user and password


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("quickstar",), 2, "did you mean quickstart?"),
        (("quickstart", "--format", "xml"), 2, "--format"),
        (("quickstart", "--arch", "amd64", "--output", "/dev/null/x"), 2, "/dev/null: no such folder"),
        ((), 2, "PROFILE"),
    ],
)
def test_a_bill_that_cannot_be_written(build: Run, words: tuple[str, ...], code: int, said: str) -> None:
    found, _, err = build("sbom", *words)
    assert (found, said in err) == (code, True), err


def test_a_lock_that_cannot_be_read_is_an_error(build: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("images", "templates"):
        subprocess.run(("cp", "-r", ROOT / name, tmp_path), check=True)
    (tmp_path / "images/locks/quickstart/py3.11-amd64.txt").write_text("no lock\n")
    for words in (["diff", "quickstart", "quickstart"], ["sbom", "quickstart"]):
        assert cli.main([*words, "--arch", "amd64"], tmp_path) == 2
        assert "py3.11-amd64.txt" in capsys.readouterr().err


# report.


def test_the_page_of_quickstart(build: Run, tmp_path: Path) -> None:
    file = tmp_path / "q.html"
    code, out, _ = build("report", "quickstart", "--arch", "amd64", "--against", NEW, "--output", file)
    assert (code, out) == (0, f"{file}\n")
    text = file.read_text()
    told = re.search(r"one HTML file of about (\d+) kB", (ROOT / "docs/guides/contents.md").read_text())
    assert told is not None
    assert int(told[1]) * 1000 == pytest.approx(len(text.encode()), rel=0.25)
    assert text.startswith("<!doctype html>")
    for word in ("torch-npu", "Changes since", "vllm-ascend", "</html>"):
        assert word in text
    assert "://" not in text
    again = tmp_path / "again.html"
    assert build("report", "quickstart", "--arch", "amd64", "--against", NEW, "--output", again)[0] == 0
    assert again.read_text() == text


def test_the_page_as_markdown(build: Run) -> None:
    words = ("report", "quickstart", "--arch", "amd64", "--format", "markdown", "--against", "quickstart")
    code, out, _ = build(*words)
    assert code == 0
    assert out.startswith("# quickstart:")
    assert "No difference." in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("quickstar",), 2, "did you mean quickstart?"),
        (("quickstart", "--arch", "amd64", "--against", "missing.json"), 2, "no file 'missing.json'"),
        (("quickstart", "--arch", "amd64", "--output", "/dev/null/x"), 2, "/dev/null: no such folder"),
        (("quickstart", "--pin", "torch-npu==2.14.0"), 3, "cannot be built"),
    ],
)
def test_a_page_that_cannot_be_made(build: Run, words: tuple[str, ...], code: int, said: str) -> None:
    found, _, err = build("report", *words)
    assert (found, said in err) == (code, True), err
