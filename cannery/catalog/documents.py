"""YAML files of the catalog with the line of every key, and profiles that extend each other.

YAML libraries silently use the last of two equal keys; here they are an error. A file that is nested too deeply or has
too many values is also an error. Each alias (`*name`) counts in full.

`extends: NAME` in a profile inherits the fields of profile NAME. The profile's own fields are merged over them:

- Mappings (`target`, `env` …) are merged by key, `components` by name, and `constraints`, `overrides` and `excludes`
  by package. All other fields are replaced.
- A component that NAME has keeps its place. A new component comes after the last component that is written with only
  its name, or else at the end.
- `without` removes all that NAME has about a package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml
from packaging.utils import canonicalize_name

from cannery.errors import UsageError
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Location = tuple[str | int, ...]
# The largest file has 3,100 nodes and 8 levels.
MOST_NODES = 100_000
DEEPEST = 50
# All other tags (`!!set`, `!!binary`, application tags) are refused.
TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "bool", "null", "merge"))
BOOL, NULL = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"
COMPONENTS, BOUNDS, DATES = "components", ("constraints", "overrides", "excludes"), "exclude_newer_packages"
# Fields that a profile does not inherit.
OWN = ("place", "replaced")
# An entry of a list, and its position in the extending file; None if it is inherited.
Entry = tuple[Any, int | None]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time: C where it is
    """The safe loader, but numbers and dates stay texts: an unquoted 3.10 does not become 3.1."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag in TAGS]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class YamlDocument:
    """One parsed file: its value, and the 1-based line of each key or list item. Numbers and dates are texts.

    For the items of a merged list, `moved` has their location in the file.
    """

    name: str
    value: Any
    lines: Mapping[Location, int]
    moved: Mapping[Location, Location] = field(default_factory=dict)

    def where(self, location: Location) -> str:
        """Return `file:line` of `location`, or of its nearest parent with a line."""
        path = (*self.moved.get(location[:2], location[:2]), *location[2:])
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def parse_yaml(text: str, name: str) -> YamlDocument:
    """Read a YAML text with one document; `name` is the name of its file in messages.

    Raises only `UsageError`, with file:line: for broken YAML, duplicate keys, tags, an empty text, and nesting that is
    too deep.
    """
    return _parsed(text, name, lambda loader: [loader.get_single_node()])[0]


def parse_documents(text: str, name: str) -> tuple[YamlDocument, ...]:
    """Read the documents of a YAML text that have a value. Raises like `parse_yaml`."""

    def nodes(loader: _Loader) -> Iterator[yaml.Node]:
        while loader.check_node():
            node = loader.get_node()
            if node.tag != NULL:
                yield node

    return _parsed(text, name, nodes)


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
    hint = "check the brackets, and aliases (*) inside their own anchors (&)"
    return UsageError(f"nested more than {DEEPEST} levels deep", where=where, hint=hint)


@dataclass
class _Index:
    """Collects the line of every key and item of a file. The content of an alias is counted at each alias."""

    name: str
    lines: dict[Location, int] = field(default_factory=dict)
    count: int = 0

    def add(self, node: yaml.Node, path: Location) -> None:
        """Add `node` and everything below it. Raises `UsageError` for a key that is not a scalar or is given twice."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.count += 1
        if self.count > MOST_NODES:
            hint = "aliases (*) of aliases multiply the values: write the values out"
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


def extended(name: str, documents: Mapping[str, YamlDocument], above: tuple[str, ...] = ()) -> YamlDocument:
    """Return the document of profile `name`, merged with the profiles that it extends. `documents` are unmerged.

    Inherited fields have the line of `extends`. Raises `UsageError` if a profile does not exist, or if profiles extend
    each other in a cycle.
    """
    own = documents[name]
    parent = own.value.get("extends") if isinstance(own.value, dict) else None
    if not isinstance(parent, str):
        return own
    if parent not in documents:
        raise _fault(own, ("extends",), f"no profile {parent!r} that can be read", did_you_mean(parent, documents))
    if parent in (*above, name):
        ring = " extends ".join(documents[one].name for one in (*above, name, parent))
        raise _fault(own, ("extends",), f"the profiles extend each other: {ring}", "remove one `extends`")
    base = extended(parent, documents, (*above, name))
    if not isinstance(base.value, dict):
        raise _fault(own, ("extends",), f"{base.name} is not a profile")
    inherited = {key: value for key, value in _left(own, base).items() if key not in OWN}
    merged = {**inherited, **own.value}
    lines = {(key,): own.lines[("extends",)] for key in merged} | {**own.lines}
    moved: dict[Location, Location] = {}
    for key, value in own.value.items():
        before = inherited.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = {**before, **value}
        elif key in (COMPONENTS, *BOUNDS) and isinstance(before, list) and isinstance(value, list):
            if key == COMPONENTS:
                entries = _components(before, value)
            else:  # all bounds on one package come from the same file
                mine = {_package(entry) for entry in value}
                entries = [(entry, None) for entry in before if _package(entry) not in mine]
                entries += [(entry, number) for number, entry in enumerate(value)]
            merged[key] = [entry for entry, _ in entries]
            places = (("extends",) if number is None else (key, number) for _, number in entries)
            moved |= {(key, position): place for position, place in enumerate(places)}
    return replace(own, value=merged, lines=lines, moved=moved)


def _fault(document: YamlDocument, path: Location, what: str, hint: str = "") -> UsageError:
    return UsageError(f"{path[0]}: {what}", where=document.where(path), hint=hint)


def _left(own: YamlDocument, base: YamlDocument) -> dict[str, Any]:
    """Return the fields of `base` without the packages in `without`. Raises `UsageError` for an unknown package."""
    left = dict(base.value)
    names = own.value.get("without")
    for at, name in enumerate(names if isinstance(names, list) else ()):
        before = dict(left)
        for key in (COMPONENTS, *BOUNDS):
            if isinstance(left.get(key), list):
                left[key] = [entry for entry in left[key] if _package(entry) != canonicalize_name(str(name))]
        if isinstance(left.get(DATES), dict):
            package, dates = canonicalize_name(str(name)), left[DATES].items()
            left[DATES] = {key: day for key, day in dates if canonicalize_name(str(key)) != package}
        if left == before:
            raise _fault(own, ("without", at), f"{base.name} has nothing about {name!r}", "remove it")
    return left


def _package(entry: object) -> str:
    """Return the package of a list entry: from its component name or its requirement; "" if it has none."""
    if not isinstance(entry, dict):
        return ""
    text = str(entry.get("name") or entry.get("requirement") or "")
    return canonicalize_name(re.split(r"[^\w.-]", text.strip(), maxsplit=1)[0])


def _components(inherited: Sequence[Any], own: Sequence[Any]) -> list[Entry]:
    """Merge components by name. An inherited component with only a name marks the place of those that follow it."""
    found: list[Entry] = [(entry, None) for entry in inherited]
    place: int | None = None
    for number, entry in enumerate(own):
        package, names = _package(entry), [_package(one) if at is None else "" for one, at in found]
        at = names.index(package) if package and package in names else None
        if at is not None and entry.keys() == {"name"}:
            place = at + 1
        elif at is not None:
            found[at] = (entry, number)
        else:
            found.insert(len(found) if place is None else place, (entry, number))
            place = None if place is None else place + 1
    return found
