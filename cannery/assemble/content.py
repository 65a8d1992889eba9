"""The content of a layer, and the layer that is made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePath

    from cannery.plan.sources import OverlayFile


@dataclass(frozen=True)
class Wheel:
    """A wheel on this host and its hash."""

    path: PurePath
    sha256: str


@dataclass(frozen=True)
class Tree:
    """A source tree: its tar on this host, its folder in the image, and the files that patches change."""

    tar: PurePath
    home: str
    patched: tuple[OverlayFile, ...] = ()


@dataclass(frozen=True)
class Content:
    """The content of a layer: wheels and trees with their byte code, text files, links and whiteouts.

    `texts` is {path: text}, `links` is {path: target}, and `gone` are the paths that get a whiteout. The paths in
    `below` are left out, because a lower layer has them. `stage` names the layer in timelines.
    """

    wheels: tuple[Wheel, ...] = ()
    trees: tuple[Tree, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    below: frozenset[str] = frozenset()
    stage: str = "trial"


@dataclass(frozen=True)
class Place:
    """Where wheels are installed: the minor version of Python (`3.11`), and the mtime of every file in seconds."""

    python: str
    epoch: int


@dataclass(frozen=True)
class Made:
    """The tar of a layer: its DiffID (`sha256:…`) and its size in bytes."""

    diff_id: str
    size: int
