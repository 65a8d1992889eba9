"""Names of images in a registry, and the rules for what may be pushed there. Pure.

An image is published as `REGISTRY/<profile>:<tag>`. Two architectures share a tag, as one index.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cannery.catalog.addresses import reference_fault
from cannery.engine.oci import MalformedError
from cannery.errors import UsageError
from cannery.store.describe import OCI
from cannery.util.addresses import digest_of, parse_reference

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from cannery.engine.oci import Published
    from cannery.plan import ImageTag


INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LIST_TYPE = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
# The end of the tag of an image that was not verified.
UNVERIFIED = "unverified"
HINT = "REGISTRY is host[:port][/path], as registry.example/team; the profile's name and tag are appended"


def parse_registry(text: str | None) -> str:
    """Return REGISTRY in the form that is put before a name. Raises `UsageError`.

    Its message does not repeat the text, which may have a password or token.
    """
    if not text:
        raise UsageError("REGISTRY is not set", hint=HINT)
    if reference_fault(text) or "@" in text:
        raise UsageError(f"REGISTRY: {reference_fault(text) or 'it has no digest'}", hint=HINT)
    cleaned = text.rstrip("/")
    if ":" in cleaned.partition("/")[2]:
        raise UsageError("REGISTRY: it has a tag, or a : in its path", hint=HINT)
    # `myhost` alone is a user of docker.io; `host:port` is a host.
    try:
        parse_reference(f"{cleaned}/x", "REGISTRY")
    except UsageError:
        raise UsageError("REGISTRY: it is not a host[:port][/path] in lower case", hint=HINT) from None
    return cleaned


def published_reference(registry: str, reference: str) -> str:
    """Return `registry/profile:tag` for a local `profile:tag`. Raises `UsageError` if it already names a registry."""
    if "/" in reference:
        raise UsageError(f"{reference!r} already names a registry", hint=HINT)
    return f"{registry}/{reference}"


def arch_reference(reference: str, arch: str) -> str:
    """Return the tag for the image of one architecture, which is pushed before the index under `reference`."""
    return f"{reference}-{arch}"


def merged_index(current: Published | None, arch: str, descriptor: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return media type and text of an index: the images of `current` for other architectures, and ours for `arch`.

    An index of Docker manifests has Docker's media type, because some registries refuse an OCI index of them.
    """
    kept = [entry for entry in current.entries if entry.arch != arch] if current else []
    # The descriptor of a manifest without an index has no platform.
    described = [{"platform": {"os": "linux", "architecture": one.arch}, **one.descriptor} for one in kept]
    described.append({**descriptor, "platform": {"os": "linux", "architecture": arch}})
    described.sort(key=lambda item: str(item["platform"]["architecture"]))
    of_docker = all(item["mediaType"] == DOCKER_MANIFEST for item in described)
    media_type = LIST_TYPE if of_docker else INDEX_TYPE
    value = {"schemaVersion": 2, "mediaType": media_type, "manifests": described}
    return media_type, json.dumps(value, indent=1).encode()


def label_faults(labels: Mapping[str, str], profile: str, tag: ImageTag, target: str) -> tuple[str, ...]:
    """Return how the labels of an image differ from its tag in the registry."""
    wanted = {
        "org.opencontainers.image.version": str(tag),
        "org.cannery.profile": profile,
        "org.cannery.plan": tag.plan,
        "org.cannery.target": target,
    }
    faults = [
        f"its label {name} is {labels.get(name, 'missing')}, and not {value}"
        for name, value in wanted.items()
        if labels.get(name) != value
    ]
    is_standin = labels.get("org.cannery.base.kind") == "standin"
    if is_standin and not tag.standin:
        what = (
            "it is built on the stand-in base, without CANN: such an image is never pushed under the tag of a real one"
        )
        faults.insert(0, what)
    return tuple(faults)


def push_fault(current: Published | None, arch: str, ids: Container[str]) -> str:
    """Return why a push to the tag needs --force; "" if it does not."""
    entry = current.entry(arch) if current else None
    if current is None or entry is None or current.has_image(arch, ids):
        return ""
    image = f"image {entry.config[:19]}…, " if entry.config else ""
    return f"the tag already exists for {arch}, and is another image ({image}manifest {entry.manifest[:19]}…)"


def ids_of(image_id: str, digests: Iterable[str], reference: str) -> frozenset[str]:
    """Return the ids of an image: its id, and its digests (`RepoDigests`) in the repository of `reference`."""
    mine = parse_reference(reference)
    known = map(parse_reference, digests)
    here = {one.digest or "" for one in known if (one.registry, one.repository) == (mine.registry, mine.repository)}
    return frozenset({image_id} | here) - {""}


# The configuration of a manifest without one.
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
# The fields of a descriptor that a subject has.
SUBJECT = ("mediaType", "digest", "size")


class Kind(StrEnum):
    """The kind of a document, by its media type, which is also the artifact type of its manifest."""

    CYCLONEDX = "application/vnd.cyclonedx+json"
    SPDX = "application/spdx+json"
    PROVENANCE = "application/vnd.in-toto+json"


# Their names in `sbom --format`, and in `cosign attest --type` (documentation of cosign 2 and 3).
FORMATS = {"cyclonedx": Kind.CYCLONEDX, "spdx": Kind.SPDX, "provenance": Kind.PROVENANCE}
PREDICATES = {Kind.CYCLONEDX: "cyclonedx", Kind.SPDX: "spdxjson", Kind.PROVENANCE: "slsaprovenance1"}


@dataclass(frozen=True)
class Document:
    """A document about an image."""

    kind: Kind
    text: str

    @property
    def word(self) -> str:
        """Its name in `sbom --format`."""
        return next(word for word, kind in FORMATS.items() if kind is self.kind)

    @property
    def predicate(self) -> str:
        """What is attested of the image: the document, or the predicate of a statement."""
        return json.dumps(json.loads(self.text)["predicate"]) if self.kind is Kind.PROVENANCE else self.text


def fallback_tag(digest: str) -> str:
    """Return the tag that lists the referrers of a manifest, in a registry without the referrers API."""
    return digest.replace(":", "-")


def referrer(subject: Mapping[str, Any], document: Document) -> tuple[bytes, dict[str, Any]]:
    """Return the manifest that attaches a document to an image, and its descriptor. `subject` describes the image."""
    data, kind = document.text.encode(), str(document.kind)
    value = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "artifactType": kind,
        "config": {"mediaType": EMPTY_TYPE, "digest": digest_of(EMPTY), "size": len(EMPTY)},
        "layers": [{"mediaType": kind, "digest": digest_of(data), "size": len(data)}],
        "subject": {name: subject[name] for name in SUBJECT},
    }
    body = json.dumps(value, indent=1).encode()
    found = {"mediaType": OCI.manifest, "digest": digest_of(body), "size": len(body)}
    return body, {**found, "artifactType": kind}


def index_of(referrers: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the index that the fallback tag names."""
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": referrers}, indent=1).encode()


def read_index(body: bytes) -> list[dict[str, Any]]:
    """Return the valid descriptors in a list of referrers. Raises `MalformedError` for another document."""
    try:
        found = json.loads(body)["manifests"]
        known = [one for one in found if isinstance(one["digest"], str)]
        return [one for one in known if isinstance(one.get("artifactType"), str | None)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedError("its list of referrers is not an index") from error
