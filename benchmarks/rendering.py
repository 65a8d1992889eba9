"""Measure how many images of the matrix are planned and rendered in a second of CPU time.

    .venv/bin/python -m benchmarks.rendering [--json FILE]

The matrix has each profile with its architectures and Pythons, for two chips, on its own base and on the stand-in. For
each image, this process makes the plan, renders all text files of the folder, and checks the Dockerfile. It writes no
folder and downloads nothing. An image that is refused counts too (the stand-in has one Python only).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.context import read_context
from cannery.errors import FindingsError
from cannery.pipeline import planned
from cannery.recipe.recipe import Options
from cannery.render.lint import lint
from cannery.render.render import DOCKERFILE, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context

CHIPS = ("910b", "a3")


def matrix(catalog: Catalog) -> Iterator[tuple[str, Options]]:
    """Yield the profile and the options of each image."""
    for name, profile in sorted(catalog.profiles.items()):
        target = profile.target
        cells = product((target.python, *target.pythons), target.arch, CHIPS, (None, "standin"))
        yield from ((name, Options(python=one[0], arch=one[1], chip=one[2], base=one[3])) for one in cells)


def rendered(context: Context, catalog: Catalog, name: str, options: Options) -> tuple[dict[str, str], str]:
    """Return the files of an image by path, and all findings; no files if the image is refused."""
    try:
        plan, findings = planned(context, name, options, catalog=catalog)[1:]
    except FindingsError as error:
        return {}, str(error)
    files = render(plan, context.templates, catalog.compatibility)
    found = (*findings, *lint(files[DOCKERFILE], plan.recipe.target.arch))
    return files, "\n".join(map(str, found))


def main() -> None:
    """Plan and render each image, and print how long that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a digest of each image's files and findings")
    arguments = parser.parse_args()
    context = read_context(Path(__file__).resolve().parent.parent)
    catalog = context.catalog()
    begun = time.process_time()
    found = {str((name, options)): rendered(context, catalog, name, options) for name, options in matrix(catalog)}
    cpu, refused = time.process_time() - begun, sum(not files for files, _findings in found.values())
    print(f"{len(found)} images, {refused} of them refused: {cpu:.2f} CPU s, {len(found) / cpu:.0f} a second")
    if arguments.json:
        digests = {name: hashlib.sha256(repr(result).encode()).hexdigest() for name, result in found.items()}
        arguments.json.write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main()
