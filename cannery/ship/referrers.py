"""Documents about an image that a registry keeps as its referrers (OCI image and distribution specification 1.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cannery.engine.oci import MalformedError
from cannery.ship.published import INDEX_TYPE
from cannery.store.describe import OCI
from cannery.util.addresses import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The configuration of a manifest that has none.
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
# The fields of a descriptor that a subject has.
SUBJECT = ("mediaType", "digest", "size")


class Kind(StrEnum):
    """What a document is, by its media type, which is the artifact type of its manifest too."""

    CYCLONEDX = "application/vnd.cyclonedx+json"
    SPDX = "application/spdx+json"
    PROVENANCE = "application/vnd.in-toto+json"


# Words for them: of `sbom --format`, and of `cosign attest --type` (its documentation, cosign 2 and 3).
FORMATS = {"cyclonedx": Kind.CYCLONEDX, "spdx": Kind.SPDX, "provenance": Kind.PROVENANCE}
PREDICATES = {Kind.CYCLONEDX: "cyclonedx", Kind.SPDX: "spdxjson", Kind.PROVENANCE: "slsaprovenance1"}


@dataclass(frozen=True)
class Document:
    """A document about an image."""

    kind: Kind
    text: str

    @property
    def word(self) -> str:
        """What `sbom --format` calls it."""
        return next(word for word, kind in FORMATS.items() if kind is self.kind)

    @property
    def predicate(self) -> str:
        """What is attested of the image: the document, or what a statement has as its predicate."""
        return json.dumps(json.loads(self.text)["predicate"]) if self.kind is Kind.PROVENANCE else self.text


def fallback_tag(digest: str) -> str:
    """Return the tag with the referrers of a manifest, in a registry that has no API for them."""
    return digest.replace(":", "-")


def referrer(subject: Mapping[str, Any], document: Document) -> tuple[bytes, dict[str, Any]]:
    """Return the manifest that attaches a document to an image, and its descriptor. `subject` describes the image."""
    data = document.text.encode()
    value = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "artifactType": str(document.kind),
        "config": {"mediaType": EMPTY_TYPE, "digest": digest_of(EMPTY), "size": len(EMPTY)},
        "layers": [{"mediaType": str(document.kind), "digest": digest_of(data), "size": len(data)}],
        "subject": {name: subject[name] for name in SUBJECT},
    }
    body = json.dumps(value, indent=1).encode()
    found = {
        "mediaType": OCI.manifest,
        "digest": digest_of(body),
        "size": len(body),
        "artifactType": str(document.kind),
    }
    return body, found


def index_of(referrers: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the index that the fallback tag names."""
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": referrers}, indent=1).encode()


def read_index(body: bytes) -> list[dict[str, Any]]:
    """Return the descriptors of a list of referrers that have a digest and no odd type. Raises `MalformedError`."""
    try:
        found = json.loads(body)["manifests"]
        return [
            one for one in found if isinstance(one["digest"], str) and isinstance(one.get("artifactType"), str | None)
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedError("its list of referrers is no index") from error
