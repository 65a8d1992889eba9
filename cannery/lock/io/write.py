"""Write a lock into the checkout, unless what it was made from has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.errors import CanneryError, FindingsError
from cannery.lock.check import lock_problems
from cannery.lock.text import format_lock
from cannery.util.io.write_set import checkout_held, write_together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.store import LockStore
    from cannery.lock.lock import Lock, LockRequest


def write_lock(store: LockStore, path: Path, lock: Lock, ask: Callable[[Catalog], LockRequest]) -> bool:
    """Write `lock` to `path` in the checkout; return whether the file changed.

    `ask` makes the request from a catalog. images/ is read once more for that, while no other run writes: raises
    `FindingsError` when the lock does not answer any more, `UnableError` when the file cannot be written.
    """
    with checkout_held(store.home, store.say):
        try:
            catalog = store.catalog()
            is_current = not lock_problems(lock, ask(catalog), catalog.indexes)
        except CanneryError:  # removed, or half an edit, which the next run names
            is_current = False
        if not is_current:
            what = "not written: the profile, its components or its base have changed"
            raise changed(str(store.shown(path)), what)
        return write_together(store.home, store.say, [(path, format_lock(lock))])


def changed(where: str, what: str) -> FindingsError:
    """Return the error to raise when a file was edited, or written by another run, during this run."""
    return FindingsError(f"{what} while the set was resolved", where=where, hint="run the same command again")
