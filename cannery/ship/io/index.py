"""Read what a registry has of Cannery's images: tags, manifests, and the last layer of each, which is small."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cannery.engine.io.registry import Limits, Repository
from cannery.engine.oci import AbsentError, MalformedError, RefusedError, read_layers
from cannery.errors import NetworkError, UsageError
from cannery.plan.tags import parse_tag
from cannery.ship.index import TARGET, Indexed, contents_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.engine.io.registry import Access

# Seconds for all requests to one repository.
LIMITS = Limits(connect=3.0, read=15.0, total=600.0)


def read_registry(
    registry: str, profiles: Iterable[str], access: Access, say: Callable[[str], None]
) -> Iterator[Indexed]:
    """Give each image of profiles that has a full tag in `registry`. Raises `NetworkError`; `say` names what is odd."""
    for profile in profiles:
        try:
            with Repository(f"{registry}/{profile}:index", access) as repository:
                for tag in repository.tags():
                    try:
                        yield from _read(repository, f"{registry}/{profile}", tag)
                    except (MalformedError, AbsentError, UsageError, ValidationError) as error:
                        say(f"note: {registry}/{profile}:{tag} is left out: {error}")
        except AbsentError:
            continue
        except RefusedError as error:
            hint = "`docker login` with an account that may read, and see that REGISTRY is right"
            raise NetworkError(str(error), where=f"{registry}/{profile}", hint=hint) from error


def _read(repository: Repository, name: str, tag: str) -> Iterator[Indexed]:
    found = parse_tag(tag)
    if not found.plan:  # a moving tag: the full one of its image is there too
        return
    there = repository.published(tag)
    layers = {one.arch: read_layers(repository.manifest_text(one.manifest)) for one in there.entries}
    if not layers or not all(layers.values()):
        raise MalformedError("it has no layers")
    base, packages = contents_in(repository.config_text(next(iter(layers.values()))[-1][0]))
    about = asdict(found)
    yield Indexed(
        reference=f"{name}:{tag}",
        digest=there.digest,
        profile=name.rpartition("/")[2],
        plan=found.plan,
        base=base,
        target={key: about[key] for key in TARGET},
        sizes={arch: sum(size for _, size in listed) for arch, listed in layers.items()},
        packages=packages,
    )
