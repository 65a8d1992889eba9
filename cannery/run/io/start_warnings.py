"""What to know before a container starts: an engine, or a folder, that is not as its user may think."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cannery.host.facts import user_map_text
from cannery.run.container_words import host_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.engine.io.find import Engine
    from cannery.run.container import Container


def start_warnings(container: Container, engine: Engine) -> Iterator[str]:
    """Give what the engine will not do as asked: nodes that stay closed, folders that it makes or has not."""
    if not engine.host.startswith("unix://"):
        told = "cards, driver and folders were looked for on this one"
        yield f"the engine is on another host, {engine.host}, and {told}: run build.py there"
        return
    if engine.user_map and container.group is not None:
        told = user_map_text(engine.user_map)
        yield f"{told}: nodes of mode 0660 stay closed; `build.py doctor` says what opens them"
    for volume in container.request.volumes:
        folder = host_folder(volume)
        if folder and _is_absent(Path(folder)):
            yield f"-v {volume}: it is not there, and docker makes an empty folder of it, root's own"


def _is_absent(folder: Path) -> bool:
    """Whether a folder of this host is not there, as far as this user may look."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass  # it is there, and closed
    return False
