"""`new` and `facts`: the next stack by commands; what they write locks and checks."""

from __future__ import annotations

import io
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
import urllib3
import yaml
from checkouts import FROZEN
from small_checkout import LATER, STACK, Small, make_small
from stub_index import StubIndex, make_wheel
from stub_registry import TAG, StubRegistry

from cannery.authoring.base_line import Made, make_line, odd_tags
from cannery.authoring.facts import version_of, with_entry
from cannery.authoring.io import facts as reading
from cannery.catalog.io.read import load_catalog
from cannery.errors import ExitCode, NetworkError, UsageError
from cannery.lock.io.indexes import Listed, Place
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = """\
# A source of these tests.
kind: source
summary: made up
package: engine
hosts: {github: own/engine}
install: wheel
# What is known.
releases:  # of the index
  # the first
  "1.0":
    sdist: true
    requires: [dep]
    requires_from: [requirements/common.txt]
    source: made up
revisions: {}
"""
SDIST = {
    "PKG-INFO": "Metadata-Version: 2.2\nName: engine\nVersion: 2.0\nRequires-Python: >=3.10\nRequires-Dist: cuda\n",
    "pyproject.toml": '[build-system]\nrequires = ["setuptools>=61"]\n',
    "requirements/common.txt": "# what it asks for\nDep>=1.0  # a comment\nlib; python_version < '3.11'\n",
}


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def sdist(name: str, version: str, texts: dict[str, str]) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in texts.items():
            info = tarfile.TarInfo(f"{name}-{version}/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", buffer.getvalue()


def component(small: Small, name: str, text: str = SOURCE) -> Path:
    path = small.root / f"images/components/{name}.yaml"
    path.write_text(text)
    return path


# new


def test_a_new_profile_keeps_comments_locks_and_checks(small: Small) -> None:
    done = small("new", "mine", "--like", "stack", "--summary", "my own: stack")
    assert done.code == ExitCode.DONE, done.err
    assert small.profile("mine").read_text() == STACK.replace("summary: made up", 'summary: "my own: stack"')
    assert small("lock", "mine").code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.DONE


def test_a_new_profile_goes_into_the_own_catalog(small: Small, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    before = small.files()
    assert small("new", "mine", "--like", "stack", "--catalog", "own").code == ExitCode.DONE
    assert small.files() == before
    text = (tmp_path / "own/profiles/mine.yaml").read_text()
    assert yaml.safe_load(text)["summary"] == "like stack: made up"
    # One like a profile of the own catalog, and one that extends.
    (tmp_path / "own/profiles/two.yaml").write_text("extends: stack\n")
    assert small("new", "three", "--like", "two", "--catalog", "own").code == ExitCode.DONE
    assert "extends: stack" in (tmp_path / "own/profiles/three.yaml").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("stack", "--like", "stack"),
        ("Mine", "--like", "stack"),
        ("../mine", "--like", "stack"),
        ("mine", "--like", "no"),
    ],
)
def test_a_profile_that_cannot_be_made(small: Small, words: tuple[str, ...]) -> None:
    before = small.files()
    assert small("new", *words).code == ExitCode.USAGE
    assert small.files() == before


# facts


def test_a_release_is_read_where_the_known_one_was(small: Small) -> None:
    path = component(small, "engine")
    small.index.add(sdist("engine", "2.0", SDIST), uploaded=LATER)
    done = small("facts", "engine==2.0")
    assert done.code == ExitCode.DONE, done.err
    new = yaml.safe_load(path.read_text())["releases"]
    assert new["2.0"] | {"source": ""} == {
        "sdist": True,
        "requires": ["dep>=1.0", 'lib; python_version < "3.11"'],
        "requires_from": ["requirements/common.txt"],
        "requires_python": ">=3.10",
        "build_requires": ["setuptools>=61"],
        "date": LATER[:10],
        "source": "",
    }
    assert "sha256" in new["2.0"]["source"]
    assert "read 2026-08-01" in new["2.0"]["source"]
    # Every line that was there is there, in its order.
    left = iter(path.read_text().splitlines())
    assert all(line in left for line in SOURCE.splitlines())
    text = path.read_text()
    assert small("facts", "engine==2.0").code == ExitCode.DONE
    assert path.read_text() == text, "what is known is not written twice"
    profile = small.profile("mine")
    profile.write_text("extends: stack\nexclude_newer: '2026-07-20'\ncomponents: [{name: engine, release: '2.0'}]\n")
    assert small("lock", "mine").code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.DONE


def test_print_writes_nothing(small: Small) -> None:
    path = component(small, "engine")
    small.index.add(sdist("engine", "2.0", SDIST))
    done = small("facts", "engine==2.0", "--print")
    assert yaml.safe_load(done.out)["2.0"]["requires"][0] == "dep>=1.0"
    assert ".tar.gz  sha256 " in done.err
    assert path.read_text() == SOURCE


def test_a_release_made_of_wheels_is_read_from_metadata(small: Small) -> None:
    path = component(
        small,
        "engine",
        SOURCE.replace("    sdist: true\n", "")
        .replace("requires_from", "note")
        .replace("[requirements/common.txt]", "n"),
    )
    small.index.add(
        make_wheel("engine", "3.0", ["dep<9", "tool; extra == 'all'"], requires_python=">=3.9", payload=b"x" * 99_000)
    )
    assert small("facts", "engine==3.0").code == ExitCode.DONE
    found = yaml.safe_load(path.read_text())["releases"]["3.0"]
    assert (found["requires"], found["requires_python"], "sdist" in found) == (["dep<9"], ">=3.9", False)


def test_a_package_of_an_index_gets_metadata(small: Small) -> None:
    path = component(small, "bound", "kind: wheels\nsummary: made up\nindex: elsewhere\n")
    small.index.add(make_wheel("bound", "1.0", ["dep", "nvidia-thing"]))
    assert small("facts", "bound==1.0", "--without", "nvidia-*").code == ExitCode.DONE
    found = yaml.safe_load(path.read_text())["metadata"]["1.0"]
    assert found["requires"] == ["dep"]
    assert "without nvidia-*" in found["source"]
    assert load_catalog(small.root / "images").problems == ()


def test_a_package_without_a_component_gets_one(small: Small) -> None:
    assert small("facts", "dep==1.0").code == ExitCode.DONE
    assert load_catalog(small.root / "images").components["dep"].kind == "wheels"
    assert small("facts", "lib==1.0").code == ExitCode.DONE  # wheels of the default index: nothing to write


@pytest.fixture
def mirror(tmp_path: Path) -> tuple[Path, str]:
    """A mirror with a repository of two commits and a submodule; the last commit."""
    work = tmp_path / "mirror/own/engine"
    work.mkdir(parents=True)

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *words], cwd=work, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    (work / "requirements.txt").write_text("dep>=1\n")
    (work / "pyproject.toml").write_text(
        '[project]\nname = "engine"\ndynamic = ["version", "dependencies"]\nrequires-python = ">=3.10"\n'
        '[tool.setuptools.dynamic]\nversion = {file = "engine/version/version"}\n'
        'dependencies = {file = "requirements.txt"}\n'
    )
    (work / "engine/version").mkdir(parents=True)
    (work / "engine/version/version").write_text("4.0.dev0\n")
    (work / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = https://git.example/other/sub.git\n')
    git("add", "-A")
    git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},sub")
    git("commit", "-q", "-m", "one")
    return tmp_path / "mirror", git("rev-parse", "HEAD")


def test_a_commit_is_read_from_the_mirror(small: Small, mirror: tuple[Path, str]) -> None:
    path = component(small, "engine", SOURCE.replace("revisions: {}\n", ""))
    folder, commit = mirror
    done = small("facts", f"engine=={commit}", "--git-mirror", str(folder), "--from", "requirements.txt")
    assert done.code == ExitCode.DONE, done.err
    found = yaml.safe_load(path.read_text())["revisions"][commit]
    assert (found["version"], found["requires"], found["requires_python"]) == ("4.0.dev0", ["dep>=1"], ">=3.10")
    assert found["submodules"] == {"sub": {"repository": "other/sub", "commit": "2" * 40}}
    assert commit in found["source"]
    small.profile("mine").write_text(f"extends: stack\ncomponents: [{{name: engine, commit: {commit}}}]\n")
    assert small("lock", "mine").code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.DONE


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("engine",), ExitCode.USAGE),
        (("engine==",), ExitCode.USAGE),
        (("engine==abcdef",), ExitCode.USAGE),
        ((f"pip=={'1' * 40}",), ExitCode.USAGE),
        ((f"nothere=={'1' * 40}",), ExitCode.USAGE),
        (("engine==9.9",), ExitCode.NETWORK),
        (("engine==2.0", "--from", "nothere.txt"), ExitCode.USAGE),
    ],
)
def test_facts_that_cannot_be_had(small: Small, words: tuple[str, ...], code: ExitCode) -> None:
    path = component(small, "engine")
    small.index.add(sdist("engine", "2.0", SDIST))
    assert small("facts", *words).code == code
    assert path.read_text() == SOURCE


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_facts_of_a_source_distribution_that_is_cut_off(small: Small, part: float) -> None:
    path = component(small, "engine")
    name, content = sdist("engine", "2.0", SDIST | {"data.txt": "".join(map(str, range(9000)))})
    small.index.add((name, content[: int(len(content) * part)]))
    done = small("facts", "engine==2.0")
    assert done.code == ExitCode.NETWORK
    assert f"{name} cannot be read" in done.err
    assert path.read_text() == SOURCE


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"pyproject.toml": '[project]\nversion = "1.2"\n'}, "1.2"),
        ({"setup.py": "from setuptools import setup\nsetup(name='a', version='1.3')\n"}, "1.3"),
        ({"setup.py": "setup(version=read())", "engine/version.py": "__version__ = '1.4'\n"}, "1.4"),
        ({"version.txt": "1.5\n"}, "1.5"),
        ({"setup.py": "setup(version=read()"}, ""),
        ({}, ""),
    ],
)
def test_a_version_that_is_plain_text(files: dict[str, str], version: str) -> None:
    assert version_of(files) == version


def test_a_file_in_flow_style_is_not_edited() -> None:
    text = "kind: source\nreleases: {'1.0': {requires: [], source: s}}\n"
    with pytest.raises(UsageError) as caught:
        with_entry(text, "releases", "2.0", {"requires": [], "source": "s"}, "f")
    assert '"2.0":' in caught.value.hint


# base add

ENV = {
    "PATH": "/usr/local/Ascend/cann-8.6.0/bin:/usr/local/python3.11.14/bin:/usr/bin:/bin",
    "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/cann-8.6.0",
    "ATB_HOME_PATH": "/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_1",
    "QUOTED": "a b",
}
NEW_TAGS = ("8.6.0-910b-ubuntu22.04-py3.11", "8.6.0-a3-ubuntu22.04-py3.11")


def publish(stub: StubRegistry, tags: tuple[str, ...], env: dict[str, str]) -> str:
    digest = stub.add(config={"Env": [f"{name}={value}" for name, value in env.items()]})
    for tag in tags:
        stub.manifests[tag] = stub.manifests[TAG]
        stub.tags.append(tag)
    return digest


def test_a_line_from_a_registry_locks_and_checks(small: Small) -> None:
    with StubRegistry() as stub:
        digest = publish(stub, NEW_TAGS, ENV)
        stub.tags += ["8.5.0-910b-ubuntu22.04-py3.11", "8.6.0-latest", "8.6.0-devel"]
        done = small("base", "add", "8.6.0", f"{stub.repository}:{NEW_TAGS[0]}")
    assert done.code == ExitCode.DONE, done.err
    line = load_catalog(small.root / "images").bases["8.6.0"]
    assert {tag: (one.python, one.atb_abi) for tag, one in line.tags.items()} == dict.fromkeys(NEW_TAGS, ("3.11.14", 1))
    assert line.env["ubuntu22.04"] == (
        "PATH=/usr/local/Ascend/cann-8.6.0/bin:{python_home}/bin:/usr/bin:/bin",
        "ASCEND_TOOLKIT_HOME=/usr/local/Ascend/cann-8.6.0",
        "ATB_HOME_PATH=/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_{atb_abi}",
        "QUOTED=a b",
    )
    assert digest in line.source
    assert "read 2026-08-01" in line.source
    assert line.version_files[0].path == "/usr/local/Ascend/cann-8.6.0/{machine}-linux/ascend_toolkit_install.info"
    for package in line.python_packages:
        small.index.add(make_wheel(package, "1.0"))
    # Nothing is known of what fits this CANN: the rows are the table's.
    small.profile("mine").write_text("extends: stack\ntarget: {cann: '8.6.0'}\nwithout: [torch-npu]\n")
    assert small("lock", "mine").code == ExitCode.DONE
    assert small("check", "mine").code == ExitCode.DONE
    assert small("base", "add", "8.6.0", "elsewhere/cann:8.6.0-910b-ubuntu22.04-py3.11").code == ExitCode.USAGE


def test_a_line_from_a_checkout(small: Small, tmp_path: Path) -> None:
    for tag, python in (
        ("8.6.0-910b-openeuler24.03-py3.11", "3.11.14"),
        ("8.6.0-910b-openeuler24.03-py3.10", "3.10.20"),
    ):
        folder = tmp_path / "repository/cann" / tag
        folder.mkdir(parents=True)
        (folder / "Dockerfile").write_text(
            f"FROM a AS one\nENV LEFT=out\nFROM b\nENV PATH=/usr/local/python{python}/bin:${{PATH}}\n"
            "ENV ASCEND_TOOLKIT_HOME=/usr/local/Ascend/cann-8.6.0\nENV PATH=${ASCEND_TOOLKIT_HOME}/bin:$PATH\n"
            'ENTRYPOINT ["/bin/bash", "-c", "\\\n  source /usr/local/Ascend/a/set_env.sh && \\\n'
            '  source /usr/local/Ascend/b/set_env.sh --cxx_abi=1 && \\\n  exec \\"$@\\"", "--"]\n'
        )
    done = small("base", "add", "8.6.0", str(tmp_path / "repository"))
    assert done.code == ExitCode.DONE, done.err
    line = load_catalog(small.root / "images").bases["8.6.0"]
    assert line.set_env == ("/usr/local/Ascend/a/set_env.sh", "/usr/local/Ascend/b/set_env.sh --cxx_abi=1")
    assert line.env["openeuler24.03"] == (
        "PATH={python_home}/bin:${PATH}",
        "ASCEND_TOOLKIT_HOME=/usr/local/Ascend/cann-8.6.0",
        "PATH=${ASCEND_TOOLKIT_HOME}/bin:$PATH",
    )
    assert {one.python for one in line.tags.values()} == {"3.11.14", "3.10.20"}


@pytest.mark.parametrize("env", [{}, {"PATH": "/usr/bin", "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend"}])
def test_an_image_that_is_none_of_cann(small: Small, env: dict[str, str]) -> None:
    with StubRegistry() as stub:
        publish(stub, NEW_TAGS[:1], env)
        assert small("base", "add", "8.6.0", f"{stub.repository}:{NEW_TAGS[0]}").code == ExitCode.USAGE
        assert small("base", "add", "8.7.0", f"{stub.repository}:{NEW_TAGS[0]}").code == ExitCode.USAGE
        assert small("base", "add", "8.6.0", f"{stub.repository}:8.6.0-latest").code == ExitCode.USAGE
        assert small("base", "add", "8.6.0", f"{stub.host}/no/cann:{NEW_TAGS[0]}").code == ExitCode.NETWORK
    assert small("base", "add", "8.5.0", "a/cann:8.5.0-910b-ubuntu22.04-py3.11").code == ExitCode.USAGE
    assert small("base", "add", "tomorrow", str(small.root)).code == ExitCode.USAGE
    assert small("base", "add", "8.6.0", str(small.root)).code == ExitCode.USAGE
    assert not (small.root / "images/bases/8.6.0.yaml").exists()


def test_the_nearest_line_is_the_last_older_one() -> None:
    known = load_catalog(FROZEN).bases
    image = {NEW_TAGS[0]: Made(tuple(ENV.items()))}
    assert make_line("8.6.0", image, known, "s")["source"].endswith(f"as CANN {max(known)}")
    odd = {**image, NEW_TAGS[1]: Made((*ENV.items(), ("MORE", "1")))}
    assert odd_tags(odd) == (NEW_TAGS[1],)


def test_a_download_that_breaks_off_is_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise urllib3.exceptions.ProtocolError("Connection broken: IncompleteRead(9 bytes read)")

    monkeypatch.setattr(reading, "_wheel_metadata", broken)
    place = Place("default", "https://a.example/simple", "https://a.example/simple")
    name = "demo-1.0-py3-none-any.whl"
    wheel = Listed("demo", "1.0", name, f"https://a.example/{name}", "", 0, place)
    with pytest.raises(NetworkError, match=f"{name} cannot be read: .*Connection broken"):
        reading.release_tree(PipSettings(), [wheel], sdist=False)
