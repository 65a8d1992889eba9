"""Laid into a plugin that patched other packages at import: its patches were applied when the image was made.

`apply_patch` and `after_patch_check` take the place of the plugin's functions of these names. They change nothing, and
need no `patch`, no `git` and no tree that can be written to: they say, once a process and on the first rank alone, what
the trees lack of the patches that the image's manifest lists. Standard library only, Python 3.10 and later.
"""

from contextlib import suppress
from pathlib import Path
from types import ModuleType

PATCHED = "/opt/cannery/patched.py"

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
    with suppress(Exception):
        module = ModuleType("cannery_patched")
        exec(compile(Path(PATCHED).read_bytes(), PATCHED, "exec"), module.__dict__)
        module.report()
