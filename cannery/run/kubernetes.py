"""A container as a Kubernetes Pod or Job, with the cards that the Ascend device plugin gives.

The plugin chooses the cards and brings their nodes; the driver's files come from the node by hostPath, each with a type
that refuses a missing one (kubelet would make an empty folder), or from the Ascend Docker runtime of the cluster.
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
    from cannery.run.mounts import Mount
    from cannery.vocab import Arch

ITS_COMMAND = "put it behind `--` (make: CMD='…')"
SHM = "shm"
SHM_PATH = "/dev/shm"  # noqa: S108 - shared memory is there
# docker's suffixes are 1024 based, as Kubernetes' are with an i.
SIZES = {"k": "Ki", "m": "Mi", "g": "Gi"}
LONGEST_NAME = 63  # of a label in DNS, which the names of pods become


def pod(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the Pod of `container`, `resource` being what the device plugin calls its cards. Raises as `pod_spec`."""
    spec = pod_spec(container, name, resource, arch)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name), "spec": {"restartPolicy": "Never", **spec}}


def job(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the Job of `container`: it runs once. Raises as `pod_spec`, and `UsageError` without a command."""
    if not container.request.command:
        raise UsageError("a job ends when its command does, and there is none", hint=ITS_COMMAND)
    template = {
        "metadata": metadata(name),
        "spec": {"restartPolicy": "Never", **pod_spec(container, name, resource, arch)},
    }
    del template["metadata"]["name"]
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name), "spec": spec}


def metadata(name: str) -> dict[str, Any]:
    """Return a name that Kubernetes takes, and the labels that find the object."""
    return {"name": dns_name(name), "labels": {"app.kubernetes.io/name": dns_name(name)}}


def dns_name(text: str) -> str:
    """Return `text` as Kubernetes' names are: small letters, digits, dashes. Raises `UsageError` when none is left."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_NAME].strip("-")
    if not found:
        raise UsageError(f"--name: {text!r} has nothing that a name in Kubernetes may have", hint="letters and digits")
    return found


def pod_spec(container: Container, name: str, resource: str | None, arch: Arch) -> dict[str, Any]:
    """Return the spec of a pod, without its restart policy.

    Raises `UsageError` for what a cluster cannot take from this host: its folders, its environment, no network at all,
    and for a chip whose cards no device plugin is known to offer.
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
    # As with docker: the image's entrypoint stays, and a shell waits for who attaches.
    inner |= {"args": [_literal(word) for word in request.command]} if request.command else {"stdin": True, "tty": True}
    env = list(_environment(container))
    inner |= {"env": env} if env else {}
    if container.cards:
        if resource is None:
            raise UsageError(
                "no device plugin is known to offer this chip's cards", hint="docker and compose can be had"
            )
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
    """Return who a pod runs as, by number as admission rules want it, and the nodes' group; {} for an image's root."""
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
        raise UsageError(f"--network {request.network}: a pod has a network", hint="leave it out, or use host")
    unset = [name for name, value in container.env if value is None]
    if unset:
        raise UsageError(
            f"-e {unset[0]}: a cluster does not have this host's environment", hint=f"write {unset[0]}=VALUE"
        )


def size(text: str) -> str:
    """Return a size of docker's (16g, 512m, 64k, bytes) as one of Kubernetes'."""
    return text[:-1] + SIZES[text[-1].lower()] if text[-1].isalpha() else text


def _environment(container: Container) -> Iterator[dict[str, Any]]:
    """Give the variables but those that name cards: which ones there are is the device plugin's choice."""
    for name, value in container.env:
        yield {"name": name, "value": _literal(value or "")}


def _literal(text: str) -> str:
    """Return what Kubernetes reads as `text`: it puts variables in the place of `$(NAME)`, and takes `$$` for `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _host_paths(container: Container) -> Iterator[dict[str, Any]]:
    for position, mount in enumerate(container.driver):
        yield {"name": f"driver-{position}", "hostPath": {"path": mount.source, "type": _type(mount)}}
    for position, text in enumerate(container.request.volumes):
        yield {"name": f"volume-{position}", "hostPath": {"path": _split(text)[0]}}


def _mounts(container: Container) -> Iterator[dict[str, Any]]:
    for position, mount in enumerate(container.driver):
        yield {"name": f"driver-{position}", "mountPath": mount.target, "readOnly": mount.read_only}
    for position, text in enumerate(container.request.volumes):
        _, target, read_only = _split(text)
        value = {"name": f"volume-{position}", "mountPath": target}
        yield {**value, "readOnly": True} if read_only else value


def _type(mount: Mount) -> str:
    """Return whether a path of the host is a file or a folder."""
    return "File" if is_file_name(mount.source) else "Directory"


def _split(text: str) -> tuple[str, str, bool]:
    """Return (folder of the node, folder in the container, read-only) of docker's `SRC:DST[:ro]`."""
    source, _, rest = text.partition(":")
    target, _, options = rest.partition(":")
    if not source.startswith("/") or not target.startswith("/"):
        what = f"-v {text}: a cluster's nodes have no such volume"
        raise UsageError(what, hint="an absolute folder of each node (SRC:DST), or add a claim to the manifest by hand")
    return source, target, "ro" in options.split(",")
