"""What every download needs to know of this run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.util.io.pip_settings import PipSettings


@dataclass(frozen=True)
class Downloads:
    """Where downloaded files are kept, how a line is printed for the user, and the host's pip settings.

    The settings are a function, since asking pip takes half a second: a cache that has every file does not ask.
    """

    cache: Path
    say: Callable[[str], None]
    settings: Callable[[], PipSettings]
