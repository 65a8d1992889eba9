"""A compose file together with the files that it names: what it includes, and what its services extend elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.lint.compose_forms import checked_services, filled, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cannery.catalog.yaml_text import Location

# Compose's own tags: a key that is gone, and one whose value is joined with that of no other file.
RESET, OVERRIDE = "!reset", "!override"
COMPOSE_TAGS = frozenset({RESET, OVERRIDE})
# `https://…`, `oci:…`, `git@…:…`: compose fetches them; `lint-run` asks no network.
_REMOTE = re.compile(r"[a-z]+://|oci:|git@|github\.com/")


@dataclass(frozen=True)
class ComposeFile:
    """One file: its services as they stand there, and the files that it names.

    `alone` are the keys (service, key) that take the place of what another file says, and are joined with none of it.
    `extended` are the files of `extends`, by their names as written, `itself` are such names of this very file;
    `unread` says which files are not seen, and why.
    """

    name: str
    services: Mapping[str, dict[str, Any]]
    alone: frozenset[tuple[str, str]] = frozenset()
    included: tuple[tuple[ComposeFile, ...], ...] = ()
    extended: Mapping[str, ComposeFile] = field(default_factory=dict)
    itself: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def alone_in(self, service: str) -> set[str]:
        """Return the keys of a service that are joined with those of no other file."""
        return {key for name, key in self.alone if name == service}


def compose_file(document: Any, name: str, tags: Mapping[Location, str] | None = None) -> ComposeFile:  # noqa: ANN401 - YAML
    """Return a file without those that it names; `tags` are compose's own, by the place of their value.

    Raises `UsageError` where it has neither services nor an `include`, or some of no form of compose.
    """
    services = document.get("services") if isinstance(document, dict) else None
    includes = isinstance(document, dict) and bool(document.get("include"))
    if not isinstance(services, dict | None) or not (services or includes):
        raise UsageError("there are no services in it", where=name, hint=_hint(document))
    marked = {(str(at[1]), str(at[2])): tag for at, tag in (tags or {}).items() if len(at) == 3 and at[0] == "services"}
    kept = {
        key: {k: v for k, v in value.items() if marked.get((str(key), str(k))) != RESET}
        if isinstance(value, dict)
        else value
        for key, value in (services or {}).items()
    }
    return ComposeFile(name, checked_services(kept, name), frozenset(marked))


def _hint(document: Any) -> str:  # noqa: ANN401 - YAML
    if isinstance(document, dict) and {"apiVersion", "kind"} <= set(document):
        return "it is one of Kubernetes: what is read is a compose file, or the text of a docker run line"
    if isinstance(document, str):
        return "the text of a command or a script comes by standard input: build.py lint-run - < FILE"
    return "a compose file has a mapping `services:`"


def included_paths(document: Any, name: str) -> tuple[tuple[str, ...], ...]:  # noqa: ANN401 - YAML
    """Return for each entry of `include` its files, which are read one over the other.

    Raises `UsageError` for an entry of another form.
    """
    found = []
    for number, entry in enumerate(listed(document.get("include"))):
        paths = listed(entry.get("path") if isinstance(entry, dict) else entry)
        if not paths or not all(isinstance(path, str) and path for path in paths):
            hint = "a path, or a mapping with `path:`"
            raise UsageError(f"include[{number}] names no file", where=name, hint=hint)
        found.append(tuple(map(filled, paths)))
    return tuple(found)


def extended_paths(services: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the files that `extends` of the services name, each once."""
    entries = (service.get("extends") for service in services)
    return tuple(dict.fromkeys(filled(str(e["file"])) for e in entries if isinstance(e, dict) and e.get("file")))


def why_not(path: str) -> str:
    """Say why a path is not one of a file here, "" where it may be one."""
    if _REMOTE.match(path):
        return "it is not on this machine"
    return "a variable is in it" if "$" in path else ""
