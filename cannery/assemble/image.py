"""Names of the parts of an image, and the image configuration that lists their layers.

The lowest part is the foundation: system packages and the empty virtual environment. BuildKit or a sandbox makes it,
and a changed pin does not change it. The host makes the layers of wheels. Sources are built on top, because some of
them compile against the wheels.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from posixpath import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from cannery.engine.oci import env_of
from cannery.plan.manifest import labels
from cannery.recipe.environment import start_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.plan import Layer, Plan

# Fields of the configuration that an image takes over from its base.
_KEPT = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "ExposedPorts", "Volumes", "StopSignal", "Shell")

# A label with the `sys.version` of a foundation in a registry. It decides the byte code of images built on it.
PYTHON_LABEL = "org.cannery.python"


def foundation_reference(plan: Plan) -> str:
    """Return the name of a plan's foundation, which ends with a digest of all its inputs."""
    layers = [[layer.name, layer.digest] for layer in plan.foundation]
    inputs = (plan.base_reference, str(plan.recipe.target.arch), start_folder(plan.recipe), layers)
    return f"cannery-foundation:{_key(*inputs)}"


class Part(NamedTuple):
    """A target of the bake file, the name of its image, and {stage: image} of lower stages that are already built."""

    target: str
    reference: str
    contexts: Mapping[str, str] = {}


def part_references(below: Sequence[str], layers: Sequence[Layer]) -> tuple[str, str]:
    """Return the names of two images: the layers `below` (DiffIDs), and the source `layers` built on top of them."""
    return f"cannery-wheels:{_key(*below)}", f"cannery-sources:{_key(*below, *(layer.digest for layer in layers))}"


def _key(*inputs: Any) -> str:  # noqa: ANN401 - JSON
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Settings:
    """Settings that an image adds to those of its base: environment, labels, and other fields of Docker's `Config`."""

    env: Mapping[str, str]
    labels: Mapping[str, str]
    config: Mapping[str, Any]


def settings_of(plan: Plan) -> Settings:
    """Return the settings of the image of `plan`. templates/Dockerfile.j2 sets the same."""
    user = plan.recipe.profile.user
    env = {**plan.env, **({"HOME": user.home} if user else {})}
    config = {"Cmd": ["/bin/bash"], "Entrypoint": None, **({"User": str(user.uid)} if user else {})}
    return Settings(env, labels(plan), config)


def layer_words(layers: Iterable[Layer]) -> list[str]:
    """Return the text of each layer for the history of an image."""
    return [f"cannery: {layer.name}: {layer.summary}" for layer in layers]


def image_config(
    parent: Mapping[str, Any], diff_ids: Sequence[str], words: Sequence[str], settings: Settings, epoch: int
) -> dict[str, Any]:
    """Return the OCI configuration of an image: the layers of `parent`, and `diff_ids` on top.

    `parent` is the output of `docker inspect`. `words` has the history text of each new layer, `epoch` the creation
    time in seconds. The label of a shared foundation is not copied.
    """
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    before = parent["Config"]
    env = env_of(before)
    config = {name: before[name] for name in _KEPT if before.get(name)}
    config |= {"Env": [f"{name}={value}" for name, value in {**env, **settings.env}.items()]}
    kept = {name: text for name, text in (before.get("Labels") or {}).items() if name != PYTHON_LABEL}
    config |= {"Labels": {**kept, **settings.labels}, **settings.config}
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


def planned_config(plan: Plan, foundation: Mapping[str, Any], diff_ids: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of the image of `plan`: the layers `diff_ids` on `foundation` (as in `image_config`)."""
    return image_config(foundation, diff_ids, layer_words(plan.upper), settings_of(plan), plan.epoch)


def config_text(config: Mapping[str, Any]) -> bytes:
    """Return a configuration as bytes. Their SHA-256 is the image's id in an engine with the classic image store."""
    return json.dumps(config, sort_keys=True).encode()


def common_layers(layers: Sequence[str], images: Iterable[Sequence[str]]) -> int:
    """Return how many of `layers`, counted from the lowest, an engine with these `images` already has.

    An engine with the classic image store can reuse a layer only on top of the same lower layers.
    """
    return max((len(commonprefix([[*layers], [*image]])) for image in images), default=0)
