"""A container as a RayCluster or RayJob of KubeRay: N equal pods, each with the cards of one node; one is Ray's head.

The fields are those of KubeRay's API reference for ray.io/v1 and its samples. Ray counts Ascend cards as `NPU`.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.run.kubernetes import ITS_COMMAND, dns_name, metadata, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.lock.lock import LockedPackage
    from cannery.run.container import Container
    from cannery.vocab import Arch

LONGEST_NAME, LONGEST_JOB = 53, 47  # KubeRay refuses longer names
PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}
# Packages that Ray's dashboard and agents need beyond Ray's own requirements. The agents answer the probes.
DASHBOARD = frozenset({"aiohttp-cors", "opencensus"})
# Without them, the probe uses the port of the raylet. It is fixed here, because Ray chooses another at each start.
RAYLET_PORT = 6380
# The URLs of KubeRay's probes. KubeRay uses wget, which not every base has.
ALIVE = "http://localhost:52365/api/local_raylet_healthz"
HEAD_ALIVE = "http://localhost:8265/api/gcs_healthz"
# A node that compiles operators or loads a model answers late.
PROBES = {
    "livenessProbe": {"initialDelaySeconds": 30, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 120},
    "readinessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 10},
}


@dataclass(frozen=True)
class Ray:
    """The Ray of an image: its version, and whether its dashboard and the agents on each node can run."""

    version: str
    has_dashboard: bool


def ray_of(packages: Iterable[LockedPackage]) -> Ray | None:
    """Return the Ray of a lock, or None."""
    versions = {package.name: package.version for package in packages}
    return Ray(versions["ray"], versions.keys() >= DASHBOARD) if "ray" in versions else None


def ray_cluster(container: Container, name: str, resource: str | None, arch: Arch, ray: Ray | None) -> dict[str, Any]:
    """Return the RayCluster of as many containers as the request has nodes.

    Raises like `pod_spec`, and `UsageError` for an image without Ray, for a command (KubeRay starts Ray itself), and
    for a name that KubeRay refuses.
    """
    if ray is None:
        raise UsageError("the image has no Ray", hint="name a profile that has the component ray")
    if container.request.command:
        hint = "submit the job to the cluster: `ray job submit -- COMMAND`"
        raise UsageError("KubeRay starts Ray in each pod, and takes no command behind `--`", hint=hint)
    name = _cluster_name(name)
    pod = pod_spec(container, name, resource, arch)
    spec: dict[str, Any] = {"rayVersion": ray.version, "headGroupSpec": _group(container, name, pod, ray, head=True)}
    count = container.request.nodes - 1
    if count:
        group = {"groupName": "npu", "replicas": count, "minReplicas": count, "maxReplicas": count}
        spec["workerGroupSpecs"] = [{**group, **_group(container, name, pod, ray, head=False)}]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata(name), "spec": spec}


def ray_job(container: Container, name: str, resource: str | None, arch: Arch, ray: Ray | None) -> dict[str, Any]:
    """Return the RayJob that runs its command once on its own RayCluster, which is removed afterwards.

    Raises like `ray_cluster`, and `UsageError` without a command, or without the dashboard, which receives it.
    """
    command = container.request.command
    if not command:
        raise UsageError("a RayJob needs a command", hint=ITS_COMMAND)
    if ray is not None and not ray.has_dashboard:
        what = "KubeRay passes the command to Ray's dashboard, and the lock has Ray without it"
        raise UsageError(what, hint="a profile with ray[default], or --format raycluster")
    idle = replace(container, request=replace(container.request, command=()))
    cluster = ray_cluster(idle, _cluster_name(name)[:LONGEST_JOB].rstrip("-"), resource, arch, ray)
    # In this mode no other pod needs the image. Kueue only admits jobs whose cluster is removed afterwards.
    spec = {"entrypoint": shlex.join(command), "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
    return {**cluster, "kind": "RayJob", "spec": {**spec, "rayClusterSpec": cluster["spec"]}}


def _cluster_name(text: str) -> str:
    """Return the cluster's name, from which KubeRay makes the names of pods and services."""
    found = dns_name(text)[:LONGEST_NAME].rstrip("-")
    if not found[0].isalpha():
        raise UsageError(f"--name: {text!r}: a RayCluster's name begins with a letter", hint=f"for example ray-{found}")
    return found


def _group(container: Container, name: str, pod: dict[str, Any], ray: Ray, *, head: bool) -> dict[str, Any]:
    (inner,) = pod["containers"]
    # KubeRay sets the command, which needs no terminal.
    inner = {key: value for key, value in inner.items() if key not in {"stdin", "tty"}}
    inner["name"] = "ray-head" if head else "ray-worker"
    if head:
        inner["ports"] = [{"name": port, "containerPort": number} for port, number in PORTS.items()]
    asked = _probe_action(ray, head=head)
    inner |= {probe: {**asked, **times} for probe, times in PROBES.items()}
    params = {"dashboard-host": "0.0.0.0"} if head else {}  # noqa: S104 - inside the cluster's network
    params |= {} if ray.has_dashboard else {"node-manager-port": str(RAYLET_PORT)}
    # JSON in quotes, since KubeRay passes it to a shell. Without it, Ray opens the cards to count them.
    params |= {"resources": f"'{json.dumps({'NPU': container.cards})}'"} if container.cards else {}
    spec = {**pod, "containers": [inner]}
    return {"rayStartParams": params, "template": {"metadata": {"labels": metadata(name)["labels"]}, "spec": spec}}


def _probe_action(ray: Ray, *, head: bool) -> dict[str, Any]:
    """Return the action of a probe: query the agent of a node and the head's dashboard, or the port of the raylet."""
    if not ray.has_dashboard:
        return {"tcpSocket": {"port": RAYLET_PORT}}
    # Without the proxy of the container's environment, which cannot reach the pod's localhost.
    text = (
        "import sys, urllib.request as u; o = u.build_opener(u.ProxyHandler({})); "
        "sys.exit(any(b'success' not in o.open(a).read() for a in sys.argv[1:]))"
    )
    return {"exec": {"command": ["python", "-c", text, *([ALIVE, HEAD_ALIVE] if head else [ALIVE])]}}
