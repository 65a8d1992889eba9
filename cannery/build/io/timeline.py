"""What the last build of an image has made, and how long each part took: a file of its rendered folder."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.build.stages import Span
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "log/timeline.json"


def keep_spans(folder: Path, reference: str, spans: Sequence[Span]) -> None:
    """Write what was made of the image `reference`. A build that has made nothing leaves what an earlier one wrote.

    Nor is a file that cannot be written a reason for a build to fail.
    """
    if spans:
        value = {"image": reference, "made": [asdict(one) for one in spans]}
        with suppress(OSError):
            write_atomic(folder / FILE, json.dumps(value, indent=1))


def read_spans(folder: Path, reference: str) -> tuple[Span, ...]:
    """Return what the last build that made anything has made of that image; nothing where it is not known."""
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return tuple(Span(**one) for one in value["made"]) if value["image"] == reference else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()
