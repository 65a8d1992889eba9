"""Laid into a plugin that patched other packages at import: its patches were applied when the image was made.

`apply_patch` and `after_patch_check` take the place of the plugin's functions of these names. They change nothing, and
need no `patch`, no `git` and no tree that can be written to: they say, once a process and on the first rank alone, what
the trees lack of the patches that the image's manifest lists. Standard library only, Python 3.10 and later.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

PATCHED = "/opt/cannery/patched.py"
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")

_done: list[bool] = []


def apply_patch() -> None:
    """Says what the trees lack; the patches themselves are in the image."""
    _report()


def after_patch_check() -> None:
    """The same; nothing when it was said before."""
    _report()


def _report() -> None:
    """Lets the image's own script report. Never raises, and writes no .pyc of that script: the tree may be root's."""
    if _done:
        return
    _done.append(True)
    try:
        module = ModuleType("cannery_patched")
        exec(compile(Path(PATCHED).read_bytes(), PATCHED, "exec"), module.__dict__)
    except Exception as error:
        if all(os.environ.get(name, "") in {"", "0"} for name in RANKS):
            why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            with suppress(Exception):
                text = f"cannery: {PATCHED} cannot be used ({why}): whether the patches are in force is not known"
                print(text, file=sys.stderr, flush=True)
        return
    module.report()
