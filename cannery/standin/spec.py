"""The stand-in base: its reference, which follows from inputs alone, and its image configuration.

A stand-in has the shape of the CANN image that a target names (environment, entrypoint, paths, version files) and no
CANN inside. What it holds beside Debian packages is `cannery.standin.tree`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cannery.errors import FindingsError
from cannery.recipe.environment import expand_env, python_home
from cannery.standin.elf import shared_library
from cannery.standin.tree import cann_tree
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.catalog.catalog import BaseLine, BaseTag, StandIn
    from cannery.catalog.target import Target
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.recipe.recipe import Recipe

REPOSITORY = "cannery-standin"
DIGITS = 12
# The distribution whose CANN libraries are stubbed.
TORCH_NPU = "torch-npu"
SHELL = ("/bin/bash", "-c")


@dataclass(frozen=True)
class StandInSpec:
    """Everything that decides what a stand-in image holds; `torch_npu` is None for a stack without it (no stubs)."""

    data: StandIn
    target: Target
    line: BaseLine
    tag: BaseTag
    torch_npu: LockedPackage | None

    @property
    def env(self) -> dict[str, str]:
        """The environment of the image: that of the CANN image which it replaces."""
        return expand_env(self.line, self.target, self.tag)

    @property
    def python_home(self) -> str:
        """The interpreter's folder, named as in the CANN image. The interpreter there is Debian's."""
        return python_home(self.tag)

    @property
    def reference(self) -> str:
        """`cannery-standin:<cann>-<chip>-<os>-py<python>-<arch>-<12 hex of the digest of all that is in it>`."""
        return f"{REPOSITORY}:{self.target}-{self.digest}"

    @property
    def digest(self) -> str:
        """12 hex digits over the recipe, the files and configuration made from it, and the torch_npu wheel.

        How stubs are written shows in one made as a sample; how the Debian system is made, in the recipe's `schema`.
        """
        wheel, arch = self.torch_npu, self.target.arch
        content = {
            "recipe": self.data.model_dump(mode="json"),
            "target": asdict(self.target),
            "tree": repr(cann_tree(self, {})),
            "config": {"env": list(self.env.items()), "entrypoint": entrypoint(self.line.set_env)},
            "stub": shared_library(arch, "libsample.so", functions=["f"], objects=["o"]).hex(),
            "torch_npu": [wheel.version, wheel.sha256] if wheel else None,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


def standin_spec(recipe: Recipe, lock: Lock, data: StandIn) -> StandInSpec:
    """Return what the stand-in of `recipe` for the lock's arch is made from.

    Raises `FindingsError` where the target's Python is not the stand-in's, or its base does not exist.
    """
    target = recipe.target
    if lock.arch is not target.arch:
        target = type(target)(target.cann, target.chip, target.os, target.python, lock.arch)
    if target.python != data.python:
        raise FindingsError(
            f"the stand-in base has Python {data.python} only, the target needs {target.python}",
            where="images/standin/recipe.yaml",
            hint=f'take PYTHON="{data.python}", or a real base',
        )
    wheel = next((package for package in lock.packages if package.name == TORCH_NPU), None)
    spec = StandInSpec(data, target, recipe.base.line, recipe.base.tag, wheel)
    expand_env(spec.line, target, spec.tag)
    return spec


def standin_reference(recipe: Recipe, lock: Lock, data: StandIn) -> str:
    """Return the reference of the stand-in image of `recipe` for the lock's arch; raises as `standin_spec`."""
    return standin_spec(recipe, lock, data).reference


def entrypoint(set_env: Sequence[str]) -> tuple[str, ...]:
    """Return the ENTRYPOINT of CANN images: source each script, then become the command."""
    steps = [f"source {text}" for text in set_env]
    return (*SHELL, " && ".join([*steps, 'exec "$@"']), "--")


def labels(spec: StandInSpec) -> dict[str, str]:
    """Return the labels of the image; they name what it is not."""
    return {
        "org.cannery.base.kind": str(BaseKind.STANDIN),
        "org.cannery.standin": spec.digest,
        "org.cannery.standin.for": spec.target.base_tag,
        "org.cannery.standin.suite": spec.data.suite,
        "org.cannery.warning": "stand-in base: no CANN inside, it can run nothing on an NPU",
        "org.opencontainers.image.title": "Stand-in for a CANN base image",
    }


def image_config(spec: StandInSpec, diff_ids: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the image configuration (OCI image-spec, with Docker's `Shell`).

    `diff_ids` are the layers from the lowest up: (`sha256:…` of the uncompressed tar, what it is). CANN images set no
    CMD, so there is none here.
    """
    created = datetime.fromtimestamp(spec.data.epoch, UTC).isoformat().replace("+00:00", "Z")
    return {
        "architecture": str(spec.target.arch),
        "os": "linux",
        "created": created,
        "config": {
            "Env": [f"{name}={value}" for name, value in spec.env.items()],
            "Entrypoint": list(entrypoint(spec.line.set_env)),
            "Shell": list(SHELL),
            "WorkingDir": "/",
            "Labels": labels(spec),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in diff_ids]},
        "history": [{"created": created, "created_by": f"cannery: {what}"} for _, what in diff_ids],
    }
