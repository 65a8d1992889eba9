"""Files that start containers, read as the containers that they ask for: compose, Kubernetes, a workflow's jobs."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.lint.command import run_lines
from cannery.lint.container import Container, Remark, Setting
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.yaml_text import YamlDocument

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
_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
# `${{ matrix.image }}` of a workflow.
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
# What to do with services that are in several files.
WHOLE = "docker compose config > whole.yaml writes all of it into one file: lint that"
_HINT = "a compose file has a mapping `services:`, a manifest `apiVersion:` and `kind:`, a workflow `jobs:`"


@dataclass(frozen=True)
class FileContainers:
    """The containers of files, in order, and remarks on what of the files is not read."""

    containers: tuple[Container, ...]
    unread: tuple[Remark, ...]


def containers_of(documents: Sequence[YamlDocument]) -> FileContainers:
    """Return the containers of documents.

    Raises `UsageError` for a document of another kind, and for a service that is in two of them.
    """
    services: dict[str, Container] = {}
    containers: list[Container] = []
    unread: list[Remark] = []
    for document in documents:
        value = document.value
        if isinstance(value, dict) and (isinstance(value.get("services"), dict) or value.get("include")):
            found = {one.where: one for one in _services(document)}
            if twice := sorted(found.keys() & services.keys()):
                what = f"{twice[0]} is in another file too, and compose merges the two"
                raise UsageError(what, where=document.name, hint=WHOLE)
            services |= found
            if value.get("include"):
                what = f"include at {document.where(('include',))} is not read: what it brings is not judged"
                why = "lint-run reads the files that it is given"
                unread.append(Remark(Severity.WARNING, "file.unread", "include", what, why, WHOLE))
        elif isinstance(value, dict) and {"apiVersion", "kind"} <= {*value}:
            containers += _pods(value, "")
        elif isinstance(value, dict) and isinstance(value.get("jobs"), dict):
            containers += (one for name, job in value["jobs"].items() for one in _job(f"jobs.{name}", job))
        else:
            raise _nothing_in(document)
    containers = [*services.values(), *containers]
    if not containers and not unread:
        raise _nothing_in(documents[0])
    return FileContainers(tuple(containers), tuple(unread))


def _nothing_in(document: YamlDocument) -> UsageError:
    is_text = isinstance(document.value, str)
    hint = "a command or a script comes by standard input: build.py lint-run - < FILE" if is_text else _HINT
    return UsageError("there are no services in it, no Pods and no jobs", where=document.name, hint=hint)


def _services(document: YamlDocument) -> Iterator[Container]:
    for name, service in (document.value.get("services") or {}).items():
        where = f"services.{name}"
        if not isinstance(service, dict):
            hint = "a service has keys: image, devices, volumes …"
            raise UsageError(f"{where} is no mapping", where=document.name, hint=hint)
        yield _service(where, service)


def _service(where: str, service: Mapping[str, Any]) -> Container:
    image = _text(service.get("image") or f"({where}.build)")
    command = service.get("command")
    words = tuple(map(str, command)) if isinstance(command, list) else tuple(str(command or "").split())
    return Container(image, tuple(_settings(where, service)), words, where)


def _settings(where: str, service: Mapping[str, Any]) -> Iterator[Setting]:
    for key, option in _ONE.items():
        if service.get(key) is not None:
            yield Setting(option, _text(service[key]), f"{where}.{key}: {_text(service[key])}")
    for key, option in _LISTS.items():
        for number, item in enumerate(_listed(service.get(key))):
            yield _item(option, item, f"{where}.{key}[{number}]")
    for entry in map(_text, _entries(service.get("environment"))):
        yield Setting("env", entry, f"{where}.environment: {entry}")
    if service.get("entrypoint"):
        yield Setting("entrypoint", " ".join(map(str, _listed(service["entrypoint"]))), f"{where}.entrypoint")
    if service.get("extends"):
        yield Setting("", None, f"{where}.extends")
    yield from _reserved(where, service)


def _item(option: str, item: Any, place: str) -> Setting:  # noqa: ANN401 - YAML
    """Return the setting of a list's item, in its short or its long form."""
    if not isinstance(item, dict):
        return Setting(option, _text(item), f"{place}: {_text(item)}")
    if option == "env-file":
        return Setting(option, _text(item.get("path", "")), f"{place}: {item.get('path', '')}")
    source = _text(item.get("source", ""))
    target = _text(item.get("target", source if option == "device" else ""))
    if option == "device":
        rights = f":{item['permissions']}" if "permissions" in item else ""
        return Setting(option, f"{source}:{target}{rights}", f"{place}: {source}")
    if item.get("type") == "tmpfs":
        return Setting("tmpfs", target, f"{place}: {target}")
    return Setting("volume", f"{source}:{target}" if source else target, f"{place}: {source}:{target}")


def _reserved(where: str, service: Mapping[str, Any]) -> Iterator[Setting]:
    """Give GPUs, which a service asks for in two ways, and devices by the names that CDI has for them."""
    if service.get("gpus"):
        yield Setting("gpus", _text(service["gpus"]), f"{where}.gpus")
    node: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = node.get(key) if isinstance(node, dict) else None
    for number, item in enumerate(_listed(node)):
        place = f"{where}.deploy.resources.reservations.devices[{number}]"
        if isinstance(item, dict) and item.get("driver") == "cdi":
            names = map(_text, _listed(item.get("device_ids")))
            yield from (Setting("device", name, f"{place}: {name}") for name in names)
        elif isinstance(item, dict) and ("gpu" in _listed(item.get("capabilities")) or item.get("driver") == "nvidia"):
            yield Setting("gpus", _text(item.get("count", "all")), place)


def _pods(value: Any, where: str) -> Iterator[Container]:  # noqa: ANN401 - YAML
    """Give the containers of every Pod's spec in a manifest, in whatever kind of resource it is."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _pods(item, f"{where}[{number}]")
    if not isinstance(value, dict):
        return
    if isinstance(value.get("containers"), list):
        for item in value["containers"]:
            if isinstance(item, dict):
                place = f"{where}.containers.{item.get('name', '')}"
                settings = tuple(_pod_settings(place, item, value))
                yield Container(_text(item.get("image", "")), settings, (), place, is_pod=True)
        return
    for key, item in value.items():
        yield from _pods(item, f"{where}.{key}" if where else str(key))


def _pod_settings(where: str, item: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Setting]:
    """Give what a container of a Pod asks for; `spec` is the Pod's."""
    context = {**_mapping(spec.get("securityContext")), **_mapping(item.get("securityContext"))}
    for key, option in (("privileged", "privileged"), ("runAsUser", "user")):
        if context.get(key) is not None:
            yield Setting(option, _text(context[key]), f"{where}.securityContext.{key}: {_text(context[key])}")
    for group in (*_listed(context.get("supplementalGroups")), *_listed(context.get("fsGroup"))):
        yield Setting("group-add", _text(group), f"{where}.securityContext: {group}")
    for key, option in (("hostNetwork", "network"), ("hostIPC", "ipc")):
        if spec.get(key):
            yield Setting(option, "host", f"{where}: {key}")
    yield from _limits(where, _mapping(_mapping(item.get("resources")).get("limits")))
    for one in filter(None, map(_mapping, _listed(item.get("env")))):
        value = one.get("value", "") if "valueFrom" not in one else "$(valueFrom)"
        yield Setting("env", f"{one.get('name')}={value}", f"{where}.env: {one.get('name')}={value}")
    volumes = {one.get("name"): one for one in map(_mapping, _listed(spec.get("volumes")))}
    for one in filter(None, map(_mapping, _listed(item.get("volumeMounts")))):
        target, part = _text(one.get("mountPath", "")), one.get("subPath")
        path = _mapping(_mapping(volumes.get(one.get("name"))).get("hostPath")).get("path")
        source = f"{path}/{part}" if path and part else path
        word = f"{where}.volumeMounts: {source or one.get('name')}:{target}"
        yield Setting("volume", f"{source}:{target}", word) if source else Setting("tmpfs", target, word)


def _limits(where: str, limits: Mapping[Any, Any]) -> Iterator[Setting]:
    """Give the cards that a Pod asks a device plugin for: NPUs, or another maker's."""
    for name, count in limits.items():
        key = "resource" if str(name).startswith("huawei.com/") else "gpus" if str(name).endswith("/gpu") else ""
        if key:
            yield Setting(key, _text(count), f"{where}.resources.limits: {name}={count}")


def _job(where: str, job: Any) -> Iterator[Container]:  # noqa: ANN401 - YAML
    """Give the container of a workflow's job, and those of its services: their `options` are docker's."""
    if not isinstance(job, dict):
        return
    named = [(f"{where}.container", job.get("container"))]
    named += [(f"{where}.services.{name}", one) for name, one in _mapping(job.get("services")).items()]
    for place, one in named:
        value = {"image": one} if isinstance(one, str) else _mapping(one)
        if value.get("image"):
            yield _with_options(place, value)


def _with_options(where: str, value: Mapping[str, Any]) -> Container:
    image, options = (_open(str(value.get(key) or "")) for key in ("image", "options"))
    try:
        line = run_lines(f"docker run {' '.join(options.split())} {shlex.quote(image)}").lines[0]
    except UsageError as error:
        raise UsageError(f"{where}.options cannot be read: {error.what}", where=where, hint=error.hint) from error
    settings, misread = (line.settings, line.misread) if isinstance(line, Container) else ((), ())
    found = [Setting(one.key, one.value, f"{where}.options: {one.word}") for one in settings]
    for number, item in enumerate(_listed(value.get("volumes"))):
        found.append(Setting("volume", _open(str(item)), f"{where}.volumes[{number}]: {item}"))
    found += [Setting("env", _open(str(entry)), f"{where}.env: {entry}") for entry in _entries(value.get("env"))]
    return Container(image, tuple(found), (), where, misread=misread)


def _open(text: str) -> str:
    """Return a text of a workflow with its expressions as variables, which only a shell knows."""
    return _EXPRESSION.sub(lambda match: "${" + re.sub(r"\W+", "_", match[1]) + "}", text)


def _mapping(value: Any) -> dict[Any, Any]:  # noqa: ANN401 - YAML
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - YAML
    """Return the items of a list, and a value alone as a list of it; of nothing, none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _entries(found: Any) -> list[Any]:  # noqa: ANN401 - YAML
    """Return the entries of an `environment`, `NAME=value` or `NAME`, also where it is a mapping."""
    if not isinstance(found, dict):
        return _listed(found)
    return [str(key) if value is None else f"{key}={_text(value)}" for key, value in found.items()]


def _text(value: Any) -> str:  # noqa: ANN401 - YAML
    """Return a scalar as compose reads it: a variable's default in its place, since its value is not known here."""
    return str(value).lower() if isinstance(value, bool) else _DEFAULT.sub(r"\1", str(value))
