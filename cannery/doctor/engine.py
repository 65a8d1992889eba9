"""The engine that runs containers: Docker, the ascend runtime, overlayfs, room for images, QEMU for foreign ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.doctor.check import NO_JSON, Check, State, closed, gigabytes, json_object, ok
from cannery.host.facts import (
    BINFMT,
    CONTAINER_MARKS,
    DAEMON_JSON,
    DOCKER_PROGRAMS,
    FILESYSTEMS,
    RUNTIME_PROGRAMS,
    user_map_text,
)
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.doctor.check import Wanted
    from cannery.host.facts import HostFacts

INSTALL = "apt-get install docker.io docker-buildx, or Docker's own packages"
# Of an Ascend image with its layers (a report of one that CI disks cannot hold: volcano-sh/kthena pull 494).
USUAL_IMAGE = 24_000_000_000


def docker(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether an engine answers; a tree shows only whether one is installed."""
    if facts.engine is None:
        program = next((path for path in DOCKER_PROGRAMS if path in facts.paths), "")
        if program:
            message = f"{program} is installed; a tree does not show whether an engine answers"
            yield Check("docker.engine", State.UNKNOWN, message, "run doctor on the host itself")
        else:
            yield Check("docker.engine", State.WARNING, "no Docker is installed", INSTALL)
    elif facts.engine.problem:
        yield Check("docker.engine", State.WARNING, facts.engine.problem, facts.engine.hint or INSTALL)
    elif facts.engine.storage_driver == "vfs":
        message = f"Docker {facts.engine.version} with storage driver vfs, which copies every layer in full"
        yield Check(
            "docker.engine", State.WARNING, message, "let it use overlay2: its data on ext4, or xfs with ftype=1"
        )
    else:
        driver = f", {facts.engine.storage_driver}" if facts.engine.storage_driver else ""
        yield ok("docker.engine", f"Docker {facts.engine.version}{driver}")


def users(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Warn of an engine whose containers have no user or group of the host's: only what all may open is open there."""
    user_map = facts.engine.user_map if facts.engine else ""
    shut = [node.path for node in facts.nodes if node.mode & 0o006 != 0o006]
    if not user_map or not shut:
        return
    message = f"{user_map_text(user_map)}; {', '.join(shut)} stay closed to its containers"
    step = "docker run --userns host" if user_map == "userns-remap" else "run them by the system's engine (DOCKER_HOST)"
    yield Check("docker.users", State.WARNING, message, f"{step}, or open the nodes to all (a udev rule, mode 0666)")


def runtime(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether the ascend runtime is there and complete; it is one of two ways, and not needed."""
    if DAEMON_JSON in facts.unreadable:
        yield closed("docker.runtime", DAEMON_JSON)
        return
    program = next((path for path in RUNTIME_PROGRAMS if path in facts.paths), "")
    text = facts.texts.get(DAEMON_JSON)
    settings, wrong = json_object(text) if text and text.strip() else ({}, "")
    if wrong:
        message = f"{DAEMON_JSON} {wrong}: Docker does not start with it"
        step = f"`python3 -m json.tool {DAEMON_JSON}` names the place" if wrong == NO_JSON else "write it as {…}"
        yield Check("docker.runtime", State.ERROR, message, step)
        return
    known = settings.get("runtimes")
    entry = known.get("ascend") if isinstance(known, dict) else None
    default = settings.get("default-runtime") == "ascend"
    if entry is None and default:
        message = f"{DAEMON_JSON} names ascend as the default runtime, and has no such runtime"
        yield Check(
            "docker.runtime", State.ERROR, message, f"add it to `runtimes`, with the path {RUNTIME_PROGRAMS[0]}"
        )
    elif entry is None and program:
        message = f"{program} is installed, and {DAEMON_JSON} does not name it"
        step = "install it again (Ascend-docker-runtime….run --install), or map the nodes: `build.py run` does"
        yield Check("docker.runtime", State.WARNING, message, step)
    elif entry is None:
        yield ok("docker.runtime", "no ascend runtime: nodes and driver are mapped one by one, as `build.py run` does")
    else:
        yield _entry(facts, str(entry.get("path", "")) if isinstance(entry, dict) else "", default=default)


def _entry(facts: HostFacts, path: str, *, default: bool) -> Check:
    if path in RUNTIME_PROGRAMS and path not in facts.paths:
        message = f"{DAEMON_JSON} names the ascend runtime at {path}, which is missing"
        return Check("docker.runtime", State.ERROR, message, "install Ascend Docker Runtime again, or remove the entry")
    use = "for every container, unless --runtime names another" if default else "with --runtime ascend"
    return ok("docker.runtime", f"ascend, {path} ({use}; it maps the cards of ASCEND_VISIBLE_DEVICES)")


def disk(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the room where images are kept with what the image takes."""
    needed, takes = _room(wanted)
    if facts.disk_free is None:
        message = f"a tree does not show how much is free; {takes}"
        yield Check("disk", State.UNKNOWN, message, "df -h /var/lib/docker")
        return
    message = f"{gigabytes(facts.disk_free)} free at {facts.disk_at}; {takes}"
    step = "`docker system df` shows what images take, `build.py clean` what Cannery does; data-root names another disk"
    if facts.disk_free < needed // 2:
        yield Check("disk", State.ERROR, message, step)
    elif facts.disk_free < needed:
        yield Check("disk", State.WARNING, message, step)
    else:
        yield ok("disk", message)


def _room(wanted: Wanted) -> tuple[int, str]:
    """Return the bytes that an image takes on the engine's disk, and what is counted in them, in words."""
    size = wanted.image_bytes
    if size is None or (wanted.layers_only and size <= USUAL_IMAGE):
        return USUAL_IMAGE, f"an image for NPUs takes about {gigabytes(USUAL_IMAGE)} with its CANN base"
    base = ", and its CANN base comes on top" if wanted.layers_only else " with its base"
    return size, f"the image of {wanted.profile} takes about {gigabytes(size)}{base}"


def overlay(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether the kernel has overlayfs, which image layers need."""
    text = facts.texts.get(FILESYSTEMS)
    if text is None:
        yield Check("overlayfs", State.UNKNOWN, f"{FILESYSTEMS} is missing", "grep overlay /proc/filesystems")
    elif "overlay" in text.split():
        yield ok("overlayfs", "the kernel has it")
    else:
        message = "the kernel does not have it, or has not loaded it yet"
        yield Check("overlayfs", State.WARNING, message, "modprobe overlay")


def emulation(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report whether images of the other architecture can be built: QEMU has to be registered with the kernel."""
    if facts.arch is None:
        return
    other = Arch.ARM64 if facts.arch is Arch.AMD64 else Arch.AMD64
    text = facts.texts.get(f"{BINFMT}/qemu-{other.machine}", "")
    needs = wanted.target is not None and wanted.target.arch is other
    if needs and facts.cards:
        message = f"the target is {other}, and the NPUs' host {facts.arch}: its driver's libraries are of {facts.arch}"
        yield Check("arch", State.ERROR, message, f"ARCH={facts.arch} (vllm-project/vllm-ascend issue 2521)")
    if text.startswith("enabled") and "F" in _flags(text):
        yield ok("emulation", f"QEMU runs {other} here")
    elif text.startswith("enabled"):
        message = f"QEMU for {other} is registered without the flag F: containers do not find it"
        step = f"{other.emulation}, in place of what registered it"
        yield Check("emulation", State.WARNING, message, step)
    elif needs:
        message = f"the target is {other}, the host {facts.arch}, and no QEMU is registered"
        yield Check("emulation", State.ERROR, message, other.emulation)
    else:
        yield ok("emulation", f"no QEMU for {other}: images of {facts.arch} need none")


def _flags(text: str) -> str:
    return next((line.removeprefix("flags:").strip() for line in text.splitlines() if line.startswith("flags:")), "")


def inside(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report that this is a container, where it is one: the rest is then its view, not the host's."""
    mark = next((path for path in CONTAINER_MARKS if path in facts.paths), "")
    if mark:
        message = f"{mark} exists: this is a container, and the checks of the engine and of disks show its own view"
        yield Check("container", State.WARNING, message, "run doctor on the host itself")
