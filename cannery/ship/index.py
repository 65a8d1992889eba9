"""An index of the images that a registry has: what is in each, so that one can be found by what it holds. Pure."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from cannery.catalog.component import Closed
from cannery.engine.oci import MalformedError
from cannery.errors import UsageError
from cannery.plan.manifest import MANIFEST_PATH

TARGET = ("cann", "chip", "os", "python")


class Indexed(Closed):
    """One tag: what its image is for, the bytes that a pull takes by architecture, and {distribution: version}.

    `verify` is what proves its plan beside what each push asks for: verify on the host that pushed it.
    """

    reference: str
    digest: str
    profile: str
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


class Index(Closed):
    """The file: the images of a registry."""

    index: Literal[1] = 1
    registry: str
    images: tuple[Indexed, ...]


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


def read_index(text: str, where: str) -> Index:
    """Return the index of a file's text. Raises `UsageError` for another text."""
    try:
        return Index.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            "this is no index", where=where, hint="build.py index --registry HOST/PATH writes one"
        ) from error
