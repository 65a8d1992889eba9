"""The static checks of the verify script: a made-up image passes, and each broken fact fails exactly its own check."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from data.verify_tree import ASCEND, JEMALLOC, MINOR, SAYS, TOOLKIT, Tree, elf

from verifying import access
from verifying.checks import CHECKS, check_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIB = f"/opt/venv/lib/python{MINOR}/site-packages"
TAG = sys.implementation.cache_tag


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(access, "PRIVATE", "/no-such-home/")  # the interpreter of the tests may live below /root
    (tmp_path / "image").mkdir()
    return Tree(tmp_path / "image")


def test_a_whole_image_passes_each_check(tree: Tree) -> None:
    names = [name for name in check_ids(tree.manifest) if name.startswith("static.")]
    assert {name: tree.check(name).status for name in names} == dict.fromkeys(names, "passed")


@dataclass(frozen=True)
class Case:
    name: str
    check: str
    says: str  # part of the message or of a detail
    broken: Callable[[Tree], object]


def sha(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def patched(after: str, text: str = "x = 2\n") -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        path = f"{tree.site_name}/demo/part.py"
        tree.write(path, text)
        files = [{"path": path, "before": sha("x = 1\n"), "after": sha(after)}]
        tree.manifest["patches"].append({"name": "fix", "digest": sha("p"), "component": "demo", "files": files})

    return do


def extra_library(name: str, data: bytes) -> Callable[[Tree], object]:
    return lambda tree: tree.add(f"demo/{name}", data)


def compiled(name: str, source: str) -> Callable[[Tree], object]:
    """Writes demo/__pycache__/NAME, which states the hash of a source that Python compares."""
    head = importlib.util.MAGIC_NUMBER + struct.pack("<I", 3) + importlib.util.source_hash(source.encode())
    return lambda tree: tree.write(f"{tree.site_name}/demo/__pycache__/{name}", head + b"code")


def program(mode: int) -> Callable[[Tree], object]:
    return lambda tree: (tree.add("../../../bin/demo", "#!/bin/sh\n"), (tree.root / "opt/venv/bin/demo").chmod(mode))


def strange(*names: str) -> Callable[[Tree], object]:
    return lambda tree: [tree.write(f"{tree.site_name}/{name}") for name in names]


def second_dist_info(tree: Tree) -> None:
    tree.write(f"{tree.site_name}/Demo-0.9.dist-info/METADATA", "Name: Demo\nVersion: 0.9\n")


def unset(name: str) -> Callable[[Tree], object]:
    return lambda tree: tree.env.pop(name)


def edit(path: str, old: str, new: str) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        file = tree.root / path.lstrip("/").replace("SITE", tree.site_name.lstrip("/"))
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return do


def wrote(path: str, text: str) -> Callable[[Tree], object]:
    return lambda tree: tree.write(path, text)


# Settings that turn verification off, in the files where tools read them.
UNVERIFIED = (
    ("/etc/apt/apt.conf.d/99x", 'Acquire::https::Verify-Peer "false";\n'),
    ("/etc/apt/apt.conf", "Acquire { https { Verify-Host off; }; };\n"),
    ("/etc/apt/apt.conf.d/x", 'APT::Get::AllowUnauthenticated "true";\n'),
    ("/etc/apt/apt.conf.d/y", "Acquire::AllowInsecureRepositories 1;\n"),
    ("/etc/apt/sources.list", "deb [arch=amd64 trusted=yes] http://mirror.example x main\n"),
    ("/etc/apt/sources.list.d/x.sources", "Types: deb\nTrusted: yes\n"),
    ("/etc/dnf/dnf.conf", "[main]\nsslverify=0\n"),
    ("/etc/gitconfig", "[http]\n\tsslVerify = false\n"),
    ("/root/.gitconfig", '[http "https://x"]\n  sslverify=off\n'),
    ("/root/.curlrc", "# mine\ninsecure\n"),
    ("/root/.curlrc", "-k\n"),
    ("/etc/wgetrc", "check_certificate = off\n"),
    ("/root/.npmrc", "strict-ssl=false\n"),
)
# The same files, with verification on or the setting in a comment.
VERIFIED = (
    ("/etc/apt/apt.conf.d/99x", 'Acquire::https::Verify-Peer "true";\n// Verify-Peer "false";\n'),
    ("/etc/apt/sources.list", "deb [arch=amd64 signed-by=/x] http://a b c\n# deb [trusted=yes] http://a b c\n"),
    ("/etc/gitconfig", "[http]\n\tsslVerify = true\n# sslVerify = false\n"),
    ("/root/.curlrc", "keepalive-time = 3\n# insecure\n"),
    ("/etc/wgetrc", "#check_certificate = off\ncheck_certificate = on\n"),
)


def add_env(name: str, value: str, seen: str | None = None) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        tree.manifest["env"][name] = value
        tree.env[name] = value if seen is None else seen
        tree.first()

    return do


def both_triton(tree: Tree) -> None:
    tree.install("triton", "3.2.0", {"triton/a.py": ""}, listed=False)
    tree.install("triton-ascend", "3.2.0", {"triton/b.py": ""})


def atb(tree: Tree) -> None:
    home = f"{ASCEND}/nnal/atb/latest/atb"
    add_env("ATB_HOME_PATH", f"{home}/cxx_abi_1")(tree)
    tree.first(ATB_HOME_PATH=f"{home}/cxx_abi_0")


def with_user(at: str = "/home/me", **changes: object) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        users = (tree.root / "etc/passwd").read_text()
        tree.write("/etc/passwd", f"{users}me:x:1000:1000::{at}:/bin/sh\n")
        tree.write("/home/me/.profile")
        tree.manifest["user"] = {"uid": 1000, "name": "me", "gid": 1000, "home": "/home/me", **changes}

    return do


def calls(name: str, mode: int | None = None) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        tree.env["PATH"] += ":/usr/cc"
        tree.first()
        tree.manifest["checks"]["programs"] = [name]
        if mode is not None:
            tree.write(f"/usr/cc/{name}", "#!/bin/sh\n", mode)

    return do


def cache_at(path: str) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        tree.env["MY_CACHE"] = path
        tree.manifest["checks"]["writable"] = ["MY_CACHE", "UNSET_CACHE"]

    return do


def working_folder(*files: str) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        tree.cwd = str(tree.root / "workspace")
        for file in files:
            tree.write(f"/workspace/{file}")

    return do


def empty_folder(tree: Tree) -> None:
    tree.cwd = str(tree.root / "workspace")
    (tree.root / "workspace/demo").mkdir(parents=True)


def python_path(tree: Tree) -> None:
    tree.write("/opt/old/demo/__init__.py")
    tree.env["PYTHONPATH"] = str(tree.root / "opt/old")


def behind(tree: Tree) -> None:
    tree.write("/opt/old/demo/__init__.py")
    tree.add("old.pth", str(tree.root / "opt/old"))


SCRIPT = f"{ASCEND}/ascend-toolkit/set_env.sh"

CASES = [
    Case(
        "unknown skip", "static.manifest", "nearest: npu.tensor", lambda t: t.manifest["may_skip"].append("npu.tensors")
    ),
    Case("other minor", "static.python", "the target is 3.9", lambda t: t.manifest["target"].update(python="3.9")),
    Case("open venv", "static.python", "pyvenv.cfg lets", edit("/opt/venv/pyvenv.cfg", "= false", "= true")),
    Case(
        "other home",
        "static.python",
        "the manifest says /usr/local",
        lambda t: t.manifest["base"].update(python_home="/usr/local"),
    ),
    Case(
        "nnal",
        "static.base",
        "nnal 8.2.rc1 (/usr",
        edit(f"{ASCEND}/nnal/atb/latest/version.info", "8.3.RC1", "8.2.RC1"),
    ),
    Case(
        "nnal, both versions and paths",
        "static.base",
        f"parts of CANN differ: toolkit 8.3.rc1 ({TOOLKIT}/version.cfg); nnal 8.2.rc1 "
        f"({ASCEND}/nnal/atb/latest/version.info)",
        edit(f"{ASCEND}/nnal/atb/latest/version.info", "8.3.RC1", "8.2.RC1"),
    ),
    Case("toolkit", "static.base", "toolkit is 8.1.rc1", edit(f"{TOOLKIT}/version.cfg", "8.3.RC1", "8.1.RC1")),
    Case("no version", "static.base", "states no CANN version", edit(f"{TOOLKIT}/version.cfg", "8.3.RC1", "unknown")),
    Case(
        "no file", "static.base", "does not exist", lambda t: (t.root / f"{TOOLKIT}/version.cfg".lstrip("/")).unlink()
    ),
    Case(
        "no set_env",
        "static.base",
        "set_env.sh does not exist",
        lambda t: (t.root / f"{ASCEND}/ascend-toolkit/set_env.sh"[1:]).unlink(),
    ),
    Case(
        "no set_env with an argument",
        "static.base",
        "/gone/set_env.sh does not exist",
        lambda t: t.manifest["base"].update(set_env=["/gone/set_env.sh --cxx_abi=${ATB_CXX_ABI:-1}"]),
    ),
    Case(
        "version",
        "static.wheels",
        "demo is 1.0, the manifest says 1.1",
        lambda t: t.manifest["wheels"][-1].update(version="1.1"),
    ),
    Case(
        "absent",
        "static.wheels",
        "gone 1.0 is not installed",
        lambda t: t.manifest["wheels"].append({**t.manifest["wheels"][-1], "name": "gone"}),
    ),
    Case(
        "stranger",
        "static.wheels",
        "stray 3.0 is not in the manifest",
        lambda t: t.install("stray", "3.0", {}, listed=False),
    ),
    Case("two dist-infos", "static.wheels", "demo is installed 2 times", second_dist_info),
    Case("size", "static.files", "demo: reinstalled or overwritten", edit("/SITE/demo/part.py", "x = 1", "x = 10")),
    Case("content", "static.files", "part.py has other content", edit("/SITE/demo/part.py", "x = 1", "x = 7")),
    Case("lost", "static.files", "part.py is missing", lambda t: (t.site / "demo/part.py").unlink()),
    Case("no RECORD", "static.files", "demo: has no RECORD", lambda t: (t.site / "demo-1.0.dist-info/RECORD").unlink()),
    Case(
        "listed file",
        "static.files",
        "other content than the manifest",
        lambda t: t.manifest["checks"]["files"].append({"path": "/etc/passwd", "sha256": sha("x")}),
    ),
    Case(
        "lost listed file",
        "static.files",
        "/etc/none does not exist",
        lambda t: t.manifest["checks"]["files"].append({"path": "/etc/none", "sha256": None}),
    ),
    Case("stray pth", "static.files", f"1 file is in no RECORD: {LIB}/a.pth", strange("a.pth")),
    Case("site start", "static.files", "sitecustomize.py, ", strange("sitecustomize.py", "usercustomize.py")),
    Case("stray module", "static.files", "/demo/more.py", strange("demo/more.py")),
    Case("stray library", "static.files", "/x.txt", lambda t: (t.site / "x.txt").symlink_to("/etc/passwd")),
    Case(
        "stray package, its top first",
        "static.files",
        f"7 files are in no RECORD: {LIB}/z.pth, {LIB}/a/0.py, {LIB}/a/1.py, {LIB}/a/2.py, {LIB}/a/3.py and 2 more",
        strange("z.pth", *(f"a/{at}.py" for at in range(6))),
    ),
    Case("stray in a dist-info", "static.files", "entry_points.txt", strange("demo-1.0.dist-info/entry_points.txt")),
    Case("pyc without source", "static.files", "gone.cpython-311.pyc", compiled("gone.cpython-311.pyc", "")),
    Case("pyc of a strange source", "static.files", "2 files are", strange("b.py", "__pycache__/b.cpython-312.pyc")),
    Case("stray pyc beside the source", "static.files", "part.pyc", strange("demo/part.pyc")),
    Case("not executable", "static.files", "bin/demo cannot be executed (mode 0644)", program(0o644)),
    Case("not executable for all", "static.files", "(mode 0754)", program(0o754)),
    Case("not patched", "static.patches", "is not patched", patched("x = 2\n", "x = 1\n")),
    Case("other patch", "static.patches", "neither the patched nor", patched("x = 2\n", "x = 3\n")),
    Case("unset", "static.env", "CANNERY is not set", unset("CANNERY")),
    Case("other value", "static.env", 'CANNERY is "2"', lambda t: t.env.update(CANNERY="2")),
    Case("login shell", "static.env", "in a login shell (bash -lc))", lambda t: t.login('unset CANNERY\nexec "$@"')),
    Case("entrypoint", "static.env", "in process 1)", lambda t: t.first(CANNERY="9")),
    Case(
        "a script gives more",
        "static.set-env",
        "CANN's scripts give 3 more than the environment has",
        lambda t: t.write(
            f"{ASCEND}/ascend-toolkit/set_env.sh",
            'export PATH=/usr/local/ir/bin:$PATH PYTHONPATH=/cann/python ASCEND_NEW="$1"\n',
        ),
    ),
    Case(
        "a script fails",
        "static.set-env",
        "set_env scripts are not compared: bash ended with code 3",
        lambda t: t.write(SCRIPT, "exit 3\n"),
    ),
    Case("order", "static.env", "/b is missing in CPATH, or out of order", add_env("CPATH", "/a:/b", "/b:/a")),
    Case("ATB ABI", "static.env", "chooses the C++ ABI 0", atb),
    Case(
        "preload lost",
        "static.preload",
        f"found: {JEMALLOC}.1",
        lambda t: (t.root / JEMALLOC[1:]).rename(t.root / (JEMALLOC[1:] + ".1")),
    ),
    Case("preload not mapped", "static.preload", "not loaded in this process", lambda t: t.write("/proc/self/maps")),
    Case(
        "preload foreign",
        "static.preload",
        "not loaded in this process",
        lambda t: (t.write(JEMALLOC, elf(machine=183)), t.write("/proc/self/maps")),
    ),
    Case(
        "preload of another name",
        "static.preload",
        "does not define mallctl",
        lambda t: t.write(JEMALLOC, elf(symbols=("malloc",))),
    ),
    Case("needed", "static.libraries", "x.so needs libnone.so.1", extra_library("x.so", elf(("libnone.so.1",)))),
    Case(
        "needed, odd name",
        "static.libraries",
        "y.so.1.1.1k needs libnone.so.1",
        extra_library("y.so.1.1.1k", elf(("libnone.so.1",))),
    ),
    Case("broken ELF", "static.libraries", "broken ELF", extra_library("x.so", elf(("liba.so",))[:150])),
    Case(
        "extension of another arch",
        "static.libraries",
        "another processor",
        extra_library("x.cpython-311-x.so", elf(machine=183)),
    ),
    Case(
        "no native",
        "static.libraries",
        "no compiled extension",
        lambda t: t.manifest["checks"]["native"].append({"path": "/opt/venv/**/k*.so", "component": "k"}),
    ),
    Case(
        "empty native",
        "static.libraries",
        "demo: no compiled extension /opt/venv/**/kernel*.so",
        lambda t: (
            t.add("demo/kernel.so"),
            t.manifest["checks"]["native"].append({"path": "/opt/venv/**/kernel*.so", "component": "demo"}),
        ),
    ),
    Case(
        "library lost",
        "static.libraries",
        "libnone.so does not exist",
        lambda t: t.manifest["checks"]["libraries"].append("/opt/libnone.so"),
    ),
    Case(
        "library does not load",
        "static.libraries",
        "does not load",
        lambda t: (t.write("/opt/libx.so", elf()[:64]), t.manifest["checks"]["libraries"].append("/opt/libx.so")),
    ),
    Case("both triton", "static.wheels", "triton 3.2.0 and triton-ascend 3.2.0", both_triton),
    Case(
        "cuda",
        "static.wheels",
        "denied: nvidia-*), asked by asker",
        lambda t: (
            t.install("nvidia-nccl-cu12", "2.1", {}, listed=False),
            t.install("asker", "1", {}, ("nvidia_nccl_cu12",)),
        ),
    ),
    Case(
        "cwd package",
        "static.shadow",
        "/workspace/demo (version unknown) is beside",
        working_folder("demo/__init__.py"),
    ),
    Case("cwd module", "static.shadow", "/workspace/demo.py (version unknown) is beside", working_folder("demo.py")),
    Case("cwd empty folder", "static.shadow", f"is beside {LIB}/demo (demo 1.0); import", empty_folder),
    Case("PYTHONPATH", "static.shadow", "import takes /opt/old/demo", python_path),
    Case("second copy behind", "static.shadow", "/opt/old/demo (version unknown) is beside", behind),
    Case(
        "lost tree",
        "static.sources",
        "demo-src: /opt/src/demo-src does not exist",
        lambda t: t.source("demo-src", "1", "tree"),
    ),
    Case(
        "kernels of another chip",
        "static.device-type",
        "ops has kernels for 910b, this image is for a3",
        lambda t: (
            t.manifest["target"].update(chip="a3"),
            t.tree_on_path("ops", "1", {"o/__init__.py": ""}, chips=["910b"]),
        ),
    ),
    Case(
        "pip check",
        "static.pip-check",
        "demo 1.0 requires",
        edit(SAYS, "No broken requirements found.", "demo 1.0 requires x, which is"),
    ),
    Case(
        "closed file",
        "static.readable",
        "part.py is closed to other users (mode 0600)",
        lambda t: (t.site / "demo/part.py").chmod(0o600),
    ),
    Case("closed folder", "static.readable", "demo is closed to other users", lambda t: (t.site / "demo").chmod(0o754)),
    Case("closed above", "static.readable", "/opt is closed", lambda t: (t.root / "opt").chmod(0o750)),
    Case(
        "link into root",
        "static.readable",
        "points below /root",
        lambda t: (t.root / "opt/venv/x").symlink_to("/no-such-home/x"),
    ),
    Case(
        "nameless user",
        "static.user",
        "no user me with uid 1000",
        lambda t: t.manifest.update(user={"uid": 1000, "name": "me"}),
    ),
    Case("pip.conf", "static.leftovers", "/etc/pip.conf was left", lambda t: t.write("/etc/pip.conf")),
    Case("netrc", "static.leftovers", "/root/.netrc was left", lambda t: t.write("/root/.netrc")),
    Case(
        "certificate",
        "static.leftovers",
        "a certificate of the build",
        lambda t: t.write("/usr/local/share/ca-certificates/my.crt"),
    ),
    Case("cache", "static.leftovers", "/root/.cache/pip: a cache", lambda t: t.write("/root/.cache/pip/x")),
    Case("apt lists", "static.leftovers", "a cache was left", lambda t: t.write("/var/lib/apt/lists/x_Packages")),
    Case(
        "uv cache file",
        "static.files",
        "uv_cache.json",
        lambda t: t.write(f"{t.site_name}/demo-1.0.dist-info/uv_cache.json"),
    ),
    Case("baked proxy", "static.leftovers", "ENV http_proxy", add_env("http_proxy", "http://proxy.example:3128")),
    Case(
        "proxy file",
        "static.leftovers",
        "/etc/environment sets https_proxy",
        lambda t: t.write("/etc/environment", "https_proxy=http://x\n"),
    ),
    Case(
        "index in env",
        "static.leftovers",
        "PIP_INDEX_URL is set",
        lambda t: t.env.update(PIP_INDEX_URL="http://mirror.example/simple"),
    ),
    Case(
        "proxy at start",
        "static.leftovers",
        "right when given at its start",
        lambda t: t.env.update(https_proxy="http://x"),
    ),
    Case(
        "nameless",
        "static.user",
        f"uid {os.geteuid()} has no line in /etc/passwd: HCCL",
        lambda t: t.write("/etc/passwd", "bin:x:77:77::/:/bin/sh\n"),
    ),
    Case("another group", "static.user", "gives me the gid 1000, the manifest says 7", with_user(gid=7)),
    Case("another home", "static.user", "gives me the home /home/me, the manifest says /opt", with_user(home="/opt")),
    Case("no home", "static.user", "/home/you, the home of me, is not there", with_user("/home/you", home="/home/you")),
    Case("a file for a folder", "static.writable", "/etc/passwd is no folder", cache_at("/etc/passwd")),
    Case("in a file", "static.writable", "MY_CACHE=/etc/passwd/x: /etc/passwd is no folder", cache_at("/etc/passwd/x")),
    Case("no compiler", "static.programs", "g++ is not on PATH, and is called at run time", calls("g++")),
    Case("a compiler that does not run", "static.programs", "g++ is not on PATH", calls("g++", 0o644)),
    *(
        Case(f"unverified {path}", "static.leftovers", f"{path} turns verification off", wrote(path, text))
        for path, text in UNVERIFIED
    ),
    *(
        Case(f"ENV {name}", "static.leftovers", f"ENV {name}={value} turns verification off", add_env(name, value))
        for name, value in (
            ("GIT_SSL_NO_VERIFY", "1"),
            ("GIT_SSL_NO_VERIFY", "true"),
            ("PYTHONHTTPSVERIFY", "0"),
            ("NODE_TLS_REJECT_UNAUTHORIZED", "0"),
            ("PIP_TRUSTED_HOST", "mirror.example"),
            ("UV_INSECURE_HOST", "mirror.example"),
            ("CONDA_SSL_VERIFY", "false"),
        )
    ),
    *(
        Case(f"info {text}", "static.base", "names CANN 8.5.0, the target's is 8.3.rc1", wrote(path, text))
        for path, text in (
            (f"{TOOLKIT}/ascend_toolkit_install.info", "version=8.5.0\n"),
            (f"{TOOLKIT}/ascend_ops_install.info", "version=8.3.RC1\npath=/usr/local/Ascend/cann-8.5.0/x\n"),
            (f"{TOOLKIT}/x86_64-linux/ascend_toolkit_install.info", "package=x\nversion_dir=8.5.0\n"),
        )
    ),
    Case("small shm", "static.shm", "--shm-size=", lambda t: t.manifest.update(shm_min_bytes=1 << 60)),
]


# The first case of each check is held against all checks, the others against those that start no Python.
FIRST = {case.check: case for case in reversed(CASES)}
STARTING = {"static.python", "static.shadow"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}: {case.name}")
def test_a_broken_fact_fails_its_own_check_alone(tree: Tree, case: Case) -> None:
    case.broken(tree)
    is_first = FIRST[case.check] is case
    (outcome,) = tree.broken("static", without=() if is_first else STARTING - {case.check})
    assert outcome.id == case.check
    assert case.says in "\n".join([outcome.message, *outcome.details])


def test_every_static_check_has_a_case() -> None:
    assert {case.check for case in CASES} == {name for name in CHECKS if name.startswith("static.")}


FINE: list[tuple[str, Callable[[Tree], object]]] = [
    ("patched", patched("x = 2\n")),
    ("fresh pyc", compiled(f"part.{TAG}.pyc", "x = 1\n")),
    ("fresh pyc of -OO", compiled(f"part.{TAG}.opt-2.pyc", "x = 1\n")),
    ("pyc of another interpreter", compiled("part.cpython-399.pyc", "x = 7\n")),
    ("cut off pyc, which Python leaves aside", strange(f"demo/__pycache__/part.{TAG}.pyc")),
    ("cache of numba", strange("demo/__pycache__/part.run-3.py311.nbi", "demo/__pycache__/part.run-3.py311.1.nbc")),
    ("console script", program(0o755)),
    (
        "files that the manifest explains",
        lambda t: (
            t.write(f"{t.site_name}/demo/new.py", "x = 2\n"),
            compiled(f"new.{TAG}.pyc", "x = 2\n")(t),
            t.manifest["patches"].append(
                {
                    "name": "new",
                    "digest": sha("p"),
                    "component": "demo",
                    "files": [{"path": f"{t.site_name}/demo/new.py", "before": None, "after": sha("x = 2\n")}],
                }
            ),
            t.write(f"{t.site_name}/listed.txt", "x"),
            t.manifest["checks"]["files"].append({"path": f"{t.site_name}/listed.txt", "sha256": sha("x")}),
        ),
    ),
    ("entries between", add_env("CPATH", "/a:/b", "/x:/a/:/y://b:/z")),
    ("driver library", extra_library("x.so", elf(("libascend_hal.so",)))),
    (
        "same folder by ORIGIN",
        lambda t: (
            t.add("demo/x.so", elf(("l.so.1",), runpath="$ORIGIN/../libs")),
            t.add("libs/l.so.1", elf()),
        ),
    ),
    (
        "soname of another file",
        lambda t: (
            t.add("demo/x.so", elf(("l.so.1",))),
            t.add("y.so", elf(soname="l.so.1")),
        ),
    ),
    (
        "in LD_LIBRARY_PATH",
        lambda t: (
            t.add("demo/x.so", elf(("l.so.1",))),
            t.write("/opt/l/l.so.1"),
            t.env.update(LD_LIBRARY_PATH="/opt/l"),
        ),
    ),
    ("helper of another arch", extra_library("helper.so", elf(("libnone.so",), machine=183))),
    ("32-bit helper", extra_library("helper.so", elf(("libnone.so",), machine=3, wide=False))),
    ("musl", extra_library("helper.so", elf(("libc.musl-x86_64.so.1", "libnone.so")))),
    (
        "allowed library",
        lambda t: (
            extra_library("x.so", elf(("libnone.so",)))(t),
            t.manifest["checks"].update(library_allow=["x.so needs libnone"]),
        ),
    ),
    (
        "allowed pip line",
        lambda t: (
            t.write(SAYS, "vllm 1 has requirement torch==2.8"),
            t.manifest["checks"].update(pip_check_allow=["^vllm .* torch=="]),
        ),
    ),
    (
        "empty build version",
        lambda t: t.install("vllm", "0.13.0+empty", {}) or t.manifest["wheels"][-1].update(version="0.13.0"),
    ),
    ("common name in cwd", working_folder("tests/__init__.py")),
    ("common names in /", lambda t: t.write("/tests/__init__.py")),
    ("pyc with a hash, which Python compares", compiled(f"part.{TAG}.pyc", "x = 7\n")),
    (
        "compiled extension",
        lambda t: (
            t.add("demo/kernel.so", elf()),
            t.manifest["checks"]["native"].append({"path": "/opt/venv/**/kernel*.so", "component": "demo"}),
        ),
    ),
    (
        "named user",
        lambda t: (
            t.write("/etc/passwd", f"root:x:{os.geteuid()}:0::/:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n"),
            t.manifest.update(user={"uid": 1000, "name": "me"}),
        ),
    ),
    ("user with a home", with_user()),
    ("a compiler", calls("g++", 0o755)),
    ("cache that is to be made", cache_at("/var/cache/none/yet")),
    (
        "empty apt folders",
        lambda t: (t.write("/var/lib/apt/lists/lock"), (t.root / "var/lib/apt/lists/partial").mkdir()),
    ),
    ("shared file", lambda t: (t.install("one", "1", {"both.py": "1"}), t.install("two", "1", {"both.py": "2"}))),
]


@pytest.mark.parametrize(("name", "change"), FINE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_in_order_passes(tree: Tree, name: str, change: Callable[[Tree], object]) -> None:
    change(tree)
    assert tree.failing("static") == {}


def test_what_a_user_installed_is_told_by_its_place(tree: Tree) -> None:
    tree.write("/opt/user/lib/python3.9/site-packages/more-2.0.dist-info/METADATA", "Name: more\nVersion: 2.0\n")
    outcome = tree.check("static.wheels")
    assert (outcome.status, outcome.message) == (
        "failed",
        "more 2.0 in /opt/user/lib/python3.9/site-packages is not in the manifest",
    )


@dataclass(frozen=True)
class Mounted:
    f_flag: int


@pytest.mark.parametrize(
    ("mode", "flag", "status", "says"),
    [
        (0o1777, os.ST_RDONLY, "warning", "read-only, and programs write to /var/cache/cannery: start it with --tmpfs"),
        (0o1777, 0, "failed", "belongs to {owner}, mode 1777"),
        (0o755, 0, "failed", "cannot write 1 of 1 folders"),
    ],
)
def test_a_cache_that_cannot_be_written(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, mode: int, flag: int, status: str, says: str
) -> None:
    """A container's read-only root is not the image's fault; a folder of another user in one that is not is."""
    folder = tree.write("/var/cache/cannery/numba/x").parent
    folder.chmod(mode)
    cache_at("/var/cache/cannery/numba")(tree)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(os, "statvfs", lambda _: Mounted(flag))
    outcome = tree.check("static.writable")
    owner = f"{folder.stat().st_uid}:{folder.stat().st_gid}"
    assert outcome.status == status
    assert says.format(owner=owner) in "\n".join([outcome.message, *outcome.details])


def test_the_images_user_has_to_write_at_home(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with_user()(tree)
    (tree.root / "home/me/.profile").unlink()
    (tree.root / "home/me").rmdir()
    tree.write("/home/me", "no folder")
    assert tree.check("static.writable").status == "passed", "another user has no home there"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tree.check("static.writable").details == ("home /home/me: /home/me is no folder",)


def test_a_home_that_another_user_cannot_write_is_told(tree: Tree) -> None:
    """Ray keeps its token there, and ends where it cannot."""
    with_user()(tree)
    tree.env["HOME"] = "/home/me"
    assert tree.check("static.writable").status == "passed"
    tree.env["HOME"] = "/home/me/.profile"
    outcome = tree.check("static.writable")
    assert outcome.status == "warning"
    why = "/home/me/.profile is no folder, and Ray writes there, as others do"
    assert outcome.message == f"HOME=/home/me/.profile: {why}: start it with -e HOME=/tmp"
    tree.manifest["user"] = None
    assert tree.check("static.writable").status == "passed", "root's image: its user is who starts it"


def test_settings_that_the_manifest_names_are_the_images_own(tree: Tree) -> None:
    tree.write("/opt/venv/pip.conf", "[global]\n")
    assert tree.check("static.leftovers").message == "/opt/venv/pip.conf was left in the image"
    tree.manifest["checks"]["files"].append({"path": "/opt/venv/pip.conf", "sha256": None})
    assert tree.check("static.leftovers").status == "failed", "nothing holds it to what it should be"
    tree.manifest["checks"]["files"][-1]["sha256"] = f"sha256:{'0' * 64}"
    assert tree.check("static.leftovers").status == "passed"


def test_caches_younger_than_the_container_are_the_users(tree: Tree) -> None:
    cache = tree.write("/root/.cache/huggingface/x").parent
    os.utime(cache, (2_000_000, 2_000_000))
    tree.write("/proc/stat", "cpu 1\nbtime 1000000\n")
    fields = ["0"] * 19 + [str(500_000 * os.sysconf("SC_CLK_TCK"))]
    tree.write("/proc/1/stat", f"1 (a b) {' '.join(fields)} 0")
    assert tree.check("static.leftovers").status == "passed"
    os.utime(cache, (1_400_000, 1_400_000))
    assert tree.check("static.leftovers").status == "failed"


def test_a_cache_that_is_a_link_to_nowhere_is_a_leftover(tree: Tree) -> None:
    tree.write("/root/.cache/pip/x")
    (tree.root / "root/.cache/huggingface").symlink_to("/data/missing")
    assert tree.check("static.leftovers").details == (
        "/root/.cache/huggingface: a cache was left",
        "/root/.cache/pip: a cache was left",
    )


def test_what_a_user_mounts_is_no_leftover(tree: Tree) -> None:
    tree.write("/root/.cache/pip/x")
    tree.write("/root/.pip/pip.conf")
    tree.write(
        "/proc/self/mountinfo",
        "1 0 0:1 / / rw - x\n2 1 0:2 / /root/.cache rw - x\n3 1 0:2 / /root/.pip/pip.conf rw - x\n",
    )
    assert tree.check("static.leftovers").status == "passed"
    tree.write("/proc/self/mountinfo", "1 0 0:1 / / rw - x\n2 1 0:2 / /root/.cachet rw - x\n")
    assert tree.check("static.leftovers").details == (
        "/root/.pip/pip.conf was left in the image",
        "/root/.cache/pip: a cache was left",
    )


def test_a_namespace_in_two_places_is_no_shadow(tree: Tree) -> None:
    tree.install("plug", "1", {"space/plug/__init__.py": ""})
    tree.write("/opt/old/space/more/__init__.py")
    tree.write(f"{tree.site_name}/old.pth", str(tree.root / "opt/old"))
    assert tree.check("static.shadow").status == "passed"


def test_a_missing_interpreter_is_one_line(tree: Tree) -> None:
    (tree.root / "opt/venv/bin/python").unlink()
    assert (
        tree.check("static.python").message
        == "/opt/venv/bin/python: cannot start /opt/venv/bin/python: No such file or directory"
    )


def test_a_login_shell_that_is_silent_is_ended(tree: Tree) -> None:
    tree.login("sleep 60")
    outcome = tree.check("static.env", timeout=0.3)
    assert outcome.status == "passed"
    assert outcome.details == ("a login shell (bash -lc) not compared: bash no answer within 0.3 s",)


def test_a_check_that_raises_is_its_own_failure(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setitem(CHECKS, "static.base", breaks)
    outcome = tree.check("static.base")
    assert outcome.status == "failed"
    assert outcome.message.startswith("the check itself broke: KeyError: 'surprise' (in breaks, line ")


def test_of_a_strange_distribution_no_file_is_judged(tree: Tree) -> None:
    tree.install("stray", "3.0", {"stray/a.py": "x = 1\n"}, listed=False)
    (tree.site / "stray/a.py").write_text("x = 2\n")
    assert tree.check("static.files").status == "passed"


def test_a_lost_source_is_told_once(tree: Tree) -> None:
    compiled(f"part.{TAG}.pyc", "x = 1\n")(tree)
    (tree.site / "demo/part.py").unlink()
    assert tree.check("static.files").message == f"demo: reinstalled or overwritten: {LIB}/demo/part.py is missing"


def test_a_distribution_that_is_there_twice_owns_the_files_of_both(tree: Tree) -> None:
    tree.install("Demo", "0.9", {"old.py": ""}, listed=False)
    assert list(tree.failing("static")) == ["static.wheels"]


def test_only_a_library_called_jemalloc_must_be_it(tree: Tree) -> None:
    tree.write("/usr/lib/libother.so", elf())
    tree.manifest["env"]["LD_PRELOAD"] = tree.env["LD_PRELOAD"] = "/usr/lib/libother.so"
    tree.write("/proc/self/maps", f"7f00-7f01 r-xp 00000000 08:01 42    {tree.root}/usr/lib/libother.so\n")
    assert tree.check("static.preload").message == "/usr/lib/libother.so loaded"


@pytest.mark.parametrize(("path", "text"), VERIFIED)
def test_verification_that_is_on_is_no_fault(tree: Tree, path: str, text: str) -> None:
    tree.write(path, text)
    assert tree.failing("static") == {}


def test_a_folder_where_kernel_meta_cannot_be_written_is_a_warning(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """W9: CANN's compiler writes kernel_meta into the working folder."""
    monkeypatch.setattr(access, "why_closed", lambda _image, path: "it is another's" if path == "/work" else "")
    tree.cwd = str(tree.root / "work")
    found = tree.check("static.writable")
    assert found.status == "warning"
    assert "kernel_meta" in found.message
    assert "--workdir" in found.message


def test_set_env_names_what_is_missing_and_takes_another_single_value(tree: Tree) -> None:
    tree.env.update(PYTHONPATH="/mine:/cann/python", ASCEND_OPP_PATH="/mine", ATB_HOME_PATH="/a/cxx_abi_0")
    tree.manifest["base"]["set_env"] = [f"{SCRIPT} --cxx_abi=${{ATB_CXX_ABI:-7}}"]
    body = "export PATH=/ir/bin:$PATH PYTHONPATH=/cann/python/:$PYTHONPATH ASCEND_OPP_PATH=/opp NEW=$1"
    tree.write(SCRIPT, f"{body} ATB_HOME_PATH=/a/cxx_abi_1\n")
    outcome = tree.check("static.set-env")
    assert (outcome.status, outcome.details) == (
        "warning",
        (
            'NEW is not set, CANN\'s scripts give "--cxx_abi=1"',
            "/ir/bin of CANN's scripts is missing in PATH",
        ),
    )
    tree.env.update(NEW="1", PATH=f"/ir/bin:{tree.env['PATH']}")
    assert tree.check("static.set-env").status == "passed"
