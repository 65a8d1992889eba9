"""The forms that a compose file's services have to have, and what a service takes over from another one of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIST, _MAPPING = (list,), (dict,)
# Keys of a service that are not one text → what their value may be.
_FORMS: dict[str, tuple[type, ...]] = {
    "devices": _LIST,
    "volumes": _LIST,
    "group_add": _LIST,
    "environment": (list, dict),
    "tmpfs": (list, str),
    "env_file": (list, str),
    "deploy": _MAPPING,
}
_SHOWN: dict[type, str] = {list: "a list", dict: "a mapping", str: "a text"}
# How compose reads a text where a boolean has to stand; those of YAML 1.1 with a warning.
_BOOLEANS = {"true": True, "y": True, "yes": True, "on": True, "false": False, "n": False, "no": False, "off": False}
# No file has such a chain on purpose.
MOST_ABOVE = 32
_JOINED = ("devices", "volumes", "group_add", "tmpfs", "env_file")


def whole_services(services: Mapping[Any, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the services of the file `name`, each with what it `extends`; that key stays where another file is meant.

    Raises `UsageError` for what is no form of compose.
    """
    checked = {str(key): _checked(value, name, f"services.{key}") for key, value in services.items()}
    return {key: _whole(key, checked, name, ()) for key in checked}


def _checked(service: Any, name: str, where: str) -> dict[str, Any]:  # noqa: ANN401 - YAML
    if not isinstance(service, dict):
        raise UsageError(f"{where} is no mapping", where=name, hint="a service has keys: image, devices, volumes …")
    for key, types in _FORMS.items():
        if service.get(key) is not None and not isinstance(service[key], types):
            shown = " or ".join(_SHOWN[one] for one in types)
            raise UsageError(f"{where}.{key} has to be {shown}", where=name, hint=f"it is {service[key]!r}")
    found = service.get("privileged")
    if found is not None and not isinstance(found, bool) and "$" not in str(found):
        if str(found).lower() not in _BOOLEANS:
            raise UsageError(f"{where}.privileged: {found!r} is no boolean", where=name, hint="true or false")
        return {**service, "privileged": _BOOLEANS[str(found).lower()]}
    return service


def _whole(key: str, services: Mapping[str, dict[str, Any]], name: str, above: tuple[str, ...]) -> dict[str, Any]:
    """Return a service with what it takes over; `above` are those that extend it."""
    service = services[key]
    extends = service.get("extends")
    base = extends.get("service") if isinstance(extends, dict) else extends
    if extends is None or (isinstance(extends, dict) and extends.get("file")):
        return service
    where = f"services.{key}.extends"
    if str(base) not in services:
        raise UsageError(f"{where}: there is no service {base}", where=name, hint=f"there are: {', '.join(services)}")
    if str(base) in (*above, key):
        raise UsageError(f"{where}: {base} extends {key} itself", where=name, hint="leave one of them out")
    if len(above) == MOST_ABOVE:
        raise UsageError(f"{where}: more than {MOST_ABOVE} services extend one another", where=name)
    own = {k: v for k, v in service.items() if k != "extends"}
    return _merged(_whole(str(base), services, name, (*above, key)), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `own` on top of `base`: lists are joined, and what has the same place or name is `own`'s."""
    merged = {**base, **own}
    for key in _JOINED:
        before, after = _listed(base.get(key)), _listed(own.get(key))
        places = {_place(item) for item in after}
        if before and after:
            merged[key] = [*(item for item in before if _place(item) not in places), *after]
    if base.get("environment") and own.get("environment"):
        merged["environment"] = [*_entries(base["environment"]), *_entries(own["environment"])]
    return merged


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - YAML
    return value if isinstance(value, list) else [] if value is None else [value]


def _place(item: Any) -> str:  # noqa: ANN401 - YAML
    """Return the place in the container that an item of `volumes` or `devices` stands for; other items themselves."""
    if isinstance(item, dict):
        return str(item.get("target", item.get("source", item)))
    source, _, rest = str(item).partition(":")
    return rest.partition(":")[0] or source


def _entries(found: Any) -> list[Any]:  # noqa: ANN401 - YAML
    if not isinstance(found, dict):
        return _listed(found)
    booleans = {True: "true", False: "false"}
    return [str(k) if v is None else f"{k}={booleans[v] if isinstance(v, bool) else v}" for k, v in found.items()]
