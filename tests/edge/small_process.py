"""build.py on the small checkout in a process of its own: to be killed, held up, or run beside another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    import pytest
    from small_checkout import Small

ROOT = Path(__file__).resolve().parent.parent.parent
# A process that does what `{what}` says when `{left}` files below images/ have been renamed into place.
AT_RENAME = """\
import os, signal, errno
real, left = os.replace, [{left}]
def replace(old, new, **more):
    if "/images/" in str(new):
        left[0] -= 1
        if left[0] == -1:
            {what}
    return real(old, new, **more)
os.replace = replace
"""
# Root writes wherever it likes; without this capability (CAP_DAC_OVERRIDE) it does not.
AS_A_USER = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])",
)
NO_ENV: Mapping[str, str] = {}
WITHOUT_SIGINT = ("sh", "-c", 'trap "" INT; exec "$0" "$@"')


def command(
    small: Small, *words: str, before: str = "", through: tuple[str, ...] = (), env: Mapping[str, str] = NO_ENV
) -> dict[str, Any]:
    """Arguments of Popen for build.py on the checkout; `before` is code that runs first, `through` what starts it."""
    lines = ("import sys", "from pathlib import Path", "from cannery.cli import main", before)
    code = "\n".join((*lines, f"sys.exit(main({words!r}, Path({str(small.root)!r})))"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    args = [*through, sys.executable, "-c", code]
    return {"args": args, "env": {**os.environ, "PYTHONPATH": str(ROOT), **env}, **pipes}


def run(small: Small, *words: str, **more: Any) -> tuple[int, str, str]:  # noqa: ANN401 - those of `command`
    """Run build.py to its end: status and both outputs."""
    process = subprocess.Popen(**command(small, *words, **more))
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in out + err
    assert "[Errno" not in err
    return process.returncode, out, err


def kill_at(left: int, number: signal.Signals = signal.SIGKILL) -> str:
    """Code for `before`: the process gets a signal when `left` files of the checkout are written."""
    return AT_RENAME.format(left=left, what=f"os.kill(os.getpid(), {int(number)})")


def running_in(folder: Path) -> list[str]:
    """The programs whose working directory is below `folder`."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "comm").read_text().strip())
        except OSError:
            continue
    return found


def meanwhile(monkeypatch: pytest.MonkeyPatch, module: ModuleType, action: Callable[[], object]) -> None:
    """Let `action` happen, once and to its end, before the first resolution of `module` begins."""
    real, turn = module.resolve_lock, threading.Lock()
    done: list[bool] = []

    def resolve(*args: object, **more: object) -> object:
        with turn:
            if not done:
                done.append(True)
                action()
        return real(*args, **more)

    monkeypatch.setattr(module, "resolve_lock", resolve)
