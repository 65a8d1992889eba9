"""Signatures by cosign, which has the keys and the crypto (docs of cosign 2 and 3: `cosign sign`, `cosign attest`)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import NetworkError, UnableError, UsageError
from cannery.ship.published import PREDICATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.ship.published import Document

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
