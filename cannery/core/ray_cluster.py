"""A container as a RayCluster of KubeRay: N pods alike, each with the cards of one node; the first is Ray's head.

Field names and forms: KubeRay's API reference for ray.io/v1 and its sample clusters. Ray counts Ascend cards as `NPU`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cannery.core.errors import UsageError
from cannery.core.kubernetes import dns_name, metadata, pod_spec

if TYPE_CHECKING:
    from cannery.core.container import Container
    from cannery.core.words import Arch

LONGEST_NAME = 53  # KubeRay refuses longer ones
PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}
# What KubeRay's own probes ask with wget, which not every base has.
ALIVE = "http://localhost:52365/api/local_raylet_healthz"
HEAD_ALIVE = "http://localhost:8265/api/gcs_healthz"
# Seconds and tries; a node that compiles operators or loads a model answers late.
PROBES = {
    "livenessProbe": {"initialDelaySeconds": 30, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 120},
    "readinessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 10},
}


def ray_cluster(
    container: Container, name: str, resource: str | None, arch: Arch, ray_version: str | None
) -> dict[str, Any]:
    """Return the RayCluster of as many containers as the request has nodes.

    Raises as `pod_spec`, and `UsageError` for an image without Ray, for a command (KubeRay starts Ray itself), and for
    a name that KubeRay would refuse.
    """
    if ray_version is None:
        raise UsageError("the image has no Ray", hint="name a profile that has the component ray")
    if container.request.command:
        hint = "submit the job to the cluster: `ray job submit -- COMMAND`"
        raise UsageError("KubeRay starts Ray in each pod, and takes no command behind `--`", hint=hint)
    name = _cluster_name(name)
    head = _group(container, name, resource, arch, head=True)
    spec: dict[str, Any] = {"rayVersion": ray_version, "headGroupSpec": head}
    count = container.request.nodes - 1
    if count:
        group = {"groupName": "npu", "replicas": count, "minReplicas": count, "maxReplicas": count}
        spec["workerGroupSpecs"] = [{**group, **_group(container, name, resource, arch, head=False)}]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata(name), "spec": spec}


def _cluster_name(text: str) -> str:
    """Return the cluster's name, which KubeRay makes those of pods and services of."""
    found = dns_name(text)[:LONGEST_NAME].rstrip("-")
    if not found[0].isalpha():
        raise UsageError(f"--name: {text!r}: a RayCluster's name begins with a letter", hint=f"for example ray-{found}")
    return found


def _group(container: Container, name: str, resource: str | None, arch: Arch, *, head: bool) -> dict[str, Any]:
    spec = pod_spec(container, name, resource, arch)
    (inner,) = spec["containers"]
    for terminal in ("stdin", "tty"):  # KubeRay gives the command
        inner.pop(terminal, None)
    inner["name"] = "ray-head" if head else "ray-worker"
    if head:
        inner["ports"] = [{"name": port, "containerPort": number} for port, number in PORTS.items()]
    asked = [ALIVE, HEAD_ALIVE] if head else [ALIVE]
    inner |= {probe: {"exec": {"command": _probe(asked)}, **times} for probe, times in PROBES.items()}
    params = {"dashboard-host": "0.0.0.0"} if head else {}  # noqa: S104 - inside the cluster's network
    # A JSON text within quotes: KubeRay hands it to a shell. Without it Ray would count by opening the cards.
    params |= {"resources": f"'{json.dumps({'NPU': container.cards})}'"} if container.cards else {}
    return {"rayStartParams": params, "template": {"metadata": {"labels": metadata(name)["labels"]}, "spec": spec}}


def _probe(addresses: list[str]) -> list[str]:
    text = "import sys, urllib.request as u; sys.exit(any(b'success' not in u.urlopen(a).read() for a in sys.argv[1:]))"
    return ["python", "-c", text, *addresses]
