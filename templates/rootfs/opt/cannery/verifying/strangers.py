"""Files in site-packages that nothing recorded: a .pth or sitecustomize that runs at each start, a copied package."""

import re
from collections.abc import Iterable

from verifying.compiled import source_of
from verifying.distributions import all_records, distributions, records
from verifying.image import Image, below
from verifying.leftovers import INSTALLERS
from verifying.manifest import source_paths

SHOWN = 5
NUMBA = re.compile(r".*/__pycache__/[^/]+\.nb[ic]", re.DOTALL)  # where numba keeps what it compiled, when it may write


def stranger_faults(image: Image, paths: Iterable[str]) -> list[str]:
    """One fault that names the first strangers among the files of the venv, those at the top first."""
    found = sorted(strangers(image, paths), key=lambda path: (path.count("/"), path))
    if not found:
        return []
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    what = "file is" if len(found) == 1 else "files are"
    return [f"{len(found)} {what} in no RECORD: {', '.join(map(image.shown, found[:SHOWN]))}{more}"]


def strangers(image: Image, paths: Iterable[str]) -> list[str]:
    """The files of site-packages that no RECORD has, and neither the manifest's patches, checks and sources."""
    places, start = set(paths), f"{image.site}/"
    known = {row.path for rows in all_records(image).values() for row in rows or ()}
    named = of_patches(image) | {image.path(item["path"]) for item in image.manifest["checks"]["files"]}
    sources = list(map(image.path, source_paths(image.manifest)))
    # A recorded file that is gone is a fault of its own; its .pyc need not be told as well.
    told = {row.path for rows in records(image).values() for row in rows or ()} - named
    has_source = told | ((known | named) & places)
    # Other checks tell of these folders: of a name that is not in the manifest, twice there, or without RECORD.
    bare = {item.folder for item in distributions(image) if f"{start}{item.folder}/RECORD" not in places}

    def explained(path: str) -> bool:
        return (
            source_of(path) in has_source
            or path[len(start) :].partition("/")[0] in bare
            or path.endswith(INSTALLERS)
            or NUMBA.fullmatch(path) is not None
            or below(path, sources)
        )

    return [path for path in places - known - named if path.startswith(start) and not explained(path)]


def of_patches(image: Image) -> set[str]:
    """The files that the manifest's patches change, add or remove."""
    return {image.path(file["path"]) for patch in image.manifest["patches"] for file in patch["files"]}
