"""What templates/tools does in build stages, with the real uv and tiny sources whose build backend is made up.

The stages' folders are below the test's own; what only an engine shows (mounts, platforms, CANN) is tests/e2e's.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import tarfile
import venv
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

import cannery.assemble.io as installing
from cannery.assemble.content import Content, Place, Tree
from cannery.assemble.io.code import PROGRAM, Worker, code_path, make_code, modules_of_tree
from cannery.assemble.io.layer import write_layer
from cannery.assemble.io.tree import tree_leaves
from cannery.assemble.io.wheel_files import WheelError
from cannery.plan.sources import OverlayFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

TOOLS = Path(__file__).resolve().parent.parent.parent / "templates/tools"
MODULES = ("stage", "hook", "install", "source")
SHARED = Path(installing.__file__).parent
EPOCH = 1_700_000_000
HERE = os.uname().machine
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[HERE]
# A build backend: packs the folder `NAME` of a project, with words of the build's environment in it.
BACKEND = """
import os, sys, zipfile
from pathlib import Path

def pack(target, files, tag):
    name = Path("NAME").read_text().strip()
    version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"] + os.environ.get("LOCAL", "")
    info = f"{name}-{version}.dist-info"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
             f"{info}/WHEEL": f"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: {tag}\\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\\n" for path in (*files, f"{info}/RECORD"))
    wheel = f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(Path(target) / wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel

def tag():
    return os.environ.get("TAG", "py3-none-any")

def build_wheel(target, config_settings=None, metadata_directory=None):
    name = Path("NAME").read_text().strip()
    said = {"python": sys.prefix, "jobs": os.environ.get("MAX_JOBS"), "epoch": os.environ["SOURCE_DATE_EPOCH"]}
    if os.environ.get("STUBBED"):
        import torch
        said["torch"] = str(torch.version.cuda)
    files = {str(path): path.read_text() for path in sorted(Path(name).rglob("*.py"))}
    return pack(target, {**files, f"{name}/said.py": f"SAID = {said!r}\\n"}, tag())

def build_editable(target, config_settings=None, metadata_directory=None):
    name = Path("NAME").read_text().strip()
    Path(f"{name}/ops.so").write_text(f"compiled by {sys.prefix}")
    Path("build").mkdir()
    Path("build/left.o").write_text("")
    return pack(target, {f"__editable__.{name}.pth": f"{Path.cwd()}\\n"}, tag())
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "tinybackend"\n'
PROJECT = {"NAME": "tiny\n", "pyproject.toml": PYPROJECT, "tiny/__init__.py": "one = 1\n"}


class Stages:
    """The modules of templates/tools, with every folder of theirs below `root`."""

    def __init__(self, root: Path, modules: Mapping[str, ModuleType]) -> None:
        self.root = root
        self.stage, self.hook, self.install, self.source = (modules[name] for name in MODULES)

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def site(self) -> Path:
        """Site-packages of the layer that was made."""
        (found,) = (self.root / f"out{self.root}/opt/venv").glob("lib/python3.*/site-packages")
        return found

    def said(self) -> dict[str, str]:
        """What the backend wrote into the installed wheel."""
        names: dict[str, Any] = {}
        exec((self.site / "tiny/said.py").read_text(), names)
        found: dict[str, str] = names["SAID"]
        return found

    def step(self, **changes: object) -> Path:
        value = {"name": "tiny-src", "package": "tiny", "version": "1.2", "install": "wheel", "stubs": []}
        path = self.root / "step.json"
        path.write_text(json.dumps({**value, "native": False, "subdirectory": "", "env": {}, **changes}))
        return path

    def run(self, module: ModuleType, *words: object, machine: str = HERE) -> None:
        platform = "--build" if module is self.install else "--platform"
        common = ["--epoch", str(EPOCH), platform, f"{machine}-manylinux_2_28"]
        argv, sys.argv = sys.argv, [module.__name__, *common, *map(str, words)]
        try:
            module.main()
        finally:
            sys.argv = argv


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    for folder in (SHARED, TOOLS / "common", TOOLS):
        monkeypatch.syspath_prepend(str(folder))
    for name in (*MODULES, "archive"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = {name: importlib.import_module(name) for name in MODULES}
    stage = modules["stage"]
    for name, folder in {"OUT": "out", "VENV": "opt/venv", "TOOLS": "tools"}.items():
        monkeypatch.setattr(stage, name, tmp_path / folder)
    for name, folder in {"BUILD_VENV": "build", "BUILT_WHEELS": "wheels"}.items():
        monkeypatch.setattr(modules["install"], name, tmp_path / folder)
    places = {"TOOLS_PATH": "unpacked", "SOURCES": "opt/src", "PATCHED": "patched", "NPU_SMI": "npu-smi"}
    for name, folder in places.items():
        monkeypatch.setattr(modules["source"], name, tmp_path / folder)
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    venv.EnvBuilder(symlinks=True).create(tmp_path / "opt/venv")
    wheel(tmp_path / "tools", "tinybackend", "1.0", "py3-none-any", {"tinybackend.py": BACKEND})
    return Stages(tmp_path, modules)


def wheel(folder: Path, name: str, version: str, tag: str, files: Mapping[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    every = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    every[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*every, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in every.items():
            archive.writestr(path, text)


def packed(path: Path, files: Mapping[str, str], top: str = "") -> Path:
    """A tree's tar, or with `top` a source distribution (.tar.gz, .zip)."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"{top}{name}", text)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}{name}")
            member.size, member.mode = len(text.encode()), 0o600
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def layer(out: Path) -> dict[str, bytes]:
    """What a layer holds; every file and folder has the mtime of the epoch."""
    every = [out, *out.rglob("*")]
    assert {path.lstat().st_mtime for path in every} == {float(EPOCH)}
    return {str(path.relative_to(out)): path.read_bytes() for path in every if path.is_file()}


@pytest.mark.parametrize("machine", [HERE, OTHER])
def test_a_pure_source_becomes_a_wheel_for_any_target(stages: Stages, tmp_path: Path, machine: str) -> None:
    tar = packed(tmp_path / "tiny.tar", PROJECT)
    stages.run(stages.source, stages.step(stubs=["torch"], env={"STUBBED": "1"}), tar, machine=machine)
    said = stages.said()
    assert said == {"python": str(tmp_path / "build"), "jobs": None, "epoch": str(EPOCH), "torch": "None"}
    assert (stages.site / "tiny/__init__.py").read_text() == "one = 1\n"
    assert not (stages.out / str(tmp_path / "opt/src")[1:]).exists()
    assert layer(stages.out)


@pytest.mark.parametrize("file", ["tiny-1.2.tar.gz", "tiny-1.2.zip"])
def test_a_source_distribution_loses_its_top_folder_and_may_add_a_local_version(
    stages: Stages, tmp_path: Path, file: str
) -> None:
    sdist = packed(tmp_path / file, PROJECT, "tiny-1.2/")
    stages.run(stages.source, stages.step(env={"LOCAL": "+empty"}), sdist)
    assert (stages.site / "tiny-1.2+empty.dist-info/METADATA").is_file()


def test_a_build_sees_no_npu_smi(stages: Stages, tmp_path: Path) -> None:
    (tmp_path / "npu-smi").write_text("fails")
    stages.run(stages.source, stages.step(), packed(tmp_path / "tiny.tar", PROJECT))
    assert not (tmp_path / "npu-smi").exists()


def test_a_tree_that_has_one_folder_keeps_it(stages: Stages, tmp_path: Path) -> None:
    tar = packed(tmp_path / "tiny.tar", {f"python/{name}": text for name, text in PROJECT.items()})
    stages.run(stages.source, stages.step(subdirectory="python"), tar)
    assert (stages.site / "tiny/__init__.py").is_file()


def test_an_editable_source_points_to_its_tree(stages: Stages, tmp_path: Path) -> None:
    stages.run(stages.source, stages.step(install="editable"), packed(tmp_path / "tiny.tar", PROJECT))
    home = tmp_path / "opt/src/tiny-src"
    assert (stages.site / "__editable__.tiny.pth").read_text() == f"{home}\n"
    direct = json.loads((stages.site / "tiny-1.2.dist-info/direct_url.json").read_text())
    assert direct == {"url": home.as_uri(), "dir_info": {"editable": True}}
    assert "tiny-1.2.dist-info/direct_url.json,," in (stages.site / "tiny-1.2.dist-info/RECORD").read_text()
    kept = stages.out / str(home)[1:]
    assert {path.name for path in kept.iterdir()} == {"NAME", "pyproject.toml", "tiny"}
    assert [path.name for path in kept.rglob("*.pyc")] == [f"__init__.{sys.implementation.cache_tag}.pyc"]
    assert (kept / "tiny/__init__.py").stat().st_mode & 0o777 == 0o644


def test_a_tree_is_kept_and_nothing_is_built(stages: Stages, tmp_path: Path) -> None:
    (tmp_path / "tools/tinybackend-1.0-py3-none-any.whl").unlink()
    stages.run(stages.source, stages.step(install="tree"), packed(tmp_path / "tiny.tar", PROJECT))
    assert (stages.out / str(tmp_path / "opt/src/tiny-src/tiny/__init__.py")[1:]).is_file()
    assert not (stages.out / str(tmp_path / "opt/venv")[1:]).exists()


def odd_tree(path: Path) -> Path:
    """A tar with what a build leaves, links, programs, and folders that it does not name."""
    files = {
        "run.sh": 0o755, "tiny/__init__.py": 0o644, "tiny/bad.py": 0o600, "tiny/build/kept.py": 0o644,
        "build/x.py": 0o644, "tiny.egg-info/PKG-INFO": 0o644, "tiny/__pycache__/a.pyc": 0o644, "tiny/old.py": 0o644,
        "build.egg-info": 0o644,
        "tiny-x/y.py": 0o711,
    }  # fmt: skip
    links = {
        "tiny/link.py": "../tiny-x/y.py",
        "tiny/there": "../tiny-x",
        "tiny/lost.py": "none.py",
        "a.py": "tiny/there/y.py",
    }
    with tarfile.open(path, "w") as archive:
        folder = tarfile.TarInfo("empty")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(folder)
        for name, mode in files.items():
            member, text = tarfile.TarInfo(name), b"print 'x'" if "bad" in name else b"old = 1\n"
            member.size, member.mode = len(text), mode
            archive.addfile(member, io.BytesIO(text))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


def test_a_tree_has_the_same_files_whoever_makes_its_layer(stages: Stages, tmp_path: Path) -> None:
    files = [
        patched(stages, "tiny/old.py", "old = 1\n", None),
        patched(stages, "tiny/__init__.py", "old = 1\n", "new = 2\n"),
        patched(stages, "new/run.sh", None, "#!/bin/sh\n", executable=True),
    ]
    tar = odd_tree(tmp_path / "tiny.tar")
    stages.run(stages.source, stages.step(install="tree", patched=files), tar)
    staged = {
        str(path.relative_to(stages.out)): (
            path.lstat().st_mode & 0o777 if not path.is_symlink() else 0o777,
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in stages.out.rglob("*")
    }
    data = {"new = 2\n", "#!/bin/sh\n"}
    by_digest = {sha256(text.encode()).hexdigest(): text.encode() for text in data}
    laid = [OverlayFile(**{**file, "data": by_digest.get(str(file["after"]), b"")}) for file in files]  # type: ignore[arg-type]
    tree = Tree(tar, str(tmp_path / "opt/src/tiny-src"), tuple(laid))
    worker = Worker(lambda: (sys.executable, str(PROGRAM), "1"), os.environ, sys.version)
    modules = modules_of_tree(tree)
    make_code([modules], worker, tmp_path)
    stream = io.BytesIO()
    place = Place(f"{sys.version_info[0]}.{sys.version_info[1]}", EPOCH)
    write_layer(Content(trees=(tree,)), place, [code_path(modules, worker, tmp_path)], stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        made = {
            entry.name: (
                entry.mode,
                entry.linkname if entry.issym() else found.read() if (found := reader(archive, entry)) else None,
            )
            for entry in archive
        }
    staged.pop("opt", None)  # above the tree in an image, but not in this test
    assert made == staged


def reader(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes] | None:
    return archive.extractfile(entry) if entry.isreg() else None


@pytest.mark.parametrize("name", ["../out.py", "a/../../b", "/etc/passwd", "a//b"])
def test_a_tree_with_a_path_outside_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    tar = packed(tmp_path / "tiny.tar", {name: "x"})
    with tarfile.open(tar) as archive, pytest.raises(WheelError, match="not a path below the folder of the source"):
        tree_leaves(Tree(tar, "/opt/src/tiny"), archive)


def test_a_tree_that_is_not_the_patched_one_is_refused(tmp_path: Path) -> None:
    tar = packed(tmp_path / "tiny.tar", PROJECT)
    other = OverlayFile("tiny/__init__.py", "0" * 64, None)
    with tarfile.open(tar) as archive, pytest.raises(WheelError, match="not the file that was patched"):
        tree_leaves(Tree(tar, "/opt/src/tiny", (other,)), archive)


def compiled(stages: Stages, machine: str, **changes: object) -> Path:
    """Run the stage on the target's platform, as that machine; return what it left, in another place."""
    step = stages.step(native=True, env={"TAG": f"py3-none-linux_{machine}"}, **changes)
    stages.run(stages.source, "--compile", step, packed(stages.root / "tiny.tar", PROJECT), machine=machine)
    made = stages.root / "made"
    stages.out.rename(made)
    # The next stage is another container: nothing of this one is there.
    (stages.root / "opt/src/tiny-src").rename(stages.root / "gone")
    return made


@pytest.mark.parametrize("machine", [HERE, OTHER])
def test_what_is_compiled_on_the_target_is_installed_on_the_build_host(
    stages: Stages, tmp_path: Path, machine: str
) -> None:
    made = compiled(stages, machine)
    stages.run(stages.source, "--made", made, stages.step(native=True), machine=machine)
    said = stages.said()
    assert said["python"] == str(tmp_path / "opt/venv"), "the environment that has torch, not the build tools'"
    assert int(said["jobs"]) >= 1
    assert not (tmp_path / "build").exists()


def test_what_is_compiled_in_its_tree_comes_with_the_tree(stages: Stages, tmp_path: Path) -> None:
    made = compiled(stages, OTHER, install="editable")
    stages.run(stages.source, "--made", made, stages.step(native=True, install="editable"), machine=OTHER)
    kept = stages.out / str(tmp_path / "opt/src/tiny-src")[1:]
    assert (kept / "tiny/ops.so").read_text() == f"compiled by {tmp_path / 'opt/venv'}"
    assert not (kept / "build").exists()
    assert (stages.site / "tiny-1.2.dist-info/direct_url.json").is_file()


def test_a_native_build_takes_the_tools_that_it_can_read(
    stages: Stages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(tmp_path / "tools", "mine", "1.0", f"cp311-cp311-manylinux_2_28_{HERE}", {"mine.py": ""})
    wheel(tmp_path / "tools", "other", "1.0", f"cp311-cp311-manylinux_2_28_{OTHER}", {"other.py": ""})
    compiled(stages, HERE)
    assert {path.name for path in (tmp_path / "unpacked").glob("*.py")} == {"mine.py", "tinybackend.py"}
    assert f"other-1.0-cp311-cp311-manylinux_2_28_{OTHER}.whl is not for {HERE}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cores", "free", "limit", "named", "jobs"),
    [
        (64, 200, None, "", 64),
        (64, 15, None, "", 7),
        (64, 200, "max", "", 64),
        (64, 200, str(9 << 30), "", 4),
        (8, 1, None, "", 1),
        (64, 3, "max", "32", 32),
    ],
)
def test_jobs_follow_from_cores_memory_and_max_jobs(
    stages: Stages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    free: int,
    limit: str | None,
    named: str,
    jobs: int,
) -> None:
    texts = {"JOBS": named, "MEMORY": f"MemTotal: 1 kB\nMemAvailable:   {free << 20} kB\n", "LIMIT": limit}
    for name, text in texts.items():
        monkeypatch.setattr(stages.source, name, tmp_path / name)
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert stages.source.jobs() == jobs


def test_commands_run_at_the_top_of_the_tree_ahead_of_the_hook_with_its_environment(
    stages: Stages, tmp_path: Path
) -> None:
    project = {f"python/{name}": text for name, text in PROJECT.items()}
    write = (
        "import os, sys; from pathlib import Path; "
        "Path('python/tiny/made.py').write_text(repr((sys.argv[1:], os.environ['SOC'], sys.prefix)))"
    )
    before = [["{python}", "-c", write, "-j{jobs}", "a b;c"], ["{python}", "-c", "import tinybackend"]]
    step = stages.step(native=True, subdirectory="python", before=before, env={"SOC": "ascend910_9391"})
    stages.run(stages.source, "--compile", step, packed(tmp_path / "tiny.tar", project))
    (made,) = (stages.out / "wheels").glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        told = archive.read("tiny/made.py").decode()
    jobs = stages.source.jobs()
    assert told == repr(([f"-j{jobs}", "a b;c"], "ascend910_9391", str(tmp_path / "opt/venv")))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["{python}", "-c", "raise SystemExit(7)"], 7),
        (["no-such-cmake", "-S", "."], "no-such-cmake is not in this base, and this build runs it"),
    ],
)
def test_a_command_that_fails_or_is_not_there_ends_the_stage_before_the_hook(
    stages: Stages, tmp_path: Path, command: list[str], said: int | str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        stages.run(stages.source, "--compile", stages.step(before=[command]), packed(tmp_path / "tiny.tar", PROJECT))
    assert stopped.value.code == said or str(stopped.value.code).startswith(str(said))
    assert not (stages.out / "wheels").exists()


@pytest.mark.parametrize(("there", "unpacked"), [(False, True), (True, False)])
def test_what_is_compiled_in_is_the_images_own_where_it_has_one(
    stages: Stages, tmp_path: Path, there: bool, unpacked: bool
) -> None:
    wheel(tmp_path / "tools", "pybind11", "3.1.0", "py3-none-any", {"pybind11/__init__.py": ""})
    (site,) = (tmp_path / "opt/venv").glob("lib/python3.*/site-packages")
    if there:
        (site / "pybind11-3.0.1.dist-info").mkdir()
    compiled(stages, HERE)
    assert (tmp_path / "unpacked/pybind11/__init__.py").exists() is unpacked


def test_the_same_source_makes_the_same_layer_twice(stages: Stages, tmp_path: Path) -> None:
    layers = []
    for turn in ("one", "two"):
        made = compiled(stages, HERE, install="editable")
        stages.run(stages.source, "--made", made, stages.step(native=True, install="editable"))
        layers.append(layer(stages.out))
        for path in (made, tmp_path / "gone", tmp_path / "opt/src/tiny-src", tmp_path / "unpacked"):
            path.rename(tmp_path / f"{path.name}-{turn}")
    assert layers[0] == layers[1]


def group(stages: Stages, monkeypatch: pytest.MonkeyPatch, tag: str) -> tuple[Path, Path]:
    """A group of one source distribution, which is built with `tag`; its file and its folder."""
    monkeypatch.setenv("TAG", tag)
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION", "1.2")
    sdists = stages.root / "sdists"
    sdists.mkdir()
    sdist = packed(sdists / "tiny-1.2.tar.gz", PROJECT, "tiny-1.2/")
    file = stages.root / "built.txt"
    file.write_text(f"tiny==1.2 --hash=sha256:{sha256(sdist.read_bytes()).hexdigest()}\n")
    return file, sdists


@pytest.mark.parametrize(("tag", "machine"), [("py3-none-any", OTHER), (f"py3-none-linux_{HERE}", HERE)])
def test_a_locked_source_distribution_is_built_where_it_fits(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, tag: str, machine: str
) -> None:
    file, sdists = group(stages, monkeypatch, tag)
    stages.run(stages.install, "--wheels", sdists, file, machine=machine)
    assert (stages.site / "tiny/said.py").is_file()


def test_what_was_compiled_for_the_build_host_is_refused_for_another_arch(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, sdists = group(stages, monkeypatch, f"py3-none-linux_{HERE}")
    with pytest.raises(SystemExit) as stopped:
        stages.run(stages.install, "--wheels", sdists, file, machine=OTHER)
    said = str(stopped.value)
    assert said.startswith(f"compiled on {HERE}, and so of no use on the target, which is {OTHER}: tiny-1.2-")
    assert f"Build on a machine that is {OTHER}" in said
    assert not stages.out.exists()


def test_a_source_that_compiles_unexpectedly_is_refused_too(stages: Stages, tmp_path: Path) -> None:
    step = stages.step(env={"TAG": f"py3-none-linux_{HERE}"})
    with pytest.raises(SystemExit, match="`kind: native`"):
        stages.run(stages.source, step, packed(tmp_path / "tiny.tar", PROJECT), machine=OTHER)


def test_a_file_of_another_hash_is_refused_by_name(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    file, sdists = group(stages, monkeypatch, "py3-none-any")
    with (sdists / "tiny-1.2.tar.gz").open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(SystemExit, match=r"tiny==1\.2: no file with the locked hash"):
        stages.run(stages.install, "--wheels", sdists, file)


@pytest.mark.parametrize("words", [("--compile",), ()])
def test_a_build_that_fails_ends_the_stage_with_its_code(
    stages: Stages, tmp_path: Path, words: tuple[str, ...]
) -> None:
    tar = packed(tmp_path / "tiny.tar", {**PROJECT, "pyproject.toml": PYPROJECT.replace("tinybackend", "none_such")})
    with pytest.raises(SystemExit) as stopped:
        stages.run(stages.source, *words, stages.step(install="editable"), tar)
    assert stopped.value.code == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, ("setuptools.build_meta:__legacy__", [])),
        ("[project]\n", ("setuptools.build_meta:__legacy__", [])),
        ("[build-system]\nbuild-backend = 'a.b:c'\n", ("a.b:c", [])),
        ('[build-system]\nbuild-backend = "own"\nbackend-path = [".", "tools"]\n', ("own", [".", "tools"])),
    ],
)
def test_the_backend_is_the_one_that_the_project_names(
    stages: Stages, tmp_path: Path, text: str | None, found: tuple[str, list[str]]
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert stages.hook.backend_of(tmp_path) == found


def test_a_backend_of_the_projects_own_is_found_by_its_path(stages: Stages, tmp_path: Path) -> None:
    (tmp_path / "tools/tinybackend-1.0-py3-none-any.whl").unlink()
    own = {**PROJECT, "pyproject.toml": PYPROJECT + 'backend-path = ["mine"]\n', "mine/tinybackend.py": BACKEND}
    stages.run(stages.source, "--compile", stages.step(native=True), packed(tmp_path / "tiny.tar", own))
    assert [path.name for path in (stages.out / "wheels").iterdir()] == ["tiny-1.2-py3-none-any.whl"]


def patched(stages: Stages, path: str, before: str | None, after: str | None, **more: object) -> dict[str, object]:
    """A file of a step that is laid over the tree; its content stands where the stage mounts it."""
    if after is not None:
        folder = stages.root / "patched"
        folder.mkdir(exist_ok=True)
        (folder / sha256(after.encode()).hexdigest()).write_text(after)
    digests = [text if text is None else sha256(text.encode()).hexdigest() for text in (before, after)]
    return {"path": path, "before": digests[0], "after": digests[1], "executable": False, "installed": None, **more}


def test_patched_files_are_laid_over_the_tree_before_it_is_built(stages: Stages, tmp_path: Path) -> None:
    files = [
        patched(stages, "tiny/__init__.py", "one = 1\n", "one = 2\n", installed="tiny/__init__.py"),
        patched(stages, "tiny/new.py", None, "new = 1\n", installed="tiny/new.py"),
        patched(stages, "run.sh", None, "#!/bin/sh\n", executable=True),
        patched(stages, "tiny/old.py", "old = 1\n", None, installed="tiny/old.py"),
    ]
    tar = packed(tmp_path / "tiny.tar", {**PROJECT, "tiny/old.py": "old = 1\n"})
    stages.run(stages.source, stages.step(patched=files), tar)
    assert (stages.site / "tiny/__init__.py").read_text() == "one = 2\n"
    assert (stages.site / "tiny/new.py").read_text() == "new = 1\n"
    assert not (stages.site / "tiny/old.py").exists()
    assert (tmp_path / "opt/src/tiny-src/run.sh").stat().st_mode & 0o777 == 0o755


def test_patched_tree_of_an_editable_source_is_compiled_as_patched(stages: Stages, tmp_path: Path) -> None:
    files = [patched(stages, "tiny/__init__.py", "one = 1\n", "one = 2\n")]
    stages.run(stages.source, stages.step(install="editable", patched=files), packed(tmp_path / "tiny.tar", PROJECT))
    kept = stages.out / str(tmp_path / "opt/src/tiny-src/tiny")[1:]
    (pyc,) = kept.rglob("*.pyc")
    assert (kept / "__init__.py").read_text() == "one = 2\n"
    assert pyc.read_bytes()[8:16] == importlib.util.source_hash(b"one = 2\n")


def test_native_build_compiles_the_patched_tree(stages: Stages, tmp_path: Path) -> None:
    files = [patched(stages, "tiny/__init__.py", "one = 1\n", "one = 2\n", installed="tiny/__init__.py")]
    made = compiled(stages, HERE, patched=files)
    stages.run(stages.source, "--made", made, stages.step(native=True, patched=files))
    assert (stages.site / "tiny/__init__.py").read_text() == "one = 2\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": "0" * 64}, "tiny/__init__.py is not the file that was patched"),
        ({"installed": "tiny/other.py"}, "tiny/other.py is not as patched once it is installed"),
    ],
)
def test_tree_or_wheel_that_is_another_ends_the_stage(
    stages: Stages, tmp_path: Path, change: dict[str, str], words: str
) -> None:
    files = [{**patched(stages, "tiny/__init__.py", "one = 1\n", "one = 2\n", installed="tiny/__init__.py"), **change}]
    with pytest.raises(SystemExit, match=words):
        stages.run(stages.source, stages.step(patched=files), packed(tmp_path / "tiny.tar", PROJECT))
