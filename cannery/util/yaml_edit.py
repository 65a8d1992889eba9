"""Edits of a YAML text: ruamel.yaml finds where a value is written, in any style, and every other byte stays."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ruamel.yaml.nodes import Node

LINE_END = re.compile(r"\r?\n")
# The styles of a scalar that has lines of its own.
BLOCK = frozenset({"|", ">"})


@dataclass(frozen=True)
class Change:
    """`new` takes the place of [start, end) of a text; `line` (1-based) is where a reader would look."""

    start: int
    end: int
    new: str
    line: int


def applied(text: str, changes: Iterable[Change]) -> str:
    """Return `text` with `changes` made, whose positions are of `text`; its line ends stay what they are."""
    for change in sorted(changes, key=lambda change: change.start, reverse=True):
        new = change.new.replace("\n", "\r\n") if "\r\n" in text else change.new
        text = text[: change.start] + new + text[change.end :]
    return text


def root_node(text: str) -> MappingNode:
    """Return the nodes of a YAML text with their positions. Raises `TypeError` for one that is no mapping."""
    root = YAML().compose(text)
    if not isinstance(root, MappingNode):
        raise TypeError("the text is no mapping")
    return root


def node_at(node: Node | None, path: Sequence[str | int]) -> Node | None:
    """Return the node at `path` below `node`; None when there is none."""
    for step in path:
        if isinstance(node, MappingNode):
            node = next((value for name, value in node.value if name.value == step), None)
        elif isinstance(node, SequenceNode) and isinstance(step, int):
            node = node.value[step] if step < len(node.value) else None
        else:
            return None
    return node


def over(text: str, node: ScalarNode, value: str) -> Change:
    """Put `value` in the place of a scalar, in quotes: the single ones that it had, else double ones."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in BLOCK:  # its mark is after the empty lines that follow, and its first line may have a comment
        end = start + len(text[start:end].rstrip())
    new = f"'{value}'" if node.style == "'" and "'" not in value else quoted(value)
    return Change(start, end, new, node.start_mark.line + 1)


def first(text: str, mapping: MappingNode, key: str, new: str) -> Change:
    """Put `new` as the first one into the collection that is the value of `key`.

    Not as the last one: a comment above the next key would then seem to be about the new entry.
    """
    name, node = next((k, v) for k, v in mapping.value if k.value == key)
    line = name.start_mark.line + 1
    if node.flow_style:
        at = node.start_mark.index + 1
        return Change(at, at, new + (", " if node.value else ""), line)
    dash = "- " if isinstance(node, SequenceNode) else ""
    end = line_end(text, name.end_mark.index)
    indent = " " * node.start_mark.column
    return Change(end, end, f"\n{indent}{dash}" + new.replace("\n", f"\n{indent}"), line)


def line_end(text: str, index: int) -> int:
    """Return where the line of `index` ends."""
    found = LINE_END.search(text, index)
    return found.start() if found else len(text)


def quoted(text: str) -> str:
    """Return a double-quoted scalar; JSON's escapes are YAML's too."""
    return json.dumps(text, ensure_ascii=False)
