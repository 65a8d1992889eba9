"""The user's own folders in a container: caches of models, and working trees over those of the image."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from cannery.errors import UsageError
from cannery.recipe.overlay import CACHE_HOME
from cannery.recipe.recipe import tree_links
from cannery.run.mounts import Mount
from cannery.vocab import Install, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.image_user import ImageUser
    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import Recipe

T = TypeVar("T")
# Where root's programs look; images with a user have CACHE_HOME, by the variables of their environment.
ROOTS = "/root/.cache"
# Folder below ~/.cache -> the variable by which the user keeps it elsewhere. Not all of ~/.cache: pip's and the like
# belong to a user, and what root writes there its owner cannot remove.
CACHES = {"huggingface": "HF_HOME", "modelscope": "MODELSCOPE_CACHE"}


def user_caches(env: Mapping[str, str], user: ImageUser | None = None) -> tuple[Mount, ...]:
    """Return the mounts of the caches that `env` (of the host's user) names, at those of the image's `user` (or root).

    A cache with a relative path, or without any home, is left out.
    """
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    places = {name: env.get(variable) or (f"{base}/{name}" if base else "") for name, variable in CACHES.items()}
    return tuple(
        Mount(str(PurePosixPath(place)), f"{ROOTS if user is None else CACHE_HOME}/{name}")
        for name, place in places.items()
        if place.startswith("/")
    )


def dev_names(recipe: Recipe, folders: Mapping[str, T]) -> dict[str, T]:
    """Return `folders` by component; a name may be the distribution's too, as for SRC_<name> (`verl` for verl-src).

    Raises `UsageError` for a name that is no source of the profile.
    """
    by_name = {one.package: one.name for one in recipe.sources} | {one.name: one.name for one in recipe.sources}
    for name in folders:
        if name not in by_name:
            hint = did_you_mean(name, {one.name for one in recipe.sources})
            raise UsageError(f"--dev {name}: no source of {recipe.name}", hint=hint)
    return {by_name[name]: folder for name, folder in folders.items()}


def dev_mounts(plan: Plan, folders: Mapping[str, str]) -> tuple[Mount, ...]:
    """Return the mounts of `folders` (component: folder of the host) over the trees of the image.

    Raises `UsageError` for a component that has no tree there.
    """
    standing = {step.name: step for step in plan.sources if step.install is not Install.WHEEL}
    for name in folders:
        if name not in standing:
            hint = f"SRC_{name}={folders[name]} builds it in; trees of this image: {', '.join(standing) or 'none'}"
            raise UsageError(f"--dev {name}: the image has no tree of it to mount over", hint=hint)
    return tuple(Mount(folder, standing[name].path) for name, folder in folders.items())


def dev_notes(plan: Plan, mounts: tuple[Mount, ...]) -> Iterator[str]:
    """Give a note on each thing that differs from the image where `mounts` cover its trees."""
    steps = {step.path: step for step in plan.sources}
    for mount in mounts:
        if steps[mount.target].patched_by:
            check = "`python /opt/cannery/patched.py` in the container"
            yield f"{mount.target} is {mount.source}: its patches count as not in force until checked ({check})"
        for path, target in tree_links(plan.recipe):
            if path.startswith(f"{mount.target}/"):
                yield f"{path} is hidden, a link to {target}: make one in {mount.source} when it is imported"
