"""Reads the inputs of `diff` and `sbom`: manifests, locks, the checkout at a revision, licences of wheels."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from cannery.errors import CanneryError, UsageError
from cannery.lock.io.wheels import is_in_store, store_path, wheel_metadata
from cannery.lock.lock import parse_lock
from cannery.report.difference import of_lock, of_manifest
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.lock.lock import LockedPackage
    from cannery.report.difference import Contents


def read_contents(path: Path) -> Contents:
    """Return the contents of a manifest (JSON) or a lock. Raises `UsageError` for any other file."""
    hint = "name a lock, a manifest.json, a profile or an image"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(path), hint=hint) from error
    if not text.startswith("{"):
        return of_lock(str(path), parse_lock(text, str(path)))
    try:
        return of_manifest(str(path), json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a manifest: {error}", where=str(path), hint=hint) from error


def is_revision(root: Path, name: str) -> bool:
    """Whether the git repository of the checkout `root` has a commit of that name."""
    git = ("git", "-C", root, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
    return run(git, check=False).returncode == 0


@contextmanager
def checkout_at(root: Path, revision: str) -> Iterator[Path]:
    """Yield a folder with images/ and templates/ of the checkout `root` at a git revision.

    Raises `UsageError` if git does not know the revision, or if it has no images/.
    """
    with TemporaryDirectory(prefix="cannery-") as name:
        folder, tar = Path(name), Path(name, "tree.tar")
        git = ("git", "-C", root)
        try:
            commit = run((*git, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")).stdout.strip()
            run((*git, "archive", f"--output={tar}", commit, "images", "templates"))
        except CanneryError as error:
            hint = "REVISION:PROFILE takes a commit, branch or tag of this checkout"
            raise UsageError(f"no revision {revision!r} with images/ in it", where=str(root), hint=hint) from error
        run(("tar", "-xf", tar, "-C", folder))
        yield folder


def read_licences(packages: Iterable[LockedPackage], cache: Path) -> dict[str, str]:
    """Return {distribution: licence} of the packages whose wheel is in `cache`; "" if its METADATA names none.

    Nothing is fetched. A wheel that cannot be read is left out.
    """
    found = {}
    for package in packages:
        if package.is_sdist or not is_in_store(package, cache):
            continue
        try:
            with ZipFile(store_path(package, cache)) as archive:
                found[package.name] = licence_of(wheel_metadata(archive))
        except (OSError, BadZipFile, NotImplementedError):
            continue
    return found


# Words in METADATA that mean exactly one SPDX licence. "BSD License" or "Apache Software License" may mean several.
WORDS = {
    "mit license": "MIT",
    "isc license": "ISC",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd-2-clause license": "BSD-2-Clause",
    "mulan psl v2": "MulanPSL-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
# Values in METADATA that name no licence.
NONE = {"", "unknown", "none"}
# A longer text is the licence itself and not its name.
LONGEST = 100
_CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(?P<name>.+)")


def licence_of(metadata: str) -> str:
    """Return the licence in a METADATA file: an SPDX expression, or else its own text; "" if there is none.

    `License-Expression` (PEP 639) counts first, then `License`, then the classifiers.
    """
    # Without the description, which may be long.
    headers = HeaderParser().parsestr(metadata.partition("\n\n")[0])
    named = str(headers["License-Expression"] or headers["License"] or "").strip()
    if "\n" in named or len(named) > LONGEST or named.lower() in NONE:
        found = (_CLASSIFIER.fullmatch(str(one)) for one in headers.get_all("Classifier", ()))
        names = dict.fromkeys(match["name"] for match in found if match)
        named = next(iter(names)) if len(names) == 1 else ""
    return WORDS.get(named.lower(), named)
