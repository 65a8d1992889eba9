"""The parts of an image, in the order in which they are made, and the configuration that puts them together.

What needs a system is the foundation, at the bottom: BuildKit makes it, and a changed pin leaves it as it is. Groups of
wheels are made on the host. Sources are built on top of them, by BuildKit, since some compile against the wheels.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from posixpath import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from cannery.plan.manifest import labels
from cannery.recipe.environment import start_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.plan import Layer, Plan

# Fields of an image's configuration that it has from what it is built on.
_KEPT = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "ExposedPorts", "Volumes", "StopSignal", "Shell")


def foundation_reference(plan: Plan) -> str:
    """Return the name of a plan's foundation in the engine: with the digest of all that decides what is in it."""
    layers = [[layer.name, layer.digest] for layer in plan.foundation]
    inputs = (plan.base_reference, str(plan.recipe.target.arch), start_folder(plan.recipe), layers)
    return f"cannery-foundation:{_key(*inputs)}"


class Part(NamedTuple):
    """A target of the rendered folder, what its image is called, and the images that are stages below it, by stage."""

    target: str
    reference: str
    contexts: Mapping[str, str] = {}


def part_references(below: Sequence[str], layers: Sequence[Layer]) -> tuple[str, str]:
    """Return what the image of the layers `below` (diff ids) is called while sources, `layers`, are built on it.

    The second name is that of the image with the sources.
    """
    return f"cannery-wheels:{_key(*below)}", f"cannery-sources:{_key(*below, *(layer.digest for layer in layers))}"


def _key(*inputs: Any) -> str:  # noqa: ANN401 - JSON
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Settings:
    """What an image sets on top of the configuration below it: environment, labels, and `config` as Docker has it."""

    env: Mapping[str, str]
    labels: Mapping[str, str]
    config: Mapping[str, Any]


def settings_of(plan: Plan) -> Settings:
    """Return what the image of `plan` sets, as templates/Dockerfile.j2 does."""
    user = plan.recipe.profile.user
    env = {**plan.env, **({"HOME": user.home} if user else {})}
    config = {"Cmd": ["/bin/bash"], "Entrypoint": None, **({"User": str(user.uid)} if user else {})}
    return Settings(env, labels(plan), config)


def layer_words(layers: Iterable[Layer]) -> list[str]:
    """Return what each layer is called in an image's history."""
    return [f"cannery: {layer.name}: {layer.summary}" for layer in layers]


def env_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of an image by the part `Config` of its configuration."""
    return dict(line.split("=", 1) for line in config.get("Env") or ())


def image_config(
    parent: Mapping[str, Any], diff_ids: Sequence[str], words: Sequence[str], settings: Settings, epoch: int
) -> dict[str, Any]:
    """Return the configuration of an image of some layers on those of another (OCI image specification, "config").

    `parent` is what the engine reports of that one (`docker inspect`), `epoch` the new image's time in seconds;
    `words` go into the history, one for each layer.
    """
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    before = parent["Config"]
    env = env_of(before)
    config = {name: before[name] for name in _KEPT if before.get(name)}
    config |= {"Env": [f"{name}={value}" for name, value in {**env, **settings.env}.items()]}
    config |= {"Labels": {**(before.get("Labels") or {}), **settings.labels}, **settings.config}
    layers = parent["RootFS"]["Layers"]
    history = ["layer of the image below"] * len(layers) + list(words)
    return {
        "architecture": parent["Architecture"],
        "os": parent["Os"],
        **({"variant": parent["Variant"]} if parent.get("Variant") else {}),
        "created": created,
        "config": {name: value for name, value in config.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [*layers, *diff_ids]},
        "history": [{"created": created, "created_by": text} for text in history],
    }


def config_text(config: Mapping[str, Any]) -> bytes:
    """Return a configuration as bytes, whose SHA-256 is the image's id in an engine with the classic store."""
    return json.dumps(config, sort_keys=True).encode()


def common_layers(layers: Sequence[str], images: Iterable[Sequence[str]]) -> int:
    """Return how many of `layers`, from the lowest up, an engine has whose images have these layers.

    A classic engine knows a layer only on the ones that it was put on.
    """
    return max((len(commonprefix([[*layers], [*image]])) for image in images), default=0)
