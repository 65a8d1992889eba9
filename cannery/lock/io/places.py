"""Places that list package files, as the host's pip settings and the catalog name them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pypi_simple import PYPI_SIMPLE_ENDPOINT

from cannery.util.urls import file_path, shown
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.addresses import Index
    from cannery.util.io.pip_settings import PipSettings


@dataclass(frozen=True)
class Place:
    """A place that lists files. `index` is the name that a lock has for it, `links` whether it is a flat list of files.

    Everything that the host's pip settings name has the index name `default`.
    """

    index: str
    label: str
    url: str = field(repr=False)
    links: bool = False

    @property
    def folder(self) -> Path | None:
        """The local path, None for a place on the network."""
        return url_path(self.url) if self.url.startswith("file:") else None

    def __str__(self) -> str:
        return f"{self.label} ({shown(self.url)})"


def default_place(settings: PipSettings) -> Place:
    """Return the host's main index: pip's index-url, which may be a path, or pip's own default."""
    return Place(DEFAULT_INDEX, "index default", as_url(settings.index_url or PYPI_SIMPLE_ENDPOINT))


def extra_places(settings: PipSettings) -> tuple[Place, ...]:
    """Return the host's extra indexes and find-links, in pip's order.

    Local folders that do not exist are left out; `PipSettings.notes` lists them.
    """
    extras = [Place(DEFAULT_INDEX, "extra index", as_url(url)) for url in settings.extra_index_urls]
    links = [Place(DEFAULT_INDEX, "find-links", as_url(url), links=True) for url in settings.find_links]
    return tuple(place for place in (*extras, *links) if place.folder is None or place.folder.exists())


def bound_places(name: str, indexes: Mapping[str, Index]) -> tuple[Place, ...]:
    """Return the places of an index that the catalog names, in the order in which they are tried."""
    index = indexes[name]
    pages = (Place(name, f"index {name}", url, links=True) for url in index.pages)
    return (*pages, *(Place(name, f"index {name}", url) for url in index.urls))


def places_of(name: str, indexes: Mapping[str, Index], settings: PipSettings) -> tuple[Place, ...]:
    """Return the places that may serve a package of an index: the index's own, then the host's extra ones."""
    own = (default_place(settings),) if name == DEFAULT_INDEX else bound_places(name, indexes)
    return (*own, *extra_places(settings))


def url_path(url: str) -> Path:
    """Return the path of a `file:` URL."""
    return Path(file_path(url))


def as_url(text: str) -> str:
    """Return a pip setting's path or URL as a URL."""
    return text if "://" in text or text.startswith("file:") else Path(text).expanduser().absolute().as_uri()
