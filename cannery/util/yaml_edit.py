"""Edits a YAML text: ruamel.yaml finds the position of a value, and all other bytes are kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node, ScalarNode

LINE_END = re.compile(r"\r?\n")
# The block styles of a scalar.
BLOCK = frozenset({"|", ">"})


def root_node(text: str) -> MappingNode:
    """Return the nodes of a YAML text with their positions. Raises `TypeError` if it is not a mapping."""
    root = YAML().compose(text)
    if not isinstance(root, MappingNode):
        raise TypeError("the text is not a mapping")
    return root


def value_of(mapping: MappingNode, key: str) -> Node | None:
    """Return the value of a key, or None."""
    return next((value for name, value in mapping.value if name.value == key), None)


def over(text: str, node: ScalarNode, value: str) -> str:
    """Return `text` with a scalar replaced by `value`, in single quotes if it had those, else in double quotes."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in BLOCK:  # its end mark is after the empty lines that follow
        end = start + len(text[start:end].rstrip())
    new = f"'{value}'" if node.style == "'" and "'" not in value else quoted(value)
    return _replaced(text, start, end, new)


def with_first(text: str, mapping: MappingNode, key: str, new: str) -> str:
    """Return `text` with `new` as the first entry of the block mapping at `key`.

    As the last entry, it might be below a comment that is about the next key.
    """
    name, node = next((k, v) for k, v in mapping.value if k.value == key)
    end = line_end(text, name.end_mark.index)
    indent = " " * node.start_mark.column
    return _replaced(text, end, end, f"\n{new}".replace("\n", f"\n{indent}"))


def _replaced(text: str, start: int, end: int, new: str) -> str:
    """Return `text` with [start, end) replaced by `new`, with the same line ends."""
    return text[:start] + (new.replace("\n", "\r\n") if "\r\n" in text else new) + text[end:]


def line_end(text: str, index: int) -> int:
    """Return the end of the line at `index`."""
    found = LINE_END.search(text, index)
    return found.start() if found else len(text)


def quoted(text: str) -> str:
    """Return a double-quoted scalar. YAML has all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)
