"""The services of a compose file, as the containers that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.lint.compose_forms import entries, filled, listed, merged, whole_services
from cannery.lint.container import Container, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.lint.compose_tree import ComposeFile

# Keys of a service whose value is one text or number → docker's option.
_ONE = {
    "shm_size": "shm-size",
    "network_mode": "network",
    "ipc": "ipc",
    "runtime": "runtime",
    "user": "user",
    "platform": "platform",
    "privileged": "privileged",
}
_LISTS = {
    "devices": "device",
    "volumes": "volume",
    "group_add": "group-add",
    "tmpfs": "tmpfs",
    "env_file": "env-file",
    "device_cgroup_rules": "device-cgroup-rule",
}


def containers_of(files: Sequence[ComposeFile], label: str = "") -> tuple[Container, ...]:
    """Return the containers of compose files that are read one over the other, and of those that they include.

    In their order; `label` stands before the places of an included file. Raises `UsageError` for services that extend
    one another, or one that is not there. What `extends` brings from a file that is not read stands among the words
    that may bring any setting.
    """
    services: dict[str, dict[str, Any]] = {}
    for file in files:
        for key, service in whole_services(file).items():
            services[key] = merged(services[key], service, file.alone_in(key)) if key in services else service
    own = tuple(_container(f"{label}services.{key}", value) for key, value in services.items())
    included = (containers_of(entry, f"{entry[0].name}: ") for file in files for entry in file.included)
    return (*own, *(container for containers in included for container in containers))


def _container(where: str, service: Mapping[str, Any]) -> Container:
    return Container(
        image=_text(service.get("image") or f"({where}.build)"),
        settings=tuple(_settings(where, service)),
        command=_words(service.get("command")),
        where=where,
        opaque=(f"{where}.extends",) if service.get("extends") else (),
    )


def _settings(where: str, service: Mapping[str, Any]) -> Iterator[Setting]:
    for key, option in _ONE.items():
        if key in service and service[key] is not None:
            yield _setting(option, _text(service[key]), f"{where}.{key}: {_text(service[key])}")
    for key, option in _LISTS.items():
        for number, item in enumerate(listed(service.get(key))):
            yield from _item(option, item, f"{where}.{key}[{number}]")
    yield from _environment(where, service.get("environment"))
    if service.get("entrypoint"):
        yield _setting("entrypoint", " ".join(_words(service["entrypoint"])), f"{where}.entrypoint")
    yield from _reserved(where, service)


def _item(option: str, item: Any, place: str) -> Iterator[Setting]:  # noqa: ANN401 - YAML
    """Give the setting of a list's item, in its short or its long form."""
    if isinstance(item, dict) and option == "env-file":
        yield _setting(option, _text(item.get("path", "")), f"{place}: {item.get('path', '')}")
    elif isinstance(item, dict):
        source = item.get("source", "")
        target = item.get("target", source if option == "device" else "")
        kind = item.get("type", "bind" if option == "device" else "volume")
        if option == "device":
            text = f"{source}:{target}:{item['permissions']}" if "permissions" in item else f"{source}:{target}"
            yield _setting("device", text, f"{place}: {source}")
        else:
            fields = (f"type={kind}", f"source={source}", f"target={target}")
            yield _setting("mount", ",".join(map(_field, fields)), f"{place}: {source}:{target}")
    else:
        yield _setting(option, _text(item), f"{place}: {_text(item)}")


def _field(text: str) -> str:
    """Write a field of a value of --mount, which is a line of CSV."""
    return '"{}"'.format(text.replace('"', '""')) if any(sign in text for sign in ',"\n\r') else text


def _environment(where: str, found: Any) -> Iterator[Setting]:  # noqa: ANN401 - YAML
    for entry in map(_text, entries(found)):
        yield _setting("env", entry, f"{where}.environment: {entry}")


def _reserved(where: str, service: Mapping[str, Any]) -> Iterator[Setting]:
    """Give GPUs, which a service asks for in two ways, and devices by the names that CDI has for them."""
    if service.get("gpus"):
        yield _setting("gpus", _text(service["gpus"]), f"{where}.gpus")
    node: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = node.get(key) if isinstance(node, dict) else None
    for number, item in enumerate(listed(node)):
        place = f"{where}.deploy.resources.reservations.devices[{number}]"
        if isinstance(item, dict) and item.get("driver") == "cdi":
            yield from (_setting("device", _text(name), f"{place}: {name}") for name in listed(item.get("device_ids")))
        elif isinstance(item, dict) and ("gpu" in listed(item.get("capabilities")) or item.get("driver") == "nvidia"):
            yield _setting("gpus", _text(item.get("count", "all")), place)


def _setting(option: str, value: str, word: str) -> Setting:
    return Setting(option, value, word)


def _text(value: Any) -> str:  # noqa: ANN401 - YAML
    """Return a scalar as compose reads it: a variable's default in its place, since its value is not known here."""
    return str(value).lower() if isinstance(value, bool) else filled(str(value))


def _words(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - YAML
    return tuple(map(str, value)) if isinstance(value, list) else tuple(str(value).split()) if value else ()
