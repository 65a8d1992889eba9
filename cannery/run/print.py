"""The output of `run --print`: a command, or a file for compose or Kubernetes, and notes on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.host.facts import card_text, lacking
from cannery.run.container import docker_text
from cannery.run.kubernetes import job, pod
from cannery.run.ray import Ray, ray_cluster, ray_job, ray_of
from cannery.util.yaml_output import yaml_output
from cannery.vocab import RunFormat

if TYPE_CHECKING:
    from cannery.catalog.catalog import ChipAccess
    from cannery.host.facts import HostNpus
    from cannery.plan import Plan
    from cannery.run.container import Container
    from cannery.sandbox.box import Mount


def printed(form: RunFormat, container: Container, access: ChipAccess, plan: Plan) -> str:
    """Return the text that starts `container`, with the image of `plan`.

    Raises `UsageError` for an option that this form cannot express.
    """
    if form is RunFormat.DOCKER:
        return f"{docker_text(container)}\n"
    return yaml_output(_value(form, container, access, plan))


def _value(form: RunFormat, container: Container, access: ChipAccess, plan: Plan) -> dict[str, Any]:
    name, arch = container.request.name or plan.recipe.name, plan.recipe.target.arch
    match form:
        case RunFormat.POD:
            return pod(container, name, access.resource, arch)
        case RunFormat.JOB:
            return job(container, name, access.resource, arch)
        case RunFormat.RAYCLUSTER:
            return ray_cluster(container, name, access.resource, arch, ray_of(plan.lock.packages))
        case RunFormat.RAYJOB:
            return ray_job(container, name, access.resource, arch, ray_of(plan.lock.packages))
        case _:
            return compose_file(container, plan.recipe.name)


def compose_file(container: Container, service: str) -> dict[str, Any]:
    """Return the compose file that starts `container` as `service`.

    Compose fails if a folder of the host is missing: by default it would make an empty one.
    """
    request = container.request
    value: dict[str, Any] = {"image": _plain(request.image)}
    value |= {"container_name": request.name} if request.name else {}
    value |= {"user": request.run_as.name} if request.run_as else {}
    value |= {"working_dir": _plain(request.workdir)} if request.workdir else {}
    value |= {"init": True, "shm_size": request.shm_size}
    value |= {"stdin_open": True, "tty": True} if request.terminal else {}
    value |= {"network_mode": request.network} if request.network else {}
    value |= {"runtime": request.runtime} if request.runtime else {}
    value |= {"devices": [f"{node}:{node}" for node in container.devices]} if container.devices else {}
    value |= {"group_add": [str(container.group)]} if container.group is not None else {}
    volumes = [*(_volume(mount) for mount in container.mounts), *map(_plain, request.volumes)]
    value |= {"volumes": volumes} if volumes else {}
    env = (*container.visible, *container.env)
    value |= {"environment": {name: None if text is None else _plain(text) for name, text in env}}
    value |= {"command": [_plain(word) for word in request.command]} if request.command else {}
    return {"services": {service: {key: item for key, item in value.items() if item != {}}}}


def _volume(mount: Mount) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "bind", "source": _plain(mount.source), "target": _plain(mount.target)}
    value |= {"read_only": True} if mount.read_only else {}
    return {**value, "bind": {"create_host_path": False}}


def _plain(text: str) -> str:
    """Return `text` escaped for compose, which replaces `$NAME` by its own variables."""
    return text.replace("$", "$$")


def printed_notes(
    form: RunFormat, container: Container, access: ChipAccess, host: HostNpus, ray: Ray | None = None
) -> tuple[str, ...]:
    """Return notes on what is missing on `host`, compared with a full machine of the chip, or on the cluster's part.

    `ray` is the Ray of the image.
    """
    request = container.request
    guess = []
    if container.group is not None and not host.cards:  # there is no node to read the group from
        what = f"group {container.group} is the one that the driver's installer usually makes (HwHiAiUser)"
        guess = [f"{what}; run `stat -c %g /dev/davinci_manager` on the NPU host to check"]
    if not form.is_local:
        notes = [*container.notes, *_of_a_cluster(container, access)]
        if form.is_ray and ray is not None and not ray.has_dashboard:
            what = "the lock has Ray without its dashboard, ray[default]: `ray job submit` cannot reach it"
            notes.append(f"{what}; start the job in the head's pod, with kubectl exec")
        return (*notes, *guess)
    wanted = tuple(range(access.cards)) if request.cards is None else request.cards
    missing = lacking(access, host, wanted, multi_node=request.is_multi_node) if request.npu else ()
    notes = [f"missing on this host: {', '.join(missing)}"] if missing else []
    if beyond := [card for card in request.cards or () if card >= access.cards]:
        notes.append(f"NPUS: a host of this chip has cards 0 to {access.cards - 1}, and no card {card_text(beyond)}")
    notes += guess
    notes += _of_registry(request.image)
    if request.caches:
        folders = " and ".join(mount.source for mount in request.caches)
        is_one = len(request.caches) == 1
        what = "is mounted from this host. If it" if is_one else "are mounted from this host. If one"
        notes.append(f"{folders} {what} is missing, docker refuses to start: create it or use --no-caches")
    return (*container.notes, *notes)


def _of_registry(image: str) -> list[str]:
    return [f"{image} has to be there: `build.py push` puts it there"] if "/" in image else []


def _of_a_cluster(container: Container, access: ChipAccess) -> list[str]:
    request = container.request
    notes = []
    if request.cards:
        notes.append(f"the device plugin chooses the cards: {len(request.cards)} are asked for, numbers do not count")
    if "/" not in request.image:
        notes.append(
            f"{request.image} names no registry: push it to one and name that with --registry (make: REGISTRY), "
            "or load it on every node"
        )
    else:
        notes.append(
            f"{_of_registry(request.image)[0]}; if the registry needs a login, "
            "give imagePullSecrets to the pods or to their service account"
        )
    if request.npu:
        notes.append(
            f"nodes with other chips may offer {access.resource} too. In a mixed cluster, add a nodeSelector "
            "(accelerator-type, where Ascend's device plugin labels the nodes)"
        )
    if not request.volumes:
        notes.append("no folder of models or data is mounted: -v SRC:DST mounts a folder of the node")
    if request.nodes > 1 and not request.interface:
        notes.append("HCCL between nodes needs the network of the nodes: NETWORK=host INTERFACE=name")
    return notes
