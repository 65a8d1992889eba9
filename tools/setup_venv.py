"""Make .venv from the locked requirements; do nothing if it is up to date.

    python3 tools/setup_venv.py [--dev]

Standard library and pip only. Debian's Python has no `ensurepip`, so the environment is made by uv, which pip brings
into a temporary folder; the packages are installed by pip, whose settings (index, proxy, certificate, credentials) are
thus in force. A stamp is written last: an interrupted run starts over.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)


def main() -> int:
    """Update .venv and return an exit code of build.py (4: the host cannot do it, 7: network)."""
    parser = argparse.ArgumentParser(description="Make .venv from the locked requirements.")
    parser.add_argument("--dev", action="store_true", help="with what tests and linters need")
    files = [ROOT / "requirements.txt"]
    if parser.parse_args().dev:
        files.append(ROOT / "requirements-dev.txt")
    if sys.version_info < OLDEST:
        return complain(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]}")
    if current(files):
        return 0
    try:
        with (ROOT / ".venv.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return make(files)
    except OSError as error:  # read-only, another owner, full
        hint = "run as the owner of this checkout, or as root"
        return complain(f"{VENV.name} cannot be made: {error}", hint)


def stamps(files: list[Path]) -> dict[Path, str]:
    """Return {stamp file: its text if the environment is up to date}.

    Which Python made it does not matter: `make` and `python build.py` may find different ones, and either will do.
    """
    return {VENV / f".{path.stem}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def holds(stamp: Path, text: str) -> bool:
    """Whether a stamp exists and holds `text`."""
    return stamp.exists() and stamp.read_text() == text


def current(files: list[Path]) -> bool:
    """Whether nothing has to be done. Nothing is written then, so a read-only checkout works too."""
    return os.access(VENV / "bin/python", os.X_OK) and all(holds(stamp, text) for stamp, text in stamps(files).items())


def make(files: list[Path]) -> int:
    """Create the environment if it or its Python is missing, then install each file that changed."""
    wanted = stamps(files).items()
    whole = VENV / ".whole"
    if not (VENV / "bin/python").exists() or not whole.exists():
        shutil.rmtree(VENV, ignore_errors=True)
    todo = [(path, *stamp) for path, stamp in zip(files, wanted, strict=True) if not holds(*stamp)]
    if not todo:  # another run made it meanwhile
        return 0
    names = ", ".join(path.name for path, _, _ in todo)
    print(f"setting up {VENV.name} from {names}", file=sys.stderr, flush=True)
    if subprocess.run((sys.executable, "-m", "pip", "--version"), capture_output=True, check=False).returncode != 0:
        return complain(f"{sys.executable} has no pip", "apt-get install python3-pip, or another python3 first on PATH")
    if not VENV.exists():
        create(files[0])
        whole.touch()
    for path, stamp, text in todo:
        pip("--python", str(VENV / "bin/python"), "install", "--no-deps", "--require-hashes", "-r", str(path))
        stamp.write_text(text)
    return 0


def create(requirements: Path) -> None:
    """Make an empty environment with uv, at the locked version, from a temporary folder."""
    text = requirements.read_text()
    start = text.index("\nuv==") + 1
    end = text.find("\n", text.index("    # via", start)) if "    # via" in text[start:] else len(text)
    with tempfile.TemporaryDirectory() as folder:
        locked = Path(folder, "uv.txt")
        locked.write_text(text[start:end] + "\n")
        pip("install", "--no-deps", "--require-hashes", "--target", f"{folder}/uv", "-r", str(locked))
        uv = (f"{folder}/uv/bin/uv", "venv", "--quiet", "--no-config", "--python", sys.executable, str(VENV))
        subprocess.run(uv, check=True)


def pip(*arguments: str) -> None:
    """Run pip of this Python. If it fails, end with exit code 7: the cause is nearly always the index."""
    quiet = ("--disable-pip-version-check", "-qq", "--no-input")
    done = subprocess.run((sys.executable, "-m", "pip", *arguments, *quiet), check=False)
    if done.returncode != 0:
        sys.exit(complain("pip could not install the locked requirements", "its message is above", code=7))


def complain(what: str, hint: str = "", code: int = 4) -> int:
    """Print an error as build.py does and return its exit code."""
    print(f"error: {what}" + (f"\n  → {hint}" if hint else ""), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
