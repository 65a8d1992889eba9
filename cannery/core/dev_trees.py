"""Working trees of the user's over those of the image: edits are seen without a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.core.errors import UsageError
from cannery.core.mounts import Mount
from cannery.core.trees import tree_links
from cannery.core.words import Install, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.core.plan import Plan


def dev_mounts(plan: Plan, folders: Mapping[str, str]) -> tuple[Mount, ...]:
    """Return the mounts of `folders` (component: folder of the host) over the trees of the image.

    Raises `UsageError` for a name that is no source of the profile, and for one that stands in no tree there.
    """
    standing = {step.name: step for step in plan.sources if step.install is not Install.WHEEL}
    known = {chosen.name for chosen in plan.recipe.sources}
    for name in folders:
        if name not in known:
            raise UsageError(f"--dev {name}: no source of {plan.recipe.name}", hint=did_you_mean(name, standing))
        if name not in standing:
            hint = f"SRC_{name}={folders[name]} builds it in; trees of this image: {', '.join(standing) or 'none'}"
            raise UsageError(f"--dev {name}: the image has it installed, and no tree to mount over", hint=hint)
    return tuple(Mount(folder, standing[name].path) for name, folder in folders.items())


def dev_notes(plan: Plan, mounts: tuple[Mount, ...]) -> Iterator[str]:
    """Give what is no more as in the image where `mounts` stand over its trees."""
    for mount in mounts:
        name = mount.target.rpartition("/")[2]
        yield (
            f"{mount.target} is {mount.source}: patches of the image's own {name} are not in force there until checked "
            "(`python /opt/cannery/verify.py` in the container)"
        )
        for path, target in tree_links(plan.recipe):
            if path.startswith(f"{mount.target}/"):
                yield f"{path} is hidden, a link to {target}: make one in {mount.source} when it is imported"
