"""Where settings of this machine are. `cannery.host.io.settings` reads them, a stamp only looks for a change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# In the working folder.
OF_FOLDER = "cannery.toml"


def user_file(env: Mapping[str, str]) -> Path:
    """Return where the user's own settings are: `~/.config/cannery/config.toml`, below XDG_CONFIG_HOME if it is set."""
    home = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or "/") / ".config"
    return Path(home) / "cannery/config.toml"
