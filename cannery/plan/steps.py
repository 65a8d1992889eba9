"""How a tarball of a recipe comes into the image: built on the target's platform, and of that the files that are named.

The plan has what the build runs; where the tarball comes from is `cannery.sources.io.archives`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.recipe.recipe import ChosenTarball, Recipe


@dataclass(frozen=True)
class ArchiveStep:
    """One tarball's layer.

    `file` is its name below archives/ in the rendered folder, `sha256` and `size` (bytes) what it has to be. `commands`
    run one after the other at the top of its tree, with `{jobs}` and `{destdir}` still open; `files` are the paths,
    below `{destdir}`, that come into the image.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int
    commands: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]

    @property
    def text(self) -> str:
        """What templates/tools/archive.py reads, as JSON."""
        value = {"name": self.name, "commands": self.commands, "files": self.files}
        return json.dumps(value, indent=1) + "\n"


def archive_steps(recipe: Recipe) -> Iterator[ArchiveStep]:
    """Give the steps of the archives of `recipe`, in the profile's order."""
    for chosen in recipe.archives:
        archive = chosen.archive
        if archive is not None:  # the catalog has refused another version
            yield ArchiveStep(
                name=chosen.name,
                version=chosen.version or "",
                file=archive.file.rpartition("/")[2],
                sha256=archive.sha256,
                size=archive.size,
                commands=_commands(chosen),
                files=chosen.component.files,
            )


def _commands(chosen: ChosenTarball) -> tuple[tuple[str, ...], ...]:
    """Return the commands with the words that differ by arch filled in."""

    def filled(word: str) -> str:
        for name, values in chosen.component.by_arch.items():
            word = word.replace(f"{{{name}}}", values[chosen.arch])
        return word

    return tuple(tuple(map(filled, command)) for command in chosen.component.steps)
