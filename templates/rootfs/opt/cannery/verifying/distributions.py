"""What is installed in the venv: distributions, what they require, and the files that their RECORD lists."""

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from verifying.image import OVERLAY, Image, read_text
from verifying.manifest import installed
from verifying.versions import normal_name


@dataclass(frozen=True)
class Distribution:
    """One .dist-info or .egg-info folder of site-packages. `key` and `requires` are normalised names."""

    name: str
    version: str
    folder: str
    requires: tuple[str, ...]

    @property
    def key(self) -> str:
        """The normalised name."""
        return normal_name(self.name)


def distributions(image: Image) -> list[Distribution]:
    """Everything installed in the venv's site-packages, duplicates included."""
    return image.remember("distributions", lambda: sorted(_installed(image.site), key=lambda item: item.key))


def added(image: Image) -> list[tuple[str, Distribution]]:
    """What a user's `pip install` put into the environment on top of the venv, each with its site-packages folder."""
    places = map(image.path, image.find(f"{OVERLAY}/lib/python3*/site-packages"))
    return [(place, item) for place in places for item in sorted(_installed(place), key=lambda item: item.key)]


def _installed(site: str) -> Iterator[Distribution]:
    """The distributions of a site-packages folder; one without readable metadata goes by the name of its folder."""
    for name in os.listdir(site):
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        folder = os.path.join(site, name)
        candidates = (os.path.join(folder, "METADATA"), os.path.join(folder, "PKG-INFO"), folder)
        text = next((read_text(path) for path in candidates if os.path.isfile(path)), "")
        head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
        fields = dict(re.findall(r"^(Name|Version):[ \t]*(\S+)", head, re.MULTILINE))
        requires = re.findall(r"^Requires-Dist:[ \t]*([\w.-]+)", head, re.MULTILINE)
        stem, _, rest = name.rpartition(".")[0].partition("-")
        yield Distribution(
            fields.get("Name", stem), fields.get("Version", rest), name, tuple(map(normal_name, requires))
        )


class Recorded(NamedTuple):
    """One row of a RECORD, with the distribution's key. `size` None and `digest` "" where the row has none."""

    owner: str
    path: str
    digest: str
    size: int | None


def records(image: Image) -> dict[str, list[Recorded] | None]:
    """RECORD by normalised name, of the manifest's distributions; None where there is none."""
    wanted = {normal_name(item["name"]) for item in installed(image.manifest)}
    return {key: rows for key, rows in all_records(image).items() if key in wanted}


def all_records(image: Image) -> dict[str, list[Recorded] | None]:
    """The same of everything installed; of a distribution that is there twice, the rows of both."""

    def read() -> dict[str, list[Recorded] | None]:
        found: dict[str, list[Recorded] | None] = {}
        for item in distributions(image):
            rows, before = _record(image.site, item), found.get(item.key)
            found[item.key] = before if rows is None else [*(before or ()), *rows]
        return found

    return image.remember("records", read)


def _record(site: str, item: Distribution) -> list[Recorded] | None:
    try:
        with open(os.path.join(site, item.folder, "RECORD"), encoding="utf-8", newline="") as file:
            rows = [(*row, "", "")[:3] for row in csv.reader(file) if row]
    except OSError:
        return None
    found = []
    for name, digest, size in rows:
        path = f"{site}/{name}"
        path = os.path.normpath(path) if ".." in name else path  # 35,000 of them: normpath costs
        found.append(Recorded(item.key, path, digest, int(size) if size.isdigit() else None))
    return found
