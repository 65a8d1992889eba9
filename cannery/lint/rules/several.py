"""A --device that is meant to bring several cards at once, which docker does not know: `/dev/davinci0-3`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.npus import parse_cards
from cannery.lint.case import remark, replace
from cannery.vocab import Severity

if TYPE_CHECKING:
    from cannery.lint.case import Remark
    from cannery.lint.container import Device

# Cards of one machine at most: more in one word is a slip.
MOST_CARDS = 64
SEVERAL = re.compile(r"/?(?:dev/)?davinci\[?(\d+(?:[-,]\d+)+)\]?")
PATTERN = re.compile(r"/dev/davinci[^\w$]*")


def means_several(path: str) -> bool:
    """Whether a path is a list, a range or a pattern of cards."""
    return bool(SEVERAL.fullmatch(path) or PATTERN.fullmatch(path))


def several_cards(device: Device) -> Remark:
    """Return the remark about a --device that means several cards: one for each, where they can be read."""
    words = tuple(word for node in meant_cards(device.source) for word in ("--device", node))
    return remark(
        Severity.ERROR,
        "node.unknown",
        device.setting.word,
        f"{device.setting.word}: docker takes one node, by its full name, after each --device",
        "no pattern is filled in there",
        " ".join(words) or "--device /dev/davinci0 --device /dev/davinci1 …",
        *([replace(device.setting, *words)] if words else []),
    )


def meant_cards(path: str) -> tuple[str, ...]:
    """Return the nodes that `/dev/davinci0-3` or `/dev/davinci0,1` is meant to be; () for anything else."""
    listed = SEVERAL.fullmatch(path)
    try:
        cards = parse_cards(listed[1]) if listed else ()
    except UsageError:
        return ()
    return tuple(f"/dev/davinci{card}" for card in cards) if len(cards) <= MOST_CARDS else ()
