"""Where images are made and kept: a Docker engine.

What makes, proves and ships images asks a place; only what BuildKit does needs the engine itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from cannery.assemble.image import common_layers
from cannery.assemble.io.load import archive
from cannery.engine.io.client import EngineError, load, load_error
from cannery.engine.io.inspect import find_image, image_layers, needed_image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import docker

    from cannery.engine.image import EngineImage
    from cannery.engine.io.client import TransferView
    from cannery.engine.io.find import Engine


@dataclass(frozen=True)
class EnginePlace:
    """A Docker engine, a client of it, and the environment in which its commands run."""

    engine: Engine
    client: docker.DockerClient
    env: Mapping[str, str]

    def find(self, name: str) -> EngineImage | None:
        """Return an image by its name or id, None without one. Raises `UnableError` when the engine does not answer."""
        return find_image(self.client, name)

    def needed(self, name: str, profile: str) -> EngineImage:
        """Return an image that `profile` builds. Raises `UsageError` where it is not here."""
        return needed_image(self.client, name, profile)

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return what `docker inspect` reports of an image that is here."""
        found: Mapping[str, Any] = self.client.images.get(name).attrs
        return found

    def chains(self) -> list[list[str]]:
        """Return the layers of each image that is here, as diff ids, lowest first."""
        return image_layers(self.client)

    def missing(self, chain: Sequence[str]) -> list[str]:
        """Return those of an image's layers that have to be given to `take`."""
        return list(chain[common_layers(chain, self.chains()) :])

    def take(
        self,
        config: Mapping[str, Any],
        reference: str,
        layers: Mapping[str, IO[bytes]],
        view: TransferView,
        redact: Callable[[str], str],
    ) -> None:
        """Take an image by its configuration under a name; `layers` are those that were missing, by diff id.

        Raises `UnableError` or `FindingsError` where the engine does not take it; `redact` hides what is secret.
        """
        try:
            load(self.client, archive(layers, config, reference), view)
        except EngineError as error:
            raise load_error(error, reference, redact) from error

    def tag(self, name: str, reference: str) -> None:
        """Give an image another name."""
        self.client.images.get(name).tag(reference)

    def remove(self, reference: str) -> None:
        """Remove a name, and the image where it has no other."""
        self.client.images.remove(reference)

    def python_command(self, image: str, python: str, *arguments: str, stdin: bool = False) -> tuple[str, ...]:
        """Return a command that runs the Python of an image in a container, without network."""
        options = ("--rm", "--network=none", *(["--interactive"] if stdin else []), "--entrypoint", python)
        return self.engine.command("run", *options, image, *arguments)
