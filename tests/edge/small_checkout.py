"""A small made-up checkout whose packages a stub index has, and build.py on it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml
from checkouts import FROZEN
from stub_index import StubIndex, make_wheel

from cannery import cli
from cannery.lock.lock import parse_lock

ROOT = Path(__file__).resolve().parent.parent.parent
TODAY = "2026-08-01"
LATER = "2026-07-01T00:00:00Z"
# What the frozen images/ has is none of these tests' business: these folders and files are made up.
OWN = ("profiles", "components", "locks", "compatibility.yaml", "indexes.yaml", "tools.yaml")
STACK = """\
# The stack of these tests.
summary: made up
target: {cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [amd64, arm64]}
exclude_newer: "2026-06-01"  # the day of the guide
components:
  - {name: pip}
  # a pair
  - {name: torch, version: "2.8.0", reason: "what torch_npu extends"}
  - name: torch-npu
    version: '2.8.0'  # its row
  - {name: tool, version: "1.0"}
  - {name: lib}
"""
ROWS = {"2.8.0": "8.5.0", "2.9.0": "8.5.0", "2.10.0": "9.0.0"}
COMPONENTS = ("pip", "torch", "torch-npu", "tool", "lib")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Small:
    """build.py on the checkout; `index` is where pip's settings point."""

    def __init__(self, root: Path, index: StubIndex, capture: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.index = index
        self.capture = capture

    def __call__(self, *words: str) -> Done:
        self.capture.readouterr()
        code = cli.main(words, self.root)
        text = self.capture.readouterr()
        assert "Traceback" not in text.out + text.err, text.err
        assert "defect" not in text.err, text.err
        return Done(code, text.out, text.err)

    def profile(self, name: str = "stack") -> Path:
        return self.root / f"images/profiles/{name}.yaml"

    def versions(self, profile: str = "stack", arch: str = "amd64") -> dict[str, str]:
        """Name → version of a committed lock."""
        path = self.root / f"images/locks/{profile}/py3.11-{arch}.txt"
        return {package.name: package.version for package in parse_lock(path.read_text(), path.name).packages}

    def files(self) -> dict[str, bytes]:
        """Everything below images/ that a command may write."""
        folders = (self.root / "images/profiles", self.root / "images/locks")
        return {str(p.relative_to(self.root)): p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}


def fill(index: StubIndex) -> None:
    """Put the packages on the index: of some there are later releases than the profile's day."""
    for name in ("pip", "wheel"):
        index.add(make_wheel(name, "26.0"))
    for version in ROWS:
        index.add(make_wheel("torch", version))
        index.add(make_wheel("torch-npu", version, [f"torch=={version}"]))
    index.add(make_wheel("tool", "1.0", ["dep"]))
    index.add(make_wheel("tool", "1.5", ["dep>=1.1"]), uploaded=LATER)
    index.add(make_wheel("lib", "1.0", ["dep"], payload=b"1" * 4000))
    index.add(make_wheel("lib", "2.0", ["dep"], payload=b"2" * 9000), uploaded=LATER)
    index.add(make_wheel("lib", "2.5", ["dep"], tag="cp312-cp312-manylinux_2_28_x86_64"), uploaded=LATER)
    index.add(make_wheel("dep", "1.0"))
    index.add(make_wheel("dep", "1.1"), uploaded=LATER)


def write_small(root: Path) -> None:
    """Write the checkout's images/ and templates/, without locks."""
    shutil.copytree(FROZEN, root / "images", ignore=shutil.ignore_patterns(*OWN))
    shutil.copytree(ROOT / "templates", root / "templates", ignore=shutil.ignore_patterns("__pycache__"))
    base = root / "images/bases/8.5.0.yaml"
    line = yaml.safe_load(base.read_text())
    base.write_text(yaml.safe_dump({**line, "python_packages": []}))
    rows = [
        f'  - {{of: "torch-npu=={version}", fits: {{torch: "{version}", cann: "{cann}"}}, source: s}}'
        for version, cann in ROWS.items()
    ]
    texts = {
        "profiles/stack.yaml": STACK,
        **{f"components/{name}.yaml": "kind: wheels\nsummary: made up\n" for name in COMPONENTS},
        "compatibility.yaml": "\n".join(
            ['sources: {s: {what: made up, rank: table, date: "2026-01-01"}}', "rows:", *rows, ""]
        ),
        "indexes.yaml": '{elsewhere: {urls: ["http://127.0.0.1:9/simple"]}}\n',
        "tools.yaml": 'requirements: [wheel]\nexclude_newer: "2026-06-01"\n',
    }
    for name, text in texts.items():
        path = root / "images" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def point_at(index: StubIndex, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `index` the only one that the host's pip names, and `folder` what Cannery may write to."""
    index.server.handle_error = lambda *_: None  # type: ignore[method-assign] # it would print: a client went away
    for name in [name for name in os.environ if name.upper().startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setenv("CANNERY_CACHE", str(folder / "cache"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(cli, "today", lambda: TODAY)
    monkeypatch.chdir(folder)


@cache
def locked_once() -> Path:
    """A checkout with the locks of the index as `fill` makes it; made once, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="small-checkout-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = folder / "checkout"
    write_small(root)
    with StubIndex() as index, pytest.MonkeyPatch.context() as monkeypatch:
        fill(index)
        point_at(index, folder, monkeypatch)
        assert cli.main(["lock"], root) == 0
    return root


def make_small(
    folder: Path, index: StubIndex, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Small:
    """Put a locked checkout into `folder`, with `index` as its only one."""
    shutil.copytree(locked_once(), folder / "checkout")
    fill(index)
    point_at(index, folder, monkeypatch)
    return Small(folder / "checkout", index, capture)
