"""Changing a YAML text at one place: a scalar's value, a new entry of a mapping or sequence. Every other byte stays.

The text is composed into nodes, whose marks say where a value stands, so flow and block style, quotes and comments need
no parser of our own. An alias has the marks of its anchor: whoever edits compares what comes out with what was wanted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN_KEY = re.compile(r"[a-z][a-z0-9._-]*", re.IGNORECASE | re.ASCII)
LINE_END = re.compile(r"\r?\n")
# The styles of a scalar that stands on lines of its own.
BLOCK = frozenset({"|", ">"})


@dataclass(frozen=True)
class Change:
    """`new` takes the place of [start, end) of a text; `line` (1-based) is where a reader would look."""

    start: int
    end: int
    new: str
    line: int

    def made_in(self, text: str) -> str:
        """Return `text` with the change, in the text's own kind of line end."""
        new = self.new.replace("\n", "\r\n") if "\r\n" in text else self.new
        return text[: self.start] + new + text[self.end :]


def compose(text: str) -> yaml.MappingNode:
    """Return the nodes of a text that holds a mapping."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("a mapping is wanted here")  # noqa: TRY004 - what a parser of text raises
    return root


def value_of(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """Return the value of a mapping's key; None when it is not there, or when `node` is no mapping."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def items_of(node: yaml.Node | None) -> Sequence[yaml.Node]:
    """Return the items of a sequence; none when `node` is no sequence."""
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def over(text: str, node: yaml.Node, value: str) -> Change:
    """Put `value` in the place of a scalar, in quotes: the single ones that it had, else double ones."""
    style = getattr(node, "style", None)
    start, end = node.start_mark.index, node.end_mark.index
    if style in BLOCK:  # its mark is behind the empty lines that follow, and its first line may have a comment
        end = start + len(text[start:end].rstrip())
    new = f"'{value}'" if style == "'" and "'" not in value else quoted(value)
    return Change(start, end, new, node.start_mark.line + 1)


def behind(text: str, mapping: yaml.MappingNode, key: str, entry: str) -> Change:
    """Put `entry` behind the entry of `key`, whose value is a scalar: in block style on lines of its own.

    The further lines of `entry` are indented below its first one.
    """
    name, value = next((k, v) for k, v in mapping.value if k.value == key)
    line = name.start_mark.line + 1
    if mapping.flow_style:
        return Change(value.end_mark.index, value.end_mark.index, f", {entry}", line)
    indent = " " * name.start_mark.column
    end = _line_end(text, value.end_mark.index)
    return Change(end, end, "".join(f"\n{indent}{part}" for part in entry.split("\n")), line)


def first(text: str, mapping: yaml.MappingNode, key: str, entry: str) -> Change:
    """Put `entry` as the first one into the collection that is the value of `key`.

    Not as the last one: a comment that stands above the next key would then stand above the new entry.
    """
    name, node = next((k, v) for k, v in mapping.value if k.value == key)
    line = name.start_mark.line + 1
    if node.flow_style:
        at = node.start_mark.index + 1
        return Change(at, at, entry + (", " if node.value else ""), line)
    dash = "- " if isinstance(node, yaml.SequenceNode) else ""
    end = _line_end(text, name.end_mark.index)
    return Change(end, end, f"\n{' ' * node.start_mark.column}{dash}{entry}", line)


def _line_end(text: str, index: int) -> int:
    found = LINE_END.search(text, index)
    return found.start() if found else len(text)


def key_text(name: str) -> str:
    """Return `name` as a key: quoted where YAML would read something else than a text."""
    return name if PLAIN_KEY.fullmatch(name) and isinstance(yaml.safe_load(name), str) else quoted(name)


def quoted(text: str) -> str:
    """Return a double-quoted scalar; JSON's escapes are YAML's too."""
    return json.dumps(text, ensure_ascii=False)
