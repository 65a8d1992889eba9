"""A made-up image below a folder, in which every check of the verify script passes, and ways to look at it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifying.checks import check_ids, run_checks
from verifying.image import Image, Options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from verifying.outcome import Outcome

REPOSITORY = Path(__file__).resolve().parents[3]
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
ASCEND = "/usr/local/Ascend"
TOOLKIT = f"{ASCEND}/ascend-toolkit/latest"
JEMALLOC = "/usr/local/lib/libjemalloc.so.2"
NPU_IDS = tuple(f"npu.{name}" for name in ("nodes", "driver", "smi", "visible", "count", "tensor"))


def elf(
    needed: tuple[str, ...] = (),
    *,
    runpath: str = "",
    soname: str = "",
    machine: int = 62,
    wide: bool = True,
    symbols: tuple[str, ...] = (),
    undefined: tuple[str, ...] = (),
) -> bytes:
    """A shared object of one segment with a dynamic section, a string and a symbol table: all that a loader needs."""
    strings = b"\0"

    def add(text: str) -> int:
        nonlocal strings
        at = len(strings)
        strings += text.encode() + b"\0"
        return at

    tags = [(1, add(name)) for name in needed]
    tags += [(29, add(runpath))] if runpath else []
    tags += [(14, add(soname))] if soname else []
    rows = [(0, 0), *((add(name), 9) for name in symbols), *((add(name), 0) for name in undefined)]
    form = struct.Struct("<I2xH16x") if wide else struct.Struct("<I10xH")  # of name and section
    hashes = struct.pack("<5I", 1, len(rows), 0, 0, 0)  # one empty bucket: the reader wants only the count
    table = b"".join(form.pack(*row) for row in rows)
    header, segment, tag = (64, 56, struct.Struct("<qQ")) if wide else (52, 32, struct.Struct("<iI"))
    dynamic = header + 2 * segment
    length = (len(tags) + 4) * tag.size
    base = 0x10000  # addresses differ from offsets, as in real files
    after = base + dynamic + length
    places = (after, after + len(strings), after + len(strings) + len(hashes))
    tags += [*zip((5, 4, 6), places, strict=True), (0, 0)]
    size = dynamic + length + len(strings) + len(hashes) + len(table)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    if wide:
        head = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0)
        load_ = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
        dyn = struct.pack("<IIQQQQQQ", 2, 6, dynamic, base + dynamic, base + dynamic, length, length, 8)
    else:
        head = ident + struct.pack("<HHIIIIIHHHHHH", 3, machine, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0)
        load_ = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
        dyn = struct.pack("<IIIIIIII", 2, dynamic, base + dynamic, base + dynamic, length, length, 6, 4)
    return head + load_ + dyn + b"".join(tag.pack(*item) for item in tags) + strings + hashes + table


FAKE_TORCH = """
import json, os
__version__ = "2.13.0+cpu"
class float32: pass
class _C: _GLIBCXX_USE_CXX11_ABI = True
class Tensor:
    def __init__(self, numbers, device="cpu"): self.numbers, self.device = numbers, device
    def to(self, device):
        broken = os.environ.get("FAKE_BROKEN_NPU")
        if broken == device.split(":")[1]: raise RuntimeError("NPU out of order")
        return Tensor(self.numbers, device)
    def __add__(self, number): return Tensor([item + number for item in self.numbers], self.device)
    def cpu(self): return Tensor(self.numbers)
    def tolist(self): return self.numbers
def arange(count, dtype): return Tensor([float(item) for item in range(count)])
class npu:
    @staticmethod
    def is_available(): return npu.device_count() > 0
    @staticmethod
    def device_count(): return int(os.environ.get("FAKE_NPUS", "0"))
"""
FAKE_TORCH_NPU = """
import sys, types
__version__ = "2.13.0"
_C = types.ModuleType("torch_npu._C")
_C.__file__ = "/opt/venv/torch_npu/_C.so"
sys.modules["torch_npu._C"] = _C
"""
# What setuptools writes for an editable install of a package that is not at the top of its project.
FINDER = """
import sys
from importlib.util import spec_from_file_location
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        place = PLACES.get(name)
        return spec_from_file_location(name, place + "/__init__.py") if place else None
def install(): sys.meta_path.append(Finder)
"""
SAYS = "/opt/venv/pip-says"  # what `pip check` prints
SAYS_GOOD = "No broken requirements found."
FAKE_PIP = "import sys; print(open(sys.prefix + '/pip-says').read())"


class Tree:
    """The made-up image. `manifest` may be changed; `image()` and `main()` write it first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.outside = root.parent / "outside"
        self.env: dict[str, str] = {
            "PATH": f"{self.outside}:/opt/venv/bin:{os.environ['PATH']}",
            "LD_PRELOAD": JEMALLOC,
            "CANNERY": "1",
        }
        self.cwd = str(root)
        self.site_name = f"/opt/venv/lib/python{MINOR}/site-packages"
        self.site = root / self.site_name[1:]
        self._python()
        self._base()
        self._processes()
        self.wheels: list[dict[str, Any]] = []
        self.manifest = self._manifest()
        self.install("torch", "2.13.0+cpu", {"torch/__init__.py": FAKE_TORCH})
        self.install("torch-npu", "2.13.0", {"torch_npu/__init__.py": FAKE_TORCH_NPU}, requires=("torch",))
        self.install("pip", "26.1", {"pip/__init__.py": "", "pip/__main__.py": FAKE_PIP})
        self.write(SAYS, SAYS_GOOD)
        self.install(
            "demo", "1.0", {"demo/__init__.py": "__version__ = '1.0.0'\n", "demo/part.py": "x = 1\n", "tests/a.py": ""}
        )
        self.made = self._read_by_child()

    def write(self, path: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        """Writes a file of the image, by its absolute path there."""
        where = self.root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content if isinstance(content, bytes) else content.encode())
        where.chmod(mode)
        return where

    def add(self, path: str, content: str | bytes = "") -> Path:
        """Writes a file below site-packages, and a row without hash for it into demo's RECORD."""
        with (self.site / "demo-1.0.dist-info/RECORD").open("a") as file:
            file.write(f"{path},,\n")
        return self.write(f"{self.site_name}/{path}", content)

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes],
        requires: tuple[str, ...] = (),
        *,
        listed: bool = True,
    ) -> None:
        """Puts a distribution into site-packages with its RECORD, and into the manifest unless it is not `listed`."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = "".join(f"Requires-Dist: {item}\n" for item in requires)
        every = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\nText\n",
        }
        rows = []
        for path, content in every.items():
            data = content if isinstance(content, bytes) else content.encode()
            self.write(f"{self.site_name}/{path}", data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.append(f"{path},sha256={digest},{len(data)}")
        self.write(f"{self.site_name}/{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
        if listed:
            row = {
                "name": name,
                "version": version,
                "hash": "sha256:" + "0" * 64,
                "group": "g",
                "file": f"{name}.whl",
                "built": False,
            }
            self.manifest["wheels"].append(row)

    def source(self, component: str, version: str | None, install: str, **changes: object) -> dict[str, Any]:
        """Puts a source into the manifest, as its own distribution below /opt/src; the entry, which may be changed."""
        entry: dict[str, Any] = {
            "name": component,
            "component": component,
            "version": version,
            "install": install,
            "path": None if install == "wheel" else f"/opt/src/{component}",
            "repository": None,
            "commit": "c" * 40,
            "release": None,
            "dirty": False,
            "without": "",
            "chips": [],
            **changes,
        }
        self.manifest["sources"].append(entry)
        return entry

    def editable(self, component: str, version: str, module: str, text: str = "", *, finder: bool = False) -> None:
        """Installs a source as an editable distribution with a tree: by a path in a .pth file, or by a finder."""
        path, stem = f"/opt/src/{component}", component.replace("-", "_")
        info = f"{stem}-{version}.dist-info"
        self.source(component, version, "editable")
        self.write(f"{path}/{module}/__init__.py", text)
        pth, name = f"__editable__.{stem}.pth", f"__editable___{stem}_finder"
        start = {
            pth: f"import {name}; {name}.install()\n",
            f"{name}.py": FINDER.replace("PLACES", repr({module: f"{self.root}{path}/{module}"})),
        }
        self.install(
            component,
            version,
            {
                **(start if finder else {pth: f"{self.root}{path}\n"}),
                f"{info}/direct_url.json": json.dumps({"url": f"file://{path}", "dir_info": {"editable": True}}),
                f"{info}/top_level.txt": f"{module}\n",
            },
            listed=False,
        )

    def tree_on_path(self, component: str, version: str, files: Mapping[str, str], **changes: object) -> None:
        """Puts a source's tree into the image, and its folder first on PYTHONPATH."""
        self.source(component, version, "tree", **changes)
        for name, text in files.items():
            self.write(f"/opt/src/{component}/{name}", text)
        before = self.env.get("PYTHONPATH")
        self.env["PYTHONPATH"] = f"{self.root}/opt/src/{component}" + (f":{before}" if before else "")

    def _python(self) -> None:
        home = self.root / "usr/local/python"
        home.parent.mkdir(parents=True)
        home.symlink_to(sys.base_prefix)
        self.site.mkdir(parents=True)
        (self.root / "opt/venv/bin").mkdir()
        (self.root / "opt/venv/bin/python").symlink_to(getattr(sys, "_base_executable", sys.executable))
        self.write("/opt/venv/pyvenv.cfg", f"home = {sys.base_prefix}/bin\ninclude-system-site-packages = false\n")

    def _base(self) -> None:
        self.write(f"{TOOLKIT}/version.cfg", "# version: 1.0\ntoolkit_running_version=[7.6.0.1.220:8.3.RC1]\n")
        self.write(
            f"{ASCEND}/nnal/atb/latest/version.info",
            "Ascend-cann-atb : 8.3.RC1\nAscend-cann-atb Version : 8.3.RC1.B080\n",
        )
        self.write(f"{ASCEND}/ascend-toolkit/set_env.sh")
        self.write(JEMALLOC, elf(soname="libjemalloc.so.2", symbols=("malloc", "mallctl")))
        uid = os.geteuid()  # whoever runs the tests has a name in the image
        self.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\n" + (f"tester:x:{uid}:{uid}::/:/bin/sh\n" if uid else ""))
        (self.root / "dev/shm").mkdir(parents=True)

    def _processes(self) -> None:
        self.write("/proc/self/maps", f"7f00-7f01 r-xp 00000000 08:01 42    {self.root}{JEMALLOC}\n")
        self.outside.mkdir(exist_ok=True)
        self.login('exec "$@"')
        self.first()

    def login(self, body: str) -> None:
        """Sets what the login shell does before it runs the command (`"$@"`)."""
        shell = self.outside / "bash"
        shell.write_text(f'#!/bin/sh\n[ "$1" = -lc ] || exit 9\nset -- /bin/sh -c "$2"\n{body}\n')
        shell.chmod(0o755)

    def first(self, **changes: str) -> None:
        """Sets the environment of process 1."""
        env = {**self.env, **changes}
        self.write("/proc/1/environ", "".join(f"{name}={value}\0" for name, value in env.items()))

    def _manifest(self) -> dict[str, Any]:
        self.write("/opt/cannery/verify.py")
        return {
            "schema": 1,
            "tool": {"name": "cannery", "version": "0.1.0"},
            "profile": "demo",
            "plan": "0123456789ab",
            "target": {"cann": "8.3.rc1", "chip": "910b", "os": "ubuntu22.04", "python": MINOR, "arch": "amd64"},
            "base": {
                "reference": "example/cann:8.3.rc1",
                "digest": None,
                "kind": "real",
                "python_home": "/usr/local/python",
                "toolkit_home": TOOLKIT,
                "set_env": [f"{ASCEND}/ascend-toolkit/set_env.sh"],
                "atb_abi": 1,
                "version_files": [
                    {"path": f"{TOOLKIT}/version.cfg", "name": "toolkit", "version": "8.3.rc1"},
                    {"path": f"{ASCEND}/nnal/atb/latest/version.info", "name": "nnal", "version": "8.3.rc1"},
                ],
            },
            "wheels": self.wheels,
            "sources": [],
            "patches": [],
            "env": {"CANNERY": "1", "LD_PRELOAD": JEMALLOC},
            "labels": {},
            "checks": {
                "imports": [{"module": "demo", "component": "demo"}],
                "libraries": [],
                "files": [],
                "native": [],
                "pip_check_allow": [],
            },
            "shm_min_bytes": 1,
            "user": None,
            "deny": ["nvidia-*"],
            "exclusive": [["triton", "triton-ascend"]],
            "may_skip": list(NPU_IDS),
            "forced": [],
            "overrides": [],
        }

    def nodes(self, *cards: int, managers: tuple[str, ...] = ("davinci_manager", "devmm_svm", "hisi_hdc")) -> None:
        """Puts files in the place of device nodes (below a root other than / that is enough)."""
        for name in (*(f"davinci{card}" for card in cards), *managers):
            self.write(f"/dev/{name}")

    def driver(self) -> None:
        """Puts a driver mount into the tree, and its library on the loader's path."""
        self.write(f"{ASCEND}/driver/lib64/driver/libascend_hal.so", elf())
        self.write(f"{ASCEND}/driver/version.info", "Version=25.2.0\n")
        self.env["LD_LIBRARY_PATH"] = f"{ASCEND}/driver/lib64/driver"

    def smi(self, body: str) -> None:
        """Puts an npu-smi on the PATH."""
        tool = self.outside / "npu-smi"
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)

    def save(self) -> Path:
        """Writes the manifest."""
        return self.write("/opt/cannery/manifest.json", json.dumps(self.manifest))

    def image(self, **options: float) -> Image:
        """The tree as the script's checks take it."""
        path = str(self.save())
        options = {"timeout": 120.0, **options}
        return Image(self.manifest, str(self.root), dict(self.env), self.cwd, Options(**options), path)

    def check(self, name: str, **options: float) -> Outcome:
        """The outcome of one check."""
        (outcome,) = run_checks(self.image(**options), [name])
        return outcome

    def broken(self, *levels: str, without: Collection[str] = ()) -> list[Outcome]:
        """The checks of some levels that failed or warned, but those named in `without`.

        A check that starts a program is left out where all that the program reads is as it was made: it passes there
        (test_a_whole_image_passes_each_check).
        """
        image = self.image()
        same = {name for name, read in self._read_by_child().items() if read == self.made[name]}
        wanted = [name for name in check_ids(self.manifest) if name.split(".")[0] in levels]
        found = run_checks(image, [name for name in wanted if name not in same and name not in without])
        return [item for item in found if item.status in {"failed", "warning"}]

    def _read_by_child(self) -> dict[str, list[object]]:
        """What the programs that a check starts read of this tree, by check."""

        def text(path: Path) -> str:
            return path.read_text() if path.is_file() else "none"

        def names(folder: Path) -> list[str]:
            return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

        base, env = self.manifest["base"], self.manifest["env"]
        outer = {name: value for name, value in self.env.items() if name != "PYTHONPATH" or name in env}
        scripts = [text(self.root / line.split()[0].lstrip("/")) for line in base["set_env"]]
        shells: list[object] = [outer, {**env}, str(base["set_env"]), base["atb_abi"], *scripts]
        shells += [text(self.outside / "bash"), text(self.root / "proc/1/environ")]
        links = [self.root / "opt/venv/bin/python", self.root / "usr/local/python"]
        python: list[object] = [outer, text(self.root / "opt/venv/pyvenv.cfg"), base["python_home"]]
        python += [self.manifest["target"]["python"], *(path.is_symlink() and path.readlink() for path in links)]
        modules = [sorted(map(str, self.site.rglob("*"))), *(text(path) for path in sorted(self.site.glob("*.pth")))]
        trees = [names(self.root), names(Path(self.cwd)), str(self.manifest["sources"]), str(self.manifest["checks"])]
        return {
            "static.pip-check": [text(self.root / SAYS[1:]), text(self.site / "pip/__main__.py")],
            "static.python": python,
            "static.env": shells,
            "static.set-env": shells,
            "static.shadow": [*python, {**self.env}, *modules, *trees, self.cwd, str(self.wheels)],
        }

    def failing(self, *levels: str) -> dict[str, str]:
        """Id → message of `broken`."""
        return {item.id: item.message for item in self.broken(*levels)}
