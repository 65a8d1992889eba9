"""Checks the user's folders on this host before a container starts, and makes missing cache folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.host.facts import user_map_text
from cannery.run.container import host_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cannery.catalog.catalog import ImageUser
    from cannery.engine.io.find import Engine
    from cannery.run.container import Container, RunAs
    from cannery.sandbox.box import Mount


def ready_caches(
    mounts: tuple[Mount, ...], say: Callable[[str], None], *, make: bool, user: ImageUser | RunAs | None = None
) -> Iterator[Mount]:
    """Yield the `mounts` whose folder exists or, with `make`, can be made.

    A folder that this user cannot write is mounted read-only, because root could write it in the container. `user` is
    the container's user (None: root); folders that root makes here belong to it. `say` prints a warning for each folder
    that cannot be made or written.
    """
    for mount in mounts:
        folder = Path(mount.source)
        if make:
            try:
                _make(folder, user)
            except OSError as error:
                what = f"{folder} cannot be made: {error.strerror}"
                say(f"warning: {what}; models downloaded in the container are lost with it")
                continue
        if not folder.is_dir():
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            if user is not None and not _writes(user, folder):
                say(
                    f"warning: the container's user {user.name} ({user.uid}) cannot write {folder}, which is "
                    f"uid {folder.stat().st_uid}'s: models that it downloads are not kept; "
                    f"setfacl -m u:{user.uid}:rwx {folder} lets it, --no-caches leaves the image's own in place"
                )
            yield mount
        else:
            say(f"warning: you cannot write {folder}: the container only reads it, and keeps no models there")
            yield replace(mount, read_only=True)


def _make(folder: Path, user: ImageUser | RunAs | None) -> None:
    """Make a folder if it is missing; one that root makes belongs to `user`. Raises `OSError`."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if user is not None and os.geteuid() == 0:
        os.chown(folder, user.uid, user.gid)


def _writes(user: ImageUser | RunAs, folder: Path) -> bool:
    """Whether `user` may write in `folder` by owner, group and mode. Access lists are not read."""
    if user.uid == 0:
        return True
    about = folder.stat()
    wanted = 0o300 if about.st_uid == user.uid else 0o030 if about.st_gid == user.gid else 0o003
    return about.st_mode & wanted == wanted


def start_warnings(container: Container, engine: Engine) -> Iterator[str]:
    """Yield warnings about nodes that the container cannot open, and about folders that docker would make."""
    if not engine.host.startswith("unix://"):
        here = "cards, driver and folders are read from this one"
        yield f"the engine is on another host, {engine.host}, and {here}: run build.py there"
        return
    if engine.user_map and container.group is not None:
        users = user_map_text(engine.user_map)
        yield f"{users}: nodes of mode 0660 stay closed; `build.py doctor` names what opens them"
    for volume in container.request.volumes:
        folder = host_folder(volume)
        if folder and _is_absent(Path(folder)):
            yield f"-v {volume}: it does not exist, and docker makes an empty folder there, owned by root"


def _is_absent(folder: Path) -> bool:
    """Whether a folder is missing on this host, as far as this user can see."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass  # it exists, and this user cannot read it
    return False
