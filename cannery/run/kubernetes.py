"""A container as a Kubernetes Pod or Job, with cards from the Ascend device plugin.

The plugin chooses the cards and brings their device nodes. The driver's files are mounted from the node by hostPath, or
come from the cluster's Ascend Docker runtime. Each hostPath has a type, so that a missing path is an error: without it
kubelet would make an empty folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.host.facts import is_file_name
from cannery.run.container import HOST_NETWORK, volume_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.run.container import Container
    from cannery.vocab import Arch

ITS_COMMAND = "put it behind `--` (make: CMD='…')"
SHM = "shm"
SHM_PATH = "/dev/shm"  # noqa: S108 - shared memory is there
# Docker's suffixes are powers of 1024; those of Kubernetes have an i.
SIZES = {"k": "Ki", "m": "Mi", "g": "Gi"}
LONGEST_NAME = 63  # of a DNS label, which the name of a pod becomes


def pod(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the Pod of `container`; `resource` is the device plugin's name for its cards. Raises like `pod_spec`."""
    spec = pod_spec(container, name, resource, arch)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name), "spec": {"restartPolicy": "Never", **spec}}


def job(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the Job of `container`, which runs once. Raises like `pod_spec`, and `UsageError` without a command."""
    if not container.request.command:
        raise UsageError("a Job needs a command", hint=ITS_COMMAND)
    template = {
        "metadata": metadata(name),
        "spec": {"restartPolicy": "Never", **pod_spec(container, name, resource, arch)},
    }
    del template["metadata"]["name"]
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name), "spec": spec}


def metadata(name: str) -> dict[str, Any]:
    """Return the metadata: a valid name, and a label to find the object by."""
    return {"name": dns_name(name), "labels": {"app.kubernetes.io/name": dns_name(name)}}


def dns_name(text: str) -> str:
    """Return `text` as a Kubernetes name: small letters, digits, dashes. Raises `UsageError` if nothing is left."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_NAME].strip("-")
    if not found:
        raise UsageError(
            f"--name: {text!r} has no character that is allowed in a Kubernetes name", hint="letters and digits"
        )
    return found


def pod_spec(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the spec of a pod, without its restart policy.

    Raises `UsageError` for options that a cluster does not have (named volumes, this host's environment, docker
    networks), and for a chip without a known device plugin.
    """
    request = container.request
    _refuse_this_hosts(container)
    volumes = [
        *_host_paths(container),
        {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": size(request.shm_size)}},
    ]
    mounts = [*_mounts(container), {"name": SHM, "mountPath": SHM_PATH}]
    inner: dict[str, Any] = {"name": dns_name(name), "image": request.image}
    inner |= {"workingDir": request.workdir} if request.workdir else {}
    # As with docker, the image's entrypoint is kept. Without a command, a shell waits for somebody to attach.
    inner |= {"args": [_literal(word) for word in request.command]} if request.command else {"stdin": True, "tty": True}
    # The variables that name cards are left out: the device plugin chooses the cards.
    env = [{"name": variable, "value": _literal(value or "")} for variable, value in container.env]
    inner |= {"env": env} if env else {}
    if container.cards:
        if resource is None:
            raise UsageError("no device plugin is known for this chip's cards", hint="use --format docker or compose")
        counted = {resource: container.cards}
        inner["resources"] = {"requests": counted, "limits": dict(counted)}
    inner["volumeMounts"] = mounts
    spec: dict[str, Any] = {"nodeSelector": {"kubernetes.io/arch": str(arch)}}
    if request.network == HOST_NETWORK:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    context = _security(container)
    spec |= {"securityContext": context} if context else {}
    return {**spec, "containers": [inner], "volumes": volumes}


def _security(container: Container) -> dict[str, Any]:
    """Return the user of a pod, by number as admission rules want it, and the nodes' group; {} for root."""
    user = container.request.run_as or container.request.user
    value: dict[str, Any] = {}
    if user is not None:
        value = {"runAsNonRoot": True} if user.uid else {}
        value |= {"runAsUser": user.uid, "runAsGroup": user.gid}
    return value if container.group is None else {**value, "supplementalGroups": [container.group]}


def _refuse_this_hosts(container: Container) -> None:
    request = container.request
    shared = next((text for text in request.volumes if str(volume_target(text)) == SHM_PATH), None)
    if shared is not None:
        what = f"-v {shared}: a pod has its shared memory of {request.shm_size} there"
        raise UsageError(what, hint="leave it out; `shm_size` of the profile is how large it is")
    if request.network not in {None, HOST_NETWORK}:
        raise UsageError(f"--network {request.network}: a pod has its own network", hint="leave it out, or use host")
    unset = [name for name, value in container.env if value is None]
    if unset:
        raise UsageError(
            f"-e {unset[0]}: a cluster does not have this host's environment", hint=f"write {unset[0]}=VALUE"
        )


def size(text: str) -> str:
    """Return a Docker size (16g, 512m, 64k, bytes) as a Kubernetes size."""
    return text[:-1] + SIZES[text[-1].lower()] if text[-1].isalpha() else text


def _literal(text: str) -> str:
    """Return `text` escaped for Kubernetes, which replaces `$(NAME)` by a variable, and `$$` by `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _host_paths(container: Container) -> Iterator[dict[str, Any]]:
    for position, mount in enumerate(container.driver):
        kind = "File" if is_file_name(mount.source) else "Directory"
        yield {"name": f"driver-{position}", "hostPath": {"path": mount.source, "type": kind}}
    for position, text in enumerate(container.request.volumes):
        yield {"name": f"volume-{position}", "hostPath": {"path": _split(text)[0]}}


def _mounts(container: Container) -> Iterator[dict[str, Any]]:
    for position, mount in enumerate(container.driver):
        yield {"name": f"driver-{position}", "mountPath": mount.target, "readOnly": mount.read_only}
    for position, text in enumerate(container.request.volumes):
        _, target, read_only = _split(text)
        value = {"name": f"volume-{position}", "mountPath": target}
        yield {**value, "readOnly": True} if read_only else value


def _split(text: str) -> tuple[str, str, bool]:
    """Return (folder of the node, folder in the container, read-only) of docker's `SRC:DST[:ro]`."""
    source, _, rest = text.partition(":")
    target, _, options = rest.partition(":")
    if not source.startswith("/") or not target.startswith("/"):
        what = f"-v {text}: a cluster's nodes have no such volume"
        raise UsageError(what, hint="an absolute folder of each node (SRC:DST), or add a claim to the manifest by hand")
    return source, target, "ro" in options.split(",")
