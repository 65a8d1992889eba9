"""One writer at a time below a checkout's images/."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cannery.util.io.locks import folder_held
from cannery.util.io.write_set import remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.context import Context

WAITING = "another run of `build.py lock` writes to this checkout: waiting for it"


@contextmanager
def checkout_held(context: Context) -> Iterator[None]:
    """Hold the checkout for one writer; wait for another one, and say so. Raises `UnableError` when it has no lock.

    It is held for the writing alone, some milliseconds, and not for the minutes of a resolution: so whoever writes
    looks first whether what the new text was made from is still the same. Leftovers of runs that were killed while they
    held it are removed.
    """
    with folder_held(context, context.root / "images", WAITING):
        remove_leftovers(context.root / "images")
        yield
