"""What `diff` and `sbom` read: manifests, locks, the checkout as it was at a revision, licences of wheels."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from cannery.errors import CanneryError, UsageError
from cannery.lock.io.wheels import is_there, store_path, wheel_metadata
from cannery.lock.lock import parse_lock
from cannery.report.difference import of_lock, of_manifest
from cannery.report.licences import licence_of
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.lock.lock import LockedPackage
    from cannery.report.difference import Contents


def read_contents(path: Path) -> Contents:
    """Return what a manifest's or a lock's file holds. Raises `UsageError` for one that cannot be read, or is neither.

    A manifest is JSON, a lock starts with a JSON comment.
    """
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
        raise UsageError(f"this is no manifest: {error}", where=str(path), hint=hint) from error


def is_revision(root: Path, name: str) -> bool:
    """Whether the git of the checkout `root` knows a commit by that name."""
    git = ("git", "-C", root, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
    return run(git, check=False).returncode == 0


@contextmanager
def checkout_at(root: Path, revision: str) -> Iterator[Path]:
    """Give a folder with images/ and templates/ of the checkout `root` at a revision of its git.

    Raises `UsageError` where git does not know the revision, or it has no images.
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
    """Return {distribution: licence} of packages whose wheel is in `cache`; "" where its METADATA names none.

    Nothing is fetched. A wheel that cannot be read counts as one that is not there.
    """
    found = {}
    for package in packages:
        if package.is_sdist or not is_there(package, cache):
            continue
        try:
            with ZipFile(store_path(package, cache)) as archive:
                found[package.name] = licence_of(wheel_metadata(archive))
        except (OSError, BadZipFile, NotImplementedError):
            continue
    return found
