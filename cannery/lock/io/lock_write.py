"""Write a lock into the checkout, unless what it was made from has changed while it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.errors import CanneryError, FindingsError
from cannery.lock.check import lock_problems
from cannery.lock.text import format_lock
from cannery.util.io.checkout_lock import checkout_held
from cannery.util.io.write_set import write_together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lock.lock import Lock, LockRequest


def write_lock(context: Context, path: Path, lock: Lock, request: Callable[[Catalog], LockRequest]) -> bool:
    """Write `lock` to `path` in the checkout; return whether the file changed.

    `request` says what is asked for by a catalog. images/ is read once more for that, behind whoever else writes:
    raises `FindingsError` when the lock is no answer any more, `UnableError` when the file cannot be written.
    """
    with checkout_held(context):
        if not _answers(lock, context, request):
            raise changed(str(context.shown(path)), "not written: the profile, its components or its base have changed")
        return write_together(context, [(path, format_lock(lock))])


def changed(where: str, what: str) -> FindingsError:
    """Return the error to raise when something was edited, or written by another run, under a run."""
    return FindingsError(f"{what} while the set was resolved", where=where, hint="run the same command again")


def _answers(lock: Lock, context: Context, request: Callable[[Catalog], LockRequest]) -> bool:
    try:
        catalog = context.catalog()
        return not lock_problems(lock, request(catalog), catalog.indexes)
    except CanneryError:  # removed, or half an edit, which the next run names
        return False
