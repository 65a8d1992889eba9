"""An index of the images that a registry has: from tags, manifests, and the last layer of each, which is small."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from cannery.catalog.component import Closed
from cannery.engine.io.registry import Access, Limits, Repository
from cannery.engine.oci import AbsentError, MalformedError, RefusedError, read_layers
from cannery.errors import NetworkError, UsageError
from cannery.plan.manifest import MANIFEST_PATH
from cannery.plan.tags import parse_tag

# Seconds for all requests to one repository.
LIMITS = Limits(connect=3.0, read=15.0, total=600.0)
TARGET = ("cann", "chip", "os", "python")


class Indexed(Closed):
    """One tag: what its image is for, the bytes that a pull takes by architecture, and {distribution: version}.

    `verify` is what proves its plan beside what each push asks for: verify on the host that pushed it.
    """

    reference: str
    digest: str
    plan: str
    base: str
    verify: str = ""
    target: dict[str, str]
    sizes: dict[str, int]
    packages: dict[str, str]

    def has(self, wanted: Sequence[Requirement], target: Mapping[str, str]) -> bool:
        """Whether it has all that is required, for that target; "arch" is one of its architectures."""
        versions = {one: self.version_of(one.name) for one in wanted}
        fits = all(found and one.specifier.contains(found, prereleases=True) for one, found in versions.items())
        own = {**self.target, "arch": target.get("arch") if target.get("arch") in self.sizes else None}
        return fits and all(own.get(name) == value for name, value in target.items())

    def version_of(self, name: str) -> str:
        """Return the version of a distribution, "" where it has none of that name."""
        return self.packages.get(canonicalize_name(name), "")


# The file: the images of a registry.
INDEX = TypeAdapter(tuple[Indexed, ...])


def read_registry(
    registry: str, profiles: Iterable[str], access: Access, say: Callable[[str], None]
) -> Iterator[Indexed]:
    """Give each image of profiles that has a full tag in `registry`. Raises `NetworkError`; `say` names what is odd."""
    for name in (f"{registry}/{profile}" for profile in profiles):
        try:
            with Repository(f"{name}:index", access) as repository:
                for tag in repository.tags():
                    try:
                        yield from _read(repository, name, tag)
                    except (MalformedError, AbsentError, UsageError, ValidationError) as error:
                        say(f"note: {name}:{tag} is left out: {error}")
        except AbsentError:
            continue
        except RefusedError as error:
            hint = "`docker login` with an account that may read, and see that REGISTRY is right"
            raise NetworkError(str(error), where=name, hint=hint) from error


def _read(repository: Repository, name: str, tag: str) -> Iterator[Indexed]:
    found = parse_tag(tag)
    if not found.plan:  # a moving tag: the full one of its image is there too
        return
    there = repository.published(tag)
    layers = {one.arch: read_layers(repository.manifest_text(one.manifest)) for one in there.entries}
    if not layers or not all(layers.values()):
        raise MalformedError("it has no layers")
    base, packages = contents_in(repository.config_text(next(iter(layers.values()))[-1][0]))
    yield Indexed(
        reference=f"{name}:{tag}",
        digest=there.digest,
        plan=found.plan,
        base=base,
        target={key: value for key, value in asdict(found).items() if key in TARGET},
        sizes={arch: sum(size for _, size in listed) for arch, listed in layers.items()},
        packages=packages,
    )


def contents_in(layer: bytes) -> tuple[str, dict[str, str]]:
    """Return the kind of base and {distribution: version} of an image from its last layer, which has its manifest.

    A source without a version has its commit. Raises `MalformedError` for the layer of another image.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(layer), mode="r:*") as tar:
            file = tar.extractfile(MANIFEST_PATH.lstrip("/"))
            value = json.loads(file.read() if file else b"")
        found = {canonicalize_name(one["name"]): one["version"] for one in value["wheels"]}
        found |= {canonicalize_name(one["name"]): one["version"] or one["commit"] or "" for one in value["sources"]}
        return value["base"]["kind"], dict(sorted(found.items()))
    except (tarfile.TarError, LookupError, ValueError, EOFError, OSError, TypeError, AttributeError) as error:
        raise MalformedError(f"its last layer has no manifest of Cannery's ({type(error).__name__})") from error
