"""The content of a layer on the host, and the layer that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePath

    from cannery.plan.sources import OverlayFile


@dataclass(frozen=True)
class Wheel:
    """A wheel on this host, and its hash."""

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
    """The content of a layer: wheels and trees with their byte code, {path: text}, {path of a link: target}, whiteouts.

    The paths in `below` are left out, because a lower layer has those files. `stage` names the layer in timelines.
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
    """Where wheels are installed: the minor version of the Python there (`3.11`), and every file's mtime in seconds."""

    python: str
    epoch: int


@dataclass(frozen=True)
class Made:
    """The tar of a layer: its DiffID (`sha256:…`) and its size in bytes."""

    diff_id: str
    size: int
