"""Where images are made and kept: a Docker engine, or the image store of this host.

Code that makes, verifies and ships images uses a place. Only BuildKit needs the engine itself.
"""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from cannery.assemble.image import common_layers
from cannery.assemble.io.load import archive
from cannery.engine.io.client import EngineError, load, load_error
from cannery.engine.oci import engine_image
from cannery.errors import UnableError, UsageError
from cannery.sandbox.box import Box, box_command
from cannery.standin.io.rootfs import is_registered
from cannery.util.io.locks import own_folder
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import docker

    from cannery.engine.io.find import Engine
    from cannery.engine.io.transfer_view import TransferView
    from cannery.engine.oci import EngineImage
    from cannery.store.io.store import Store


@dataclass(frozen=True)
class EnginePlace:
    """A Docker engine, a client of it, and the environment in which its commands run."""

    engine: Engine
    client: docker.DockerClient
    env: Mapping[str, str]

    def find(self, name: str) -> EngineImage | None:
        """Return an image by its name or id, or None. Raises `UnableError` if the engine does not answer."""
        import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
        import requests  # noqa: PLC0415

        try:
            return engine_image(self.client.images.get(name).attrs)
        except docker.errors.NotFound:
            return None
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise UnableError(f"the engine does not answer: {error}") from error

    def needed(self, name: str, profile: str) -> EngineImage:
        """Return an image that `profile` builds. Raises `UsageError` where it is not here."""
        found = self.find(name)
        if found is None:
            raise UsageError(f"no image {name} on this engine", hint=f"build.py image {profile}, with the same options")
        return found

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return what `docker inspect` reports of an existing image."""
        found: Mapping[str, Any] = self.client.images.get(name).attrs
        return found

    def chains(self) -> list[list[str]]:
        """Return the layers of each image that is here, as diff ids, lowest first."""
        return [(found.attrs.get("RootFS") or {}).get("Layers") or [] for found in self.client.images.list()]

    def missing(self, chain: Sequence[str]) -> list[str]:
        """Return the layers of an image that `take` needs."""
        return list(chain[common_layers(chain, self.chains()) :])

    def take(
        self,
        config: Mapping[str, Any],
        reference: str,
        layers: Mapping[str, IO[bytes]],
        view: TransferView,
        redact: Callable[[str], str],
    ) -> None:
        """Add an image with this configuration and name; `layers` are the missing ones, by DiffID.

        Raises `UnableError` or `FindingsError` if the engine refuses it; `redact` hides secrets.
        """
        try:
            load(self.engine, self.env, archive(layers, config, reference), view)
        except EngineError as error:
            raise load_error(error, reference, redact) from error

    def tag(self, name: str, reference: str) -> None:
        """Give an image another name."""
        self.client.images.get(name).tag(reference)

    def remove(self, reference: str) -> None:
        """Remove a name, and the image if it has no other name."""
        self.client.images.remove(reference)

    def is_foreign(self, arch: str) -> bool:
        """Whether programs of that architecture run under emulation."""
        return self.platform(arch) is not None

    def cannot(self, _arch: str) -> str:
        """Return "", since this was checked when the engine was found."""
        return ""

    def platform(self, arch: str) -> str | None:
        """Return the platform option for an image; None if it is the engine's own platform."""
        return self.engine.foreign(arch)

    def python_command(self, image: str, python: str, *arguments: str, stdin: bool = False) -> tuple[str, ...]:
        """Return a command that runs the Python of an image in a container, without network."""
        options = ("--rm", "--network=none", *(["--interactive"] if stdin else []), "--entrypoint", python)
        return self.engine.command("run", *options, image, *arguments)


@dataclass(frozen=True)
class StorePlace:
    """The image store of this host, of architecture `arch`, and the environment in which boxes are started.

    `why_not` is why this host cannot make boxes, or "".
    """

    store: Store
    env: Mapping[str, str]
    arch: str
    cache: Path
    why_not: str = ""

    def find(self, name: str) -> EngineImage | None:
        """Return an image by its name or id, or None."""
        return self.store.find(name)

    def needed(self, name: str, profile: str) -> EngineImage:
        """Return an image that `profile` builds. Raises `UsageError` where it is not here."""
        found = self.find(name)
        if found is None:
            hint = (
                f"build.py image {profile}, with the same options. An image in Docker is found while Docker is running"
            )
            raise UsageError(f"no image {name} in this host's image store, and no Docker engine is running", hint=hint)
        return found

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return what `docker inspect` would report of an existing image."""
        found = self.store.attributes(name)
        if found is None:
            raise UsageError("the image store does not have this image", where=name)
        return found

    def chains(self) -> list[list[str]]:
        """Return the layers of each image that is here, as diff ids, lowest first."""
        return self.store.chains()

    def missing(self, chain: Sequence[str]) -> list[str]:
        """Return the layers of an image that the store does not have."""
        return [diff_id for diff_id in chain if not self.store.knows(diff_id)]

    def tag(self, name: str, reference: str) -> None:
        """Give an image another name."""
        self.store.tag(name, reference)

    def remove(self, reference: str) -> None:
        """Remove a name."""
        self.store.remove(reference)

    def is_foreign(self, arch: str) -> bool:
        """Whether programs of that architecture run under emulation."""
        return arch != self.arch

    def cannot(self, arch: str) -> str:
        """Return why this host cannot run programs of an image for `arch`, or ""."""
        if self.why_not or not self.is_foreign(arch) or is_registered(Arch(arch)):
            return self.why_not
        return f"this host runs no {arch} programs ({Arch(arch).emulation})"

    def check_runs(self, arch: str, what: str) -> None:
        """Raise `UnableError` if this host cannot make `what`, which runs programs of an image for `arch`."""
        if why := self.cannot(arch):
            raise UnableError(f"this host cannot make {what}: {why}")

    def platform(self, arch: str) -> None:
        """Return None: a box needs no platform option."""

    def python_command(self, image: str, python: str, *arguments: str, stdin: bool = False) -> tuple[str, ...]:  # noqa: ARG002
        """Return a command that runs the Python of an image in a box, without network. Raises `UnableError`."""
        self.check_runs(self.store.needed(image).arch, "byte code, for which the image's Python runs")
        return self.command(Box(self.store.lowers(image), (python, *arguments)))

    def command(self, box: Box) -> tuple[str, ...]:
        """Return the command that runs a box. Raises like `scratch`."""
        return box_command(box, Path(tempfile.mkdtemp(dir=self.scratch)))

    @cached_property
    def scratch(self) -> Path:
        """A folder for boxes, which is removed when this process ends. Raises `UnableError` if it cannot be made."""
        stack = ExitStack()
        atexit.register(stack.close)
        return stack.enter_context(own_folder(self.cache / "boxes"))


ImagePlace: TypeAlias = EnginePlace | StorePlace
