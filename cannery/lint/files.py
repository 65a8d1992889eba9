"""Reads the containers in compose files, Kubernetes manifests and the jobs of workflows."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.lint.command import run_lines
from cannery.lint.container import Container, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.documents import YamlDocument

# Keys of a service, or of a Pod's security context → docker's option.
_KEYS = {
    "shm_size": "shm-size",
    "network_mode": "network",
    "ipc": "ipc",
    "runtime": "runtime",
    "user": "user",
    "platform": "platform",
    "privileged": "privileged",
    "gpus": "gpus",
    "entrypoint": "entrypoint",
    "devices": "device",
    "volumes": "volume",
    "group_add": "group-add",
    "tmpfs": "tmpfs",
    "env_file": "env-file",
    "device_cgroup_rules": "device-cgroup-rule",
    "environment": "env",
    "runAsUser": "user",
    "supplementalGroups": "group-add",
    "fsGroup": "group-add",
}
# Keys that add settings from other files.
_ELSEWHERE = ("extends", "include")
_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
# `${{ matrix.image }}` in a workflow.
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
# The advice for services that are in several files.
WHOLE = "docker compose config > whole.yaml writes all of it into one file: lint that"
_HINT = "a compose file has a mapping `services:`, a manifest `apiVersion:` and `kind:`, a workflow `jobs:`"


def containers_of(documents: Sequence[YamlDocument]) -> tuple[Container, ...]:
    """Return the containers of documents, in order. If a service refers to another file, it has a setting without key.

    Raises `UsageError` for a document of another kind, and for a service that is in two documents.
    """
    services: dict[str, Container] = {}
    containers: list[Container] = []
    for document in documents:
        value = document.value if isinstance(document.value, dict) else {}
        if isinstance(value.get("services"), dict):
            found = {one.where: one for one in _services(document)}
            if twice := sorted(found.keys() & services.keys()):
                what = f"{twice[0]} is in another file too, and compose merges the two"
                raise UsageError(what, where=document.name, hint=WHOLE)
            services |= found
        elif {"apiVersion", "kind"} <= {*value}:
            containers += _pods(value, "")
        elif isinstance(value.get("jobs"), dict):
            containers += (one for name, job in value["jobs"].items() for one in _job(f"jobs.{name}", _mapping(job)))
        else:
            raise _nothing_in(document)
    containers = [*services.values(), *containers]
    if not containers:
        raise _nothing_in(documents[0])
    return tuple(containers)


def _nothing_in(document: YamlDocument) -> UsageError:
    is_include = isinstance(document.value, dict) and "include" in document.value
    hint = WHOLE if is_include else _HINT
    return UsageError("there are no services in it, no Pods and no jobs", where=document.name, hint=hint)


def _services(document: YamlDocument) -> Iterator[Container]:
    for name, service in document.value["services"].items():
        where = f"services.{name}"
        if not isinstance(service, dict):
            hint = "a service has keys: image, devices, volumes …"
            raise UsageError(f"{where} is not a mapping", where=document.name, hint=hint)
        command = service.get("command")
        words = map(str, command) if isinstance(command, list) else str(command or "").split()
        settings = [*_settings(where, service), *_nvidia(where, service)]
        settings += (Setting("", None, f"{where}.{key}") for key in _ELSEWHERE if service.get(key))
        if document.value.get("include"):
            settings.append(Setting("", None, "include"))
        image = _text(service.get("image") or f"({where}.build)")
        yield Container(image, tuple(settings), tuple(words), where)


def _settings(where: str, keys: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the settings of the known keys of a mapping. Values, lists, and list items in long form are read."""
    for key, option in _KEYS.items():
        value = keys.get(key)
        is_list = isinstance(value, list)
        if isinstance(value, dict):
            value = [str(name) if one is None else f"{name}={_text(one)}" for name, one in value.items()]
        for number, item in enumerate(_listed(value)):
            text = _short_form(option, item) if isinstance(item, dict) else _text(item)
            yield Setting(option, text, f"{where}.{key}[{number}]: {text}" if is_list else f"{where}.{key}: {text}")


def _short_form(option: str, item: Mapping[str, Any]) -> str:
    """Return the short form of a list item in long form."""
    source, target = _text(item.get("source", item.get("path", ""))), _text(item.get("target", ""))
    return source if option in {"device", "env-file"} else f"{source}:{target}" if source else target


def _nvidia(where: str, service: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the GPUs that a service reserves."""
    node: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = _mapping(node).get(key)
    for number, item in enumerate(map(_mapping, _listed(node))):
        if item.get("driver") == "nvidia" or "gpu" in _listed(item.get("capabilities")):
            yield Setting("gpus", "all", f"{where}.deploy.resources.reservations.devices[{number}]")


def _pods(value: Any, where: str) -> Iterator[Container]:  # noqa: ANN401 - YAML
    """Yield the containers of every Pod's spec in a manifest, in any kind of resource."""
    if isinstance(value, dict) and isinstance(value.get("containers"), list):
        for item in filter(None, map(_mapping, value["containers"])):
            place = f"{where}.containers.{item.get('name', '')}"
            settings = tuple(_pod_settings(place, item, value))
            yield Container(_text(item.get("image", "")), settings, (), place, is_pod=True)
    elif isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _pods(item, f"{where}.{key}" if where else str(key))


def _pod_settings(where: str, item: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the settings of a container in a Pod; `spec` is that of the Pod."""
    context = {**_mapping(spec.get("securityContext")), **_mapping(item.get("securityContext"))}
    yield from _settings(f"{where}.securityContext", context)
    if spec.get("hostIPC"):
        yield Setting("ipc", "host", f"{where}: hostIPC")
    for name, count in _mapping(_mapping(item.get("resources")).get("limits")).items():
        # Cards of a device plugin: NPUs or GPUs.
        key = "resource" if str(name).startswith("huawei.com/") else "gpus" if str(name).endswith("/gpu") else ""
        if key:
            yield Setting(key, _text(count), f"{where}.resources.limits: {name}={count}")
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


def _job(where: str, job: Mapping[str, Any]) -> Iterator[Container]:
    """Yield the container of a workflow job and those of its services. Their `options` are docker's options."""
    named = {f"{where}.container": job.get("container")}
    named |= {f"{where}.services.{name}": one for name, one in _mapping(job.get("services")).items()}
    for place, one in named.items():
        value = {"image": one} if isinstance(one, str) else _mapping(one)
        if not value.get("image"):
            continue
        image, options = (_open(str(value.get(key) or "")) for key in ("image", "options"))
        try:
            line = run_lines(f"docker run {' '.join(options.split())} {shlex.quote(image)}").lines[0]
        except UsageError as error:
            raise UsageError(f"{place}.options cannot be read: {error.what}", where=place, hint=error.hint) from error
        settings, misread = (line.settings, line.misread) if isinstance(line, Container) else ((), ())
        found = [Setting(one.key, one.value, f"{place}.options: {one.word}") for one in settings]
        others = {"volumes": value.get("volumes"), "environment": value.get("env")}
        found += (Setting(one.key, _open(one.value or ""), one.word) for one in _settings(place, others))
        yield Container(image, tuple(found), (), place, misread=misread)


def _open(text: str) -> str:
    """Return a text of a workflow with its expressions replaced by shell variables."""
    return _EXPRESSION.sub(lambda match: "${" + re.sub(r"\W+", "_", match[1]) + "}", text)


def _mapping(value: Any) -> dict[Any, Any]:  # noqa: ANN401 - YAML
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - YAML
    """Return a list as it is, any other value as a list of one item, and None as an empty list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _text(value: Any) -> str:  # noqa: ANN401 - YAML
    """Return a scalar as compose reads it. Variables with a default are replaced by it."""
    return str(value).lower() if isinstance(value, bool) else _DEFAULT.sub(r"\1", str(value))
