"""YAML texts with positions: values plus the line of every key, so that an error can name file:line.

Duplicate keys, which YAML libraries silently let win, are errors here, and so is a text of a depth or number of aliases
(`*name`, which a few lines can multiply without end) that no file read here has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Location = tuple[str | int, ...]
# The largest file has 3,100 nodes and 8 levels: whoever meets one of these bounds has another kind of file.
MOST_NODES = 100_000
DEEPEST = 50
# Of all other tags (`!!set`, `!!binary`, anyone's own) nothing here has any use.
TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "bool", "null", "merge"))
BOOL, NULL = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time: C where it is
    """The safe loader, for which numbers and dates are texts: unquoted, 3.10 is a version and no 3.1."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag in TAGS]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class YamlDocument:
    """One parsed file: its value, and the 1-based line of each key or list item. Numbers and dates are texts."""

    name: str
    value: Any
    lines: Mapping[Location, int]

    def where(self, location: Location) -> str:
        """Return `file:line` of `location`, or of its nearest parent that has a line."""
        path = location
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def parse_yaml(text: str, name: str) -> YamlDocument:
    """Read a YAML text of one document; `name` is how messages call its file.

    Raises `UsageError` with file:line for broken YAML, duplicate keys, tags, an empty text, and one that is nested too
    deeply; never anything else.
    """
    return _parsed(text, name, lambda loader: [loader.get_single_node()])[0]


def parse_documents(text: str, name: str) -> tuple[YamlDocument, ...]:
    """Read the documents of a YAML text that have a value. Raises as `parse_yaml`."""
    return _parsed(text, name, _nodes)


def _nodes(loader: _Loader) -> Iterator[yaml.Node]:
    while loader.check_node():
        node = loader.get_node()
        if node.tag != NULL:
            yield node


def _parsed(text: str, name: str, nodes: Callable[[_Loader], Iterable[yaml.Node | None]]) -> tuple[YamlDocument, ...]:
    found = []
    try:
        loader = _Loader(text)
        for node in filter(None, nodes(loader)):
            index = _Index(name)
            index.add(node, ())
            found.append(YamlDocument(name, loader.construct_document(node), index.lines))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"broken YAML: {problem}", where=where, hint="check indentation, colons and quotes") from error
    except RecursionError as error:
        raise _too_deep(f"{name}:1") from error
    if not found:
        raise UsageError("the file is empty", where=name, hint="fill it, or remove it")
    return tuple(found)


def _too_deep(where: str) -> UsageError:
    hint = "no file here is: check the brackets, and aliases (*) inside their own anchors (&)"
    return UsageError(f"nested more than {DEEPEST} levels deep", where=where, hint=hint)


@dataclass
class _Index:
    """The place of every key and item of a file; what an alias names is counted at each alias."""

    name: str
    lines: dict[Location, int] = field(default_factory=dict)
    count: int = 0

    def add(self, node: yaml.Node, path: Location) -> None:
        """Note `node` and all that is below it. Raises `UsageError` for keys that are no words or are given twice."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.count += 1
        if self.count > MOST_NODES:
            hint = "aliases (*) that name others multiply: write out what is meant"
            raise UsageError(f"more than {MOST_NODES} values, aliases counted in full", where=self.name, hint=hint)
        if len(path) > DEEPEST:
            raise _too_deep(f"{self.name}:{line}")
        self._check_tag(node)
        if isinstance(node, yaml.MappingNode):
            self._pairs(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.add(item, (*path, position))

    def _check_tag(self, node: yaml.Node) -> None:
        if node.tag not in TAGS or (node.tag == BOOL and node.value.lower() not in yaml.SafeLoader.bool_values):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise UsageError(
                f"the tag {tag} has no use here", where=f"{self.name}:{node.start_mark.line + 1}", hint="remove it"
            )

    def _pairs(self, node: yaml.MappingNode, path: Location) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            where = f"{self.name}:{key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError("a key is a single word here", where=where, hint="write name: value")
            self._check_tag(key)
            if key.value in seen:
                raise UsageError(f"key {key.value!r} is given twice", where=where, hint="remove one of them")
            seen.add(key.value)
            self.lines[(*path, key.value)] = key.start_mark.line + 1
            self.add(value, (*path, key.value))
