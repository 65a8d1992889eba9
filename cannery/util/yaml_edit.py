"""Edits of a YAML text: ruamel.yaml finds where a value is written, in any style, and every other byte stays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node, ScalarNode

LINE_END = re.compile(r"\r?\n")
# The styles of a scalar that has lines of its own.
BLOCK = frozenset({"|", ">"})


def root_node(text: str) -> MappingNode:
    """Return the nodes of a YAML text with their positions. Raises `TypeError` for one that is no mapping."""
    root = YAML().compose(text)
    if not isinstance(root, MappingNode):
        raise TypeError("the text is no mapping")
    return root


def value_of(mapping: MappingNode, key: str) -> Node | None:
    """Return the value of a key; None where it is not there."""
    return next((value for name, value in mapping.value if name.value == key), None)


def over(text: str, node: ScalarNode, value: str) -> str:
    """Return `text` with `value` in the place of a scalar, in quotes: the single ones that it had, else double ones."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in BLOCK:  # its mark is after the empty lines that follow, and its first line may have a comment
        end = start + len(text[start:end].rstrip())
    new = f"'{value}'" if node.style == "'" and "'" not in value else quoted(value)
    return _replaced(text, start, end, new)


def with_first(text: str, mapping: MappingNode, key: str, new: str) -> str:
    """Return `text` with `new` as the first entry of the mapping that is the value of `key`, in block style.

    Not as the last one: a comment above the next key would then seem to be about the new entry.
    """
    name, node = next((k, v) for k, v in mapping.value if k.value == key)
    end = line_end(text, name.end_mark.index)
    indent = " " * node.start_mark.column
    return _replaced(text, end, end, f"\n{new}".replace("\n", f"\n{indent}"))


def _replaced(text: str, start: int, end: int, new: str) -> str:
    """Return `text` with `new` in the place of [start, end), with the line ends that it has."""
    return text[:start] + (new.replace("\n", "\r\n") if "\r\n" in text else new) + text[end:]


def line_end(text: str, index: int) -> int:
    """Return where the line of `index` ends."""
    found = LINE_END.search(text, index)
    return found.start() if found else len(text)


def quoted(text: str) -> str:
    """Return a double-quoted scalar; JSON's escapes are YAML's too."""
    return json.dumps(text, ensure_ascii=False)
