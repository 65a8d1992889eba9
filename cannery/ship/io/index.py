"""Index the images in a registry, by their tags, manifests, and the last layer of each, which is small."""

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from cannery.catalog.component import Closed
from cannery.engine.io.registry import Access, Limits, Repository
from cannery.engine.oci import AbsentError, MalformedError
from cannery.plan import TAG, parse_tag
from cannery.plan.manifest import MANIFEST_PATH
from cannery.ship.io.registry import UNREACHED, refusals
from cannery.store.io.packed import GZIP, check_size

# Seconds for all requests to one repository.
LIMITS = Limits(connect=3.0, read=15.0, total=600.0)
TARGET = ("cann", "chip", "os", "python")
# The largest size of an unpacked last layer: a hostile one of 4 MiB could unpack to gigabytes.
MAX_TAR = 16 << 20
# Cannery's tags, with those of `push --unverified` and of one architecture, and what is attached to a digest.
OWN = re.compile(rf"{TAG.pattern}(-unverified|-partial)?(-amd64|-arm64)?|sha256-[0-9a-f]{{64}}(\.[a-z]+)?", re.ASCII)
# Errors from reading a tar, gzip or JSON file of another tool.
ODD = (
    *(tarfile.TarError, zlib.error, EOFError, OSError),
    *(LookupError, ValueError, TypeError, AttributeError, RecursionError),
)


class Indexed(Closed):
    """One tag: the target of its image, the bytes of a pull by architecture, and {distribution: version}.

    `verify` is a recorded proof of its plan, beside the verify on the host that pushed it.
    """

    reference: str
    digest: str
    plan: str
    base: str
    verify: str = ""
    target: dict[str, str]
    sizes: dict[str, Annotated[int, Field(strict=True, ge=0, lt=2**63)]]
    packages: dict[str, str]

    def has(self, wanted: Sequence[Requirement], target: Mapping[str, str]) -> bool:
        """Whether it meets all requirements, for that target; "arch" is one of its architectures."""
        versions = {one: self.version_of(one.name) for one in wanted}
        fits = all(found and one.specifier.contains(found, prereleases=True) for one, found in versions.items())
        own = {**self.target, "arch": target.get("arch") if target.get("arch") in self.sizes else None}
        return fits and all(own.get(name) == value for name, value in target.items())

    def version_of(self, name: str) -> str:
        """Return the version of a distribution, or ""."""
        return self.packages.get(canonicalize_name(name), "")


# The file of `index`: the images of a registry.
INDEX = TypeAdapter(tuple[Indexed, ...])


def read_registry(
    registry: str, profiles: Iterable[str], access: Access, say: Callable[[str], None]
) -> Iterator[Indexed]:
    """Yield each image of the profiles with a full tag in `registry`; `say` gets notes. Raises `NetworkError`."""
    for name in (f"{registry}/{profile}" for profile in profiles):
        with (
            Repository(f"{name}:index", access) as repository,
            refusals(access, repository.reference.registry, name, UNREACHED),
        ):
            try:
                tags = repository.tags()
            except AbsentError:
                continue
            if others := sum(not OWN.fullmatch(tag) for tag in tags):
                say(f"note: {name}: {others} tags of other kinds left out")
            # A moving tag has no plan: the full tag of its image is listed too.
            for tag in (tag for tag in tags if (match := TAG.fullmatch(tag)) and match["plan"]):
                try:
                    yield _read(repository, name, tag)
                except (MalformedError, AbsentError) as error:
                    say(f"note: {name}:{tag} is left out: {error}")
                except (ValidationError, PydanticSerializationError):
                    say(f"note: {name}:{tag} is left out: its manifest has a value that cannot be")


def _read(repository: Repository, name: str, tag: str) -> Indexed:
    parsed = parse_tag(tag)
    index = repository.published(tag)
    layers = {one.arch: repository.manifest(one.manifest).layers for one in index.entries}
    if not layers or not all(layers.values()):
        raise MalformedError("it has no layers")
    base, packages = contents_in(repository.config_text(next(iter(layers.values()))[-1][0]))
    found = Indexed(
        reference=f"{name}:{tag}",
        digest=index.digest,
        plan=parsed.plan,
        base=base,
        target={key: value for key, value in asdict(parsed).items() if key in TARGET},
        sizes={arch: sum(size for _, size in listed) for arch, listed in layers.items()},
        packages=packages,
    )
    found.model_dump_json()  # fails for half of a UTF-16 pair, which cannot be written
    return found


def contents_in(layer: bytes) -> tuple[str, dict[str, str]]:
    """Return the kind of base and {distribution: version} from an image's last layer, which has its manifest.

    A source without a version has its commit. Raises `MalformedError` for the layer of another tool.
    """
    try:
        if layer.startswith(GZIP):
            with gzip.open(io.BytesIO(layer)) as stream:
                layer = stream.read(MAX_TAR + 1)
            if len(layer) > MAX_TAR:
                raise MalformedError(f"its last layer unpacks to more than {MAX_TAR >> 20} MiB")
        with tarfile.open(fileobj=io.BytesIO(layer), mode="r:") as tar:
            for member in tar:
                check_size(member)
            file = tar.extractfile(MANIFEST_PATH.lstrip("/"))
            value = json.loads(file.read(MAX_TAR) if file else b"")  # a sparse file is larger than its tar
        found = {canonicalize_name(one["name"]): one["version"] for one in value["wheels"]}
        found |= {canonicalize_name(one["name"]): one["version"] or one["commit"] or "" for one in value["sources"]}
        return value["base"]["kind"], dict(sorted(found.items()))
    except ODD as error:
        raise MalformedError(f"its last layer has no manifest of Cannery's ({type(error).__name__})") from error
