"""YAML files with positions: values plus the line of every key, so that an error can say file:line.

Duplicate keys, which YAML libraries silently let win, are errors here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from cannery.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Location = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class YamlDocument:
    """One parsed file: its value, the 1-based line of each key or list item, and each scalar as it is written."""

    name: str
    value: Any
    lines: Mapping[Location, int]
    texts: Mapping[Location, str]

    def where(self, location: Location) -> str:
        """Return `file:line` of `location`, or of its nearest parent that has a line."""
        path = location
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def read_yaml(path: Path, name: str) -> YamlDocument:
    """Read one YAML file; `name` is how messages call it.

    Raises `UsageError` with file:line for broken YAML, duplicate keys and an empty file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=name) from error
    loader = _Loader(text)
    lines: dict[Location, int] = {}
    texts: dict[Location, str] = {}
    try:
        node = loader.get_single_node()
        if node is None:
            raise UsageError("the file is empty", where=name)
        _index(node, (), lines, texts, name)
        value = _construct(loader, node, name)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"broken YAML: {problem}", where=where, hint="check indentation, colons and quotes") from error
    except RecursionError as error:
        raise UsageError("nested too deeply, or an alias (*) stands inside its own anchor (&)", where=name) from error
    finally:
        loader.dispose()
    return YamlDocument(name, value, lines, texts)


def _index(node: yaml.Node, path: Location, lines: dict[Location, int], texts: dict[Location, str], name: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError("a key is a single word here", where=f"{name}:{line}")
            if key.value in seen:
                raise UsageError(f"key {key.value!r} stands twice", where=f"{name}:{line}", hint="remove one of them")
            seen.add(key.value)
            lines[(*path, key.value)] = line
            _index(value, (*path, key.value), lines, texts, name)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _index(item, (*path, position), lines, texts, name)
    else:
        texts[path] = node.value


def _construct(loader: Any, node: yaml.Node, name: str) -> Any:  # noqa: ANN401 - YAML
    """Turn nodes into values; a date that does not exist, or a number too long for Python, is an error of the file."""
    try:
        return loader.construct_document(node)
    except (ValueError, OverflowError) as error:
        hint = "quote dates, versions and whatever else is no number"
        raise UsageError(f"a value cannot be read: {error}", where=name, hint=hint) from error
