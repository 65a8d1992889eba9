"""The user's folders of models on this host: made where they are missing, so that docker makes none as root."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cannery.core.mounts import Mount


def ready_caches(mounts: tuple[Mount, ...], say: Callable[[str], None], *, make: bool) -> Iterator[Mount]:
    """Give those of `mounts` whose folder is there, or with `make` could be made.

    One that this user cannot write is read-only in the container too, which would write it as root. `say` gets a
    warning for each that is not as it should be.
    """
    for mount in mounts:
        folder = Path(mount.source)
        if make:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                say(
                    f"warning: {folder} cannot be made: {error.strerror}; models downloaded in the container go with it"
                )
                continue
        if not folder.is_dir():
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            yield mount
        else:
            say(f"warning: you cannot write {folder}: the container reads it, and keeps no model that it downloads")
            yield replace(mount, read_only=True)
