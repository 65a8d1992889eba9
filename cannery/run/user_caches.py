"""The user's own folders of models, which a container of theirs shares: what was downloaded once stays (case U03)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.recipe.overlay import CACHE_HOME
from cannery.run.mounts import Mount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.image_user import ImageUser

# Where root's programs look; images with a user have CACHE_HOME, by the variables of their environment.
ROOTS = "/root/.cache"
# Folder below ~/.cache -> the variable by which the user keeps it elsewhere. Not all of ~/.cache: pip's and the like
# belong to a user, and what root writes there its owner cannot remove.
CACHES = {"huggingface": "HF_HOME", "modelscope": "MODELSCOPE_CACHE"}


def user_caches(env: Mapping[str, str], user: ImageUser | None = None) -> tuple[Mount, ...]:
    """Return the mounts of the caches that `env` (of the host's user) names, at those of the image's `user` (or root).

    Of a cache that is named by a relative path, or by no home at all, nothing is known.
    """
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    places = {name: env.get(variable) or (f"{base}/{name}" if base else "") for name, variable in CACHES.items()}
    return tuple(
        Mount(str(PurePosixPath(place)), f"{ROOTS if user is None else CACHE_HOME}/{name}")
        for name, place in places.items()
        if place.startswith("/")
    )
