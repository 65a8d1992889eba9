"""An image without an engine, killed at random moments: the same command makes the same image of what is left.

    CANNERY_KILLS=20 .venv/bin/python -m pytest tests/e2e/test_store_kills.py

The store, boxes and caches are the test's own. What a killed run leaves may be there until the next one; nothing that
is half-written may be taken for whole, and no process or mount may stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cannery.context import read_context
from cannery.errors import ExitCode
from cannery.store.describe import Blob
from cannery.store.io.pieces import PIECES
from cannery.store.io.store import Store
from cannery.util.io.files import remove_path
from tests.e2e.engine_fixtures import ELSEWHERE, ROOT, Cannery, bare_cache, small_checkout
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

NAME = "killed"
# No torch: seconds for a build. `system` is made by the base's own apt.
COMPONENTS = ("pip", "numpy")
# A round takes a quarter of a minute on a machine that does nothing else: CI has a few.
ROUNDS = int(os.environ.get("CANNERY_KILLS", "4"))
# In the environment of a run: whatever has it afterwards outlived that.
MARK = "CANNERY_KILLED_STORE_RUN"
# Seconds for what a killed run has started to be gone, and for a run at most.
GRACE, PATIENCE = 20.0, 300.0


@dataclass
class Bench:
    """A checkout of one small profile, a cache of its own, the image of an undisturbed run and its seconds."""

    checkout: Cannery
    cache: Path
    image: str = ""
    seconds: float = 0.0

    @property
    def store(self) -> Path:
        return self.cache / "images"

    def start(self) -> subprocess.Popen[str]:
        command = (sys.executable, "-c", ELSEWHERE, str(self.checkout.root), "image", NAME, "--output", "store")
        env = {**os.environ, "CANNERY_CACHE": str(self.cache), MARK: "1"}
        return subprocess.Popen(
            (*command, "--json"),
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self) -> dict[str, Any]:
        process = self.start()
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    context = read_context(ROOT)
    # Beside the cache: the file system of /tmp may take no overlay.
    folder = Path(tmp_path_factory.mktemp("store-kills"))
    bare_cache(context.cache, folder / "cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("CANNERY_CACHE", str(folder / "cache"))
        start: Any = None  # no engine is asked
        text = profile_text(str(context.arch), COMPONENTS)
        checkout = small_checkout(Cannery(start, {}), folder / "checkout", NAME, text)
        found = Bench(checkout, folder / "cache")
        found.run()  # the base is made
        forget(found, everything=True)
        begun = time.monotonic()
        found.image = found.run()["id"]
        found.seconds = time.monotonic() - begun
        yield found
    shutil.rmtree(folder, ignore_errors=True)


def forget(bench: Bench, *, everything: bool) -> None:
    """Take away what a run has to make: with `everything` the byte code too. The stand-in base stays."""
    names = bench.store / "names"
    for note in names.glob("*.json"):
        if not json.loads(note.read_text())["name"].startswith("cannery-standin:"):
            note.unlink()
    kept = {name for note in names.glob("*.json") for name in parts(bench, json.loads(note.read_text())["id"])}
    for path in bench.store.glob("blobs/sha256/*"):
        if path.name not in kept:
            remove_path(path)
    for folder in ("verified", *(["layers"] if everything else [])):
        shutil.rmtree(bench.cache / folder, ignore_errors=True)


def parts(bench: Bench, image: str) -> set[str]:
    """Return the names of the blobs of an image."""
    config = json.loads((bench.store / "blobs/sha256" / image[7:]).read_text())
    notes = [bench.store / "layers" / f"{diff_id[7:]}.json" for diff_id in config["rootfs"]["diff_ids"]]
    return {image[7:], *(json.loads(note.read_text())["digest"][7:] for note in notes)}


def faults(bench: Bench) -> list[str]:
    """Return what is wrong after a run: processes, mounts, blobs that are not what their names say."""
    deadline = time.monotonic() + GRACE
    while (left := alive()) and time.monotonic() < deadline:
        time.sleep(0.1)
    found = [f"process {pid} has outlived the run" for pid in left]
    mounts = Path("/proc/self/mounts").read_text()
    found += ["a mount is left"] if str(bench.cache) in mounts else []
    for path in bench.store.glob("blobs/sha256/*"):
        pieces = json.loads((path / PIECES).read_text()) if path.is_dir() else []
        size = sum(length for _, _, length in pieces)
        with Store(bench.store).open(Blob(f"sha256:{path.name}", size)) as stream:
            if hashlib.sha256(stream.readall()).hexdigest() != path.name:
                found.append(f"{path.name} has other bytes than its name")
    return found


def alive() -> list[int]:
    """Return the processes that a run has left."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                if f"{MARK}=1".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_run_that_is_killed_goes_on(bench: Bench, number: int) -> None:
    chance = random.Random(number)
    how = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[number % 4]
    forget(bench, everything=chance.random() < 0.5)
    process = bench.start()
    time.sleep(chance.uniform(0.05, bench.seconds))
    if number % 4 == 1:  # all of it at once, as when a machine stops
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    _out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    if how in {signal.SIGINT, signal.SIGTERM}:
        # A run that had ended by then is done.
        assert process.returncode in {ExitCode.INTERRUPTED, ExitCode.DONE, -how}, err
    assert faults(bench) == []
    again = bench.run()
    assert again["id"] == bench.image
    assert again["report"]["result"] == "passed"
    assert faults(bench) == []
    assert [path.name for path in (bench.cache / "boxes").iterdir() if path.is_dir()] == []
    assert not list(bench.store.glob("unpacked/*.part"))
