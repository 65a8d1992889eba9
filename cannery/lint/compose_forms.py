"""The forms that a compose file's services have to have, and what a service takes over from another one of the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.lint.container import colon_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cannery.lint.compose_tree import ComposeFile

_LIST, _MAPPING = (list,), (dict,)
# Keys of a service that are not one text → what their value may be.
_FORMS: dict[str, tuple[type, ...]] = {
    "devices": _LIST,
    "volumes": _LIST,
    "group_add": _LIST,
    "environment": (list, dict),
    "tmpfs": (list, str),
    "env_file": (list, str),
    "device_cgroup_rules": _LIST,
    "deploy": _MAPPING,
}
_SHOWN: dict[type, str] = {list: "a list", dict: "a mapping", str: "a text"}
# How compose reads a text where a boolean has to stand; those of YAML 1.1 with a warning.
_BOOLEANS = {"true": True, "y": True, "yes": True, "on": True, "false": False, "n": False, "no": False, "off": False}
# No file has such a chain on purpose.
MOST_ABOVE = 32
_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
_JOINED = ("devices", "volumes", "group_add", "tmpfs", "env_file", "device_cgroup_rules")


def filled(text: str) -> str:
    """Return a text with the default of each variable in its place, since its value is not known here."""
    return _DEFAULT.sub(r"\1", text)


def checked_services(services: Mapping[Any, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the services of the file `name` as they stand. Raises `UsageError` for what is no form of compose."""
    return {str(key): _checked(value, name, f"services.{key}") for key, value in services.items()}


def whole_services(file: ComposeFile) -> dict[str, dict[str, Any]]:
    """Return the services of a file, each with what it `extends`; that key stays where the other file is not read.

    Raises `UsageError` for services that extend one another, or one that is not there.
    """
    return {key: _whole(key, file, ()) for key in file.services}


def _checked(service: Any, name: str, where: str) -> dict[str, Any]:  # noqa: ANN401 - YAML
    if not isinstance(service, dict):
        raise UsageError(f"{where} is no mapping", where=name, hint="a service has keys: image, devices, volumes …")
    for key, types in _FORMS.items():
        if service.get(key) is not None and not isinstance(service[key], types):
            shown = " or ".join(_SHOWN[one] for one in types)
            raise UsageError(f"{where}.{key} has to be {shown}", where=name, hint=f"it is {service[key]!r}")
        for number, item in enumerate(listed(service.get(key)) if key in _JOINED else ()):
            if isinstance(item, list | None):
                hint = "a list's item is a text or a mapping; `- *name` of a list puts a list into a list"
                raise UsageError(f"{where}.{key}[{number}] is no text and no mapping", where=name, hint=hint)
    found = service.get("privileged")
    if found is not None and not isinstance(found, bool) and "$" not in str(found):
        if str(found).lower() not in _BOOLEANS:
            raise UsageError(f"{where}.privileged: {found!r} is no boolean", where=name, hint="true or false")
        return {**service, "privileged": _BOOLEANS[str(found).lower()]}
    return service


def _whole(key: str, file: ComposeFile, above: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return a service with what it takes over; `above` are those that extend it, by file and name."""
    service, name = file.services[key], file.name
    extends = service.get("extends")
    if extends is None:
        return service
    base = str(extends.get("service", key) if isinstance(extends, dict) else extends)
    other: ComposeFile | None = file
    if isinstance(extends, dict) and extends.get("file"):
        named = filled(str(extends["file"]))
        other = file if named in file.itself else file.extended.get(named)
    if other is None:
        return service
    where = f"services.{key}.extends"
    if base not in other.services:
        hint = f"in {other.name} there are: {', '.join(other.services)}"
        raise UsageError(f"{where}: there is no service {base}", where=name, hint=hint)
    if (other.name, base) in (*above, (name, key)):
        raise UsageError(f"{where}: {base} extends {key} itself", where=name, hint="leave one of them out")
    if len(above) == MOST_ABOVE:
        raise UsageError(f"{where}: more than {MOST_ABOVE} services extend one another", where=name)
    own = {k: v for k, v in service.items() if k != "extends"}
    return merged(_whole(base, other, (*above, (name, key))), own, file.alone_in(key))


def merged(base: Mapping[str, Any], own: Mapping[str, Any], alone: Collection[str] = ()) -> dict[str, Any]:
    """Return `own` on top of `base`: lists are joined, and what has the same place or name is `own`'s.

    Of the keys in `alone` only what `own` has counts.
    """
    below = {key: value for key, value in base.items() if key not in alone}
    found = {**below, **own}
    for key in _JOINED:
        before, after = listed(below.get(key)), listed(own.get(key))
        places = {_place(item) for item in after}
        if before and after:
            found[key] = [*(item for item in before if _place(item) not in places), *after]
    if below.get("environment") and own.get("environment"):
        found["environment"] = [*entries(below["environment"]), *entries(own["environment"])]
    return found


def listed(value: Any) -> list[Any]:  # noqa: ANN401 - YAML
    """Return the items of a list, and a value alone as a list of it; of nothing, none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _place(item: Any) -> str:  # noqa: ANN401 - YAML
    """Return the place in the container that an item of `volumes` or `devices` stands for; other items themselves."""
    if isinstance(item, dict):
        return str(item.get("target", item.get("source", item)))
    source, *rest = colon_parts(str(item))
    return (rest[0] if rest else "") or source


def entries(found: Any) -> list[Any]:  # noqa: ANN401 - YAML
    """Return the entries of an `environment`, `NAME=value` or `NAME`, also where it is a mapping."""
    if not isinstance(found, dict):
        return listed(found)
    booleans = {True: "true", False: "false"}
    return [str(k) if v is None else f"{k}={booleans[v] if isinstance(v, bool) else v}" for k, v in found.items()]
