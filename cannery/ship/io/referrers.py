"""Attach documents to an image in a registry, read them back without the image, and sign both with cosign.

A registry with the referrers API lists the documents itself. In any other registry, a tag lists them (OCI distribution
specification 1.1, "Pushing Manifests with Subject", "Unavailable Referrers API"). cosign keeps the keys and makes the
signatures (docs of cosign 2 and 3: `cosign sign`, `cosign attest`).
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
from cannery.engine.oci import AbsentError, DeniedError, MalformedError, PassingError, RefusedError
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
    """An image in a registry: the digest of its manifest, and the descriptors of its referrers."""

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
        if listed:  # the registry has no such API: a tag lists them
            before = _tagged(repository, subject["digest"])
            known = {one["digest"] for one in before}
            if missing := [one for one in listed if one["digest"] not in known]:
                tag = fallback_tag(subject["digest"])
                repository.put_manifest(tag, INDEX_TYPE, index_of([*before, *missing]))
    return found


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
    hint = "check that the reference is right, and that its registry can be reached"
    with _repository(reference, access, hint) as repository:
        place = repository.reference
        image = repository.published(place.wanted, place.digest or "", arch)
        entry = image.needed(arch)
        referrers = _referrers(repository, entry.manifest)
        newest = {one.get("artifactType"): one for one in referrers}
        documents = [_document(repository, kind, newest[kind]["digest"]) for kind in kinds if kind in newest]
        return Attached(reference, entry.manifest, tuple(referrers)), documents


def _document(repository: Repository, kind: Kind, digest: str) -> Document:
    layers = repository.manifest(digest).layers
    if not layers:
        raise MalformedError(f"the manifest of an attached document has no layers ({digest})")
    return Document(kind, repository.config_text(layers[0][0]).decode(errors="replace"))


@contextmanager
def _repository(reference: str, access: Access, hint: str) -> Iterator[Repository]:
    """Yield the repository of a reference. Raises `NetworkError` with `hint` if it refuses a request."""
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
    """Return the signer for the value of --sign: a key as cosign takes it, or `keyless`, then more options of cosign.

    Raises `UnableError` if cosign is missing, `UsageError` for a value that cannot be split into words.
    """
    try:
        key, *more = shlex.split(text)
    except ValueError:
        hint = "a file, env://VARIABLE, an address of a key service, or keyless"
        raise UsageError(f"--sign: {text!r} names no key", hint=hint) from None
    program = shutil.which(PROGRAM, path=env.get("PATH"))
    if program is None:
        hint = "install it from your distribution or from sigstore's releases, or leave --sign out"
        raise UnableError("--sign needs the program cosign, and it is not on PATH", hint=hint)
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
    # It may ask for a password, so it has the terminal. What it prints goes to standard error: our output is data.
    command = (signer.program, verb, "--yes", *signer.options, *words, *images)
    code = subprocess.run(command, env=dict(signer.env), stdout=2, check=False).returncode
    if code:
        state = "pushed, but not signed" if verb == "sign" else "pushed and signed, but not all its documents"
        what = f"cosign {verb} ended with status {code}; the image is {state}"
        raise NetworkError(what, where=images[0], hint="the same command again pushes nothing and signs")
