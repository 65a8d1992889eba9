"""Files of a checkout that are written together, by one run at a time: all of them, or none."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.util.io.files import shown_path
from cannery.util.io.locks import held
from cannery.util.io.process import signals_held
from cannery.util.io.write_errors import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# How the names of new files end, until all is done. With the dot in front of them they are no locks and no profiles to
# whoever reads the folders.
TEMPORARY = ".cannery"
WAITING = "another run of `build.py lock` writes to this checkout: waiting for it"


class HalfWrittenError(UnableError):
    """A file could not be put in its place, and those before it are written."""


def write_together(root: Path, say: Callable[[str], None], texts: Sequence[tuple[Path, str]]) -> bool:
    """Write each text to its file, in this order, or change nothing; return whether any file changed.

    A file that is a symlink stays one: its target is written. New files are written whole and synced beside the old
    ones first; then they are renamed into place, while signals wait. Between two renames a SIGKILL, or a disk that is
    gone, leaves the first ones new and the others old, so the order is the caller's to choose, who holds the checkout
    (`checkout_held`): what a later run repairs comes first.

    Raises `UnableError`, which names the file, the reason and what to do: nothing is changed then, unless it is a
    `HalfWrittenError`.
    """
    work = _WriteSet(root)
    try:
        for path, text in texts:
            work.stage(path, text.encode())
        with signals_held() as came:
            work.rename()
            if came and work.staged:
                say(f"written before the interrupt: {', '.join(str(one.path) for one in work.staged)}")
    finally:
        work.clean()
    return bool(work.staged)


@contextmanager
def checkout_held(root: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the checkout at `root` for one writer; wait for another one, and report that by `say`.

    It is held for the writing alone, some milliseconds, and not for the minutes of a resolution: whoever writes checks
    first that what the new text was made from is still the same. Leftovers of runs that were killed while they held it
    are removed. Raises `UnableError` when it cannot be locked.
    """
    with held(root / f".writing{TEMPORARY}", lambda: say(WAITING)):
        _remove_leftovers(root / "images")
        yield


def _remove_leftovers(images: Path) -> None:
    """Remove what runs that were killed left among profiles and locks, as far as it can be removed."""
    for pattern in ("profiles", "locks/*"):
        for leftover in images.glob(f"{pattern}/.*{TEMPORARY}"):
            with suppress(OSError):
                leftover.unlink()


@dataclass(frozen=True)
class _Staged:
    """A file to write: how it is shown, where it is, and its new text beside it."""

    path: Path
    target: Path
    new: Path


@dataclass
class _WriteSet:
    root: Path
    staged: list[_Staged] = field(default_factory=list)
    temporary: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def stage(self, path: Path, data: bytes) -> None:
        shown, target = shown_path(path, self.root), Path(os.path.realpath(path))
        try:
            if target.is_file() and target.read_bytes() == data:
                return
            self._make(target.parent)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
            self.staged.append(_Staged(shown, target, self._write(target, data, mode)))
        except OSError as error:
            raise unwritable(error, shown) from error

    def _make(self, folder: Path) -> None:
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir()
            self.folders.append(place)

    def _write(self, target: Path, data: bytes, mode: int) -> Path:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=TEMPORARY, dir=target.parent)
        self.temporary.append(Path(name))
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        return Path(name)

    def rename(self) -> None:
        for done, one in enumerate(self.staged):
            try:
                one.new.replace(one.target)
            except OSError as error:
                failed = unwritable(error, one.path)
                if not done:
                    raise failed from error
                written = ", ".join(str(one.path) for one in self.staged[:done])
                raise HalfWrittenError(
                    f"{failed.what}; written before it: {written}", where=failed.where, hint=failed.hint
                ) from error
        for folder in {one.target.parent for one in self.staged}:
            _sync(folder)

    def clean(self) -> None:
        for path in self.temporary:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        for folder in reversed(self.folders):
            with suppress(OSError):  # not empty: it is used
                folder.rmdir()


def _sync(folder: Path) -> None:
    """Let the renames reach the disk; some file systems cannot, and the files are right without it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
