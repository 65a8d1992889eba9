"""Attach documents to an image in a registry, read them back without the image, and sign both by cosign.

A registry that knows referrers answers so to a manifest with a subject; in any other they are listed under a tag
(OCI distribution specification 1.1, "Pushing Manifests with Subject", "Unavailable Referrers API"). cosign has the keys
and the crypto (docs of cosign 2 and 3: `cosign sign`, `cosign attest`).
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cannery.engine.io.blobs import BULK, put_blob
from cannery.engine.io.registry import Repository
from cannery.engine.oci import (
    AbsentError,
    DeniedError,
    MalformedError,
    PassingError,
    RefusedError,
)
from cannery.errors import NetworkError, UnableError, UsageError
from cannery.ship.io.registry import refusals
from cannery.ship.published import (
    EMPTY,
    INDEX_TYPE,
    PREDICATES,
    Document,
    Kind,
    fallback_tag,
    index_of,
    read_index,
    referrer,
)
from cannery.store.describe import OCI

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.engine.io.registry import Access


# What a registry has with OCI manifests: SWR refuses them.
NOT_TAKEN = (
    "the image is pushed; a registry that takes OCI manifests keeps documents too, or `sbom --output` writes files"
)


@dataclass(frozen=True)
class Attached:
    """An image in a registry, as it is there: digest of its manifest, and descriptors of its referrers."""

    reference: str
    digest: str
    referrers: tuple[Mapping[str, Any], ...]


def attach(reference: str, access: Access, subject: Mapping[str, Any], documents: Sequence[Document]) -> list[str]:
    """Attach documents to the image that `subject` describes; return the digests of their manifests.

    What is there already is not sent again. Raises `NetworkError`.
    """
    found, listed = [], []
    with _repository(reference, replace(access, limits=BULK), NOT_TAKEN) as repository:
        for document in documents:
            body, descriptor = referrer(subject, document)
            for data in (EMPTY, document.text.encode()):
                put_blob(repository, data)
            path = f"manifests/{descriptor['digest']}"
            reply = repository.call("PUT", path, {"Content-Type": OCI.manifest}, body)
            found.append(str(descriptor["digest"]))
            if "OCI-Subject" not in reply.headers:
                listed.append(descriptor)
        if listed:
            _list_under_tag(repository, subject["digest"], listed)
    return found


def _list_under_tag(repository: Repository, digest: str, new: Sequence[dict[str, Any]]) -> None:
    before = _tagged(repository, digest)
    known = {one["digest"] for one in before}
    if missing := [one for one in new if one["digest"] not in known]:
        repository.put_manifest(fallback_tag(digest), INDEX_TYPE, index_of([*before, *missing]))


def _tagged(repository: Repository, digest: str) -> list[dict[str, Any]]:
    try:
        return read_index(repository.call("GET", f"manifests/{fallback_tag(digest)}", {"Accept": INDEX_TYPE}).body)
    except AbsentError:
        return []


def _referrers(repository: Repository, digest: str) -> list[dict[str, Any]]:
    try:
        pages = repository.pages(f"referrers/{digest}", INDEX_TYPE)
        return [one for page in pages for one in read_index(page.body)]
    except (DeniedError, PassingError):
        raise
    except RefusedError:  # most answer 404 where they have no such API
        return _tagged(repository, digest)


def read_attached(reference: str, access: Access, arch: str, kinds: Sequence[Kind]) -> tuple[Attached, list[Document]]:
    """Return an image in a registry with its referrers, and of those the documents of `kinds` that are there.

    `arch` chooses an image of an index. The image itself is not fetched. Raises `NetworkError`.
    """
    with _repository(
        reference, access, "see that the reference is right, and that its registry can be reached"
    ) as found:
        place = found.reference
        there = found.published(place.wanted, place.digest or "", arch)
        entry = there.needed(arch)
        referrers = _referrers(found, entry.manifest)
        newest = {one.get("artifactType"): one for one in referrers}
        documents = [_document(found, kind, newest[kind]["digest"]) for kind in kinds if kind in newest]
        return Attached(reference, entry.manifest, tuple(referrers)), documents


def _document(repository: Repository, kind: Kind, digest: str) -> Document:
    layers = repository.manifest(digest).layers
    if not layers:
        raise MalformedError(f"the manifest of an attached document has no layers ({digest})")
    return Document(kind, repository.config_text(layers[0][0]).decode(errors="replace"))


@contextmanager
def _repository(reference: str, access: Access, hint: str) -> Iterator[Repository]:
    """Give the repository of a reference. Raises `NetworkError` with `hint` where it refuses something."""
    with Repository(reference, access) as found, refusals(access, found.reference.registry, reference, hint):
        yield found


PROGRAM = "cosign"
KEYLESS = "keyless"


@dataclass(frozen=True)
class Signer:
    """The program, its environment, and the options that name the key."""

    program: str
    env: Mapping[str, str]
    options: tuple[str, ...]


def find_signer(text: str, env: Mapping[str, str]) -> Signer:
    """Return what signs as --sign asks: a key as cosign takes it, or `keyless`, and more options of cosign behind it.

    Raises `UnableError` where cosign is missing, `UsageError` for words that name no key.
    """
    try:
        key, *more = shlex.split(text)
    except ValueError:
        hint = "a file, env://VARIABLE, an address of a key service, or keyless"
        raise UsageError(f"--sign: {text!r} names no key", hint=hint) from None
    program = shutil.which(PROGRAM, path=env.get("PATH"))
    if program is None:
        hint = "install it from your distribution or from sigstore's releases, or leave --sign out"
        raise UnableError("--sign: the program cosign is not on PATH, which makes signatures", hint=hint)
    return Signer(program, env, (*(() if key == KEYLESS else ("--key", key)), *more))


def sign(signer: Signer, images: Sequence[str]) -> None:
    """Sign images, which are named by digest. Raises `NetworkError`."""
    _run(signer, "sign", images)


def attest(signer: Signer, image: str, documents: Sequence[Document]) -> None:
    """Sign documents as attestations of an image, which is named by digest. Raises `NetworkError`."""
    for document in documents:
        with tempfile.NamedTemporaryFile("w", prefix="cannery-", suffix=".json", encoding="utf-8") as file:
            file.write(document.predicate)
            file.flush()
            _run(signer, "attest", (image,), "--type", PREDICATES[document.kind], "--predicate", file.name)


def _run(signer: Signer, verb: str, images: Sequence[str], *words: str) -> None:
    # It may ask for a password, and prints what it does: the terminal is its own, and standard output stays data.
    command = (signer.program, verb, "--yes", *signer.options, *words, *images)
    code = subprocess.run(command, env=dict(signer.env), stdout=2, check=False).returncode
    if code:
        state = "pushed, and not signed" if verb == "sign" else "pushed and signed, and not all its documents are"
        what = f"cosign {verb} ended with status {code}; the image is {state}"
        raise NetworkError(what, where=images[0], hint="the same command again pushes nothing and signs")
