"""Files of a checkout that are written together, by one run at a time: all of them, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.util.io.files import shown_path
from cannery.util.io.held_signals import signals_held
from cannery.util.io.locks import held
from cannery.util.io.write_errors import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# How the names of new files and of old ones that are kept end, until all is done. With the dot in front of them they
# are no locks and no profiles to whoever reads the folders.
TEMPORARY = ".cannery"
WAITING = "another run of `build.py lock` writes to this checkout: waiting for it"


class HalfWrittenError(UnableError):
    """A file could not be written, and of those written before it some could not be put back."""


def write_together(root: Path, say: Callable[[str], None], texts: Sequence[tuple[Path, str]]) -> bool:
    """Write each text to its file, in this order, or change nothing; return whether any file changed.

    A file that is a symlink stays one: its target is written. New files are written whole and synced beside the old
    ones first; then they are renamed into place, while signals wait. A SIGKILL between two renames leaves the first
    ones new and the others old, so the order is the caller's to choose, who holds the checkout (`checkout_held`).

    Raises `UnableError`, which names the file, the reason and what to do: nothing is changed then. When even the old
    files cannot be put back it is a `HalfWrittenError`.
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
    """A file to write: how it is shown, where it is, its new text beside it, and its old one (None: there is none)."""

    path: Path
    target: Path
    new: Path
    old: Path | None


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
            new = self._write(target, data, mode)
            self.staged.append(_Staged(shown, target, new, self._keep(target, new)))
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

    def _keep(self, target: Path, new: Path) -> Path | None:
        """Keep the old file under another name too: to put it back is then a rename, which needs no room."""
        if not target.exists():
            return None
        old = new.with_name(f"{new.name.removesuffix(TEMPORARY)}.old{TEMPORARY}")
        self.temporary.append(old)
        try:
            old.hardlink_to(target)
        except OSError:  # file systems without hard links; what else may be wrong is wrong for a copy too
            shutil.copy2(target, old)
        return old

    def rename(self) -> None:
        for done, one in enumerate(self.staged):
            try:
                one.new.replace(one.target)
            except OSError as error:
                self._undo(self.staged[:done], error)
                raise unwritable(error, one.path) from error
        for folder in {one.target.parent for one in self.staged}:
            _sync(folder)

    def _undo(self, done: Sequence[_Staged], error: OSError) -> None:
        lost: list[_Staged] = []
        for one in reversed(done):
            try:
                if one.old is None:
                    one.target.unlink()
                else:
                    one.old.replace(one.target)
            except OSError:
                lost.append(one)
        if not lost:
            return
        kept = [one.old for one in lost if one.old]
        self.temporary = [path for path in self.temporary if path not in kept]
        raise HalfWrittenError(
            f"{', '.join(str(one.path) for one in lost)}: written, while another file could not be ({error.strerror})",
            hint=f"put back what they were: {', '.join(map(str, kept))}" if kept else "remove them",
        ) from error

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
