"""Checks of the machine: the engine and its needs, kernel, memory, and files for training on several machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.doctor.check import Check, State, closed, error, gigabytes, ok, unknown, warning
from cannery.host.facts import (
    BINFMT,
    CONTAINER_MARKS,
    DAEMON_JSON,
    DOCKER_PROGRAMS,
    FILESYSTEMS,
    HCCN,
    NO_JSON,
    OS_RELEASE,
    RANKTABLE,
    RELEASE,
    RUNTIME_PROGRAMS,
    json_object,
    user_map_text,
)
from cannery.vocab import Arch, Chip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.doctor.check import Wanted
    from cannery.host.facts import HostFacts


INSTALL = "apt-get install docker.io docker-buildx, or Docker's own packages"
# The size of an Ascend image with its layers (one was too large for CI disks: volcano-sh/kthena pull 494).
USUAL_IMAGE = 24_000_000_000


def docker(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether an engine answers. A copied file tree only shows whether one is installed."""
    if facts.engine is None:
        program = next((path for path in DOCKER_PROGRAMS if path in facts.paths), "")
        if program:
            message = f"{program} is installed; a tree does not show whether an engine answers"
            yield unknown("docker.engine", message, "run doctor on the host itself")
        else:
            yield warning("docker.engine", "no Docker is installed", INSTALL)
    elif facts.engine.is_absent and facts.no_sandbox == "":
        message = f"{facts.engine.problem}: images are built, verified and opened without it, only `run` needs one"
        yield ok("docker.engine", message, facts.engine.hint)
    elif facts.engine.problem:
        yield warning("docker.engine", facts.engine.problem, facts.engine.hint or INSTALL)
    elif facts.engine.storage_driver == "vfs":
        message = f"Docker {facts.engine.version} with storage driver vfs, which copies every layer in full"
        yield warning("docker.engine", message, "use overlay2: put Docker's data on ext4, or on xfs with ftype=1")
    else:
        driver = f", {facts.engine.storage_driver}" if facts.engine.storage_driver else ""
        yield ok("docker.engine", f"Docker {facts.engine.version}{driver}")


def sandbox(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether images can be verified without an engine, which needs sandboxes."""
    if facts.no_sandbox == "":
        yield ok("sandbox", "commands of an image run here without Docker")
    elif facts.no_sandbox and facts.engine and not facts.engine.problem:
        yield ok("sandbox", "commands of an image run in Docker alone: this host makes no sandboxes")
    elif facts.no_sandbox:
        message = f"images can be assembled, not verified: {facts.no_sandbox}"
        yield warning("sandbox", message, "what such a host can do: docs/guides/registries.md#foundations")


def users(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Warn about an engine that maps users: its containers can only open nodes that are open to everybody."""
    user_map = facts.engine.user_map if facts.engine else ""
    shut = [node.path for node in facts.nodes if node.mode & 0o006 != 0o006]
    if not user_map or not shut:
        return
    message = f"{user_map_text(user_map)}; {', '.join(shut)} stay closed to its containers"
    step = "docker run --userns host" if user_map == "userns-remap" else "run them by the system's engine (DOCKER_HOST)"
    yield warning("docker.users", message, f"{step}, or open the nodes to all (a udev rule, mode 0666)")


def runtime(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether the ascend runtime is installed and complete. It is optional: nodes can be mapped instead."""
    if DAEMON_JSON in facts.unreadable:
        yield closed("docker.runtime", DAEMON_JSON)
        return
    program = next((path for path in RUNTIME_PROGRAMS if path in facts.paths), "")
    text = facts.texts.get(DAEMON_JSON)
    settings, wrong = json_object(text) if text and text.strip() else ({}, "")
    if wrong:
        message = f"{DAEMON_JSON} {wrong}: Docker does not start with it"
        step = f"`python3 -m json.tool {DAEMON_JSON}` shows where" if wrong == NO_JSON else "write it as {…}"
        yield error("docker.runtime", message, step)
        return
    known = settings.get("runtimes")
    entry = known.get("ascend") if isinstance(known, dict) else None
    default = settings.get("default-runtime") == "ascend"
    if entry is None and default:
        message = f"{DAEMON_JSON} names ascend as the default runtime, and has no such runtime"
        yield error("docker.runtime", message, f"add it to `runtimes`, with the path {RUNTIME_PROGRAMS[0]}")
    elif entry is None and program:
        message = f"{program} is installed, and {DAEMON_JSON} does not name it"
        step = "install it again (Ascend-docker-runtime….run --install), or map the nodes: `build.py run` does"
        yield warning("docker.runtime", message, step)
    elif entry is None:
        yield ok("docker.runtime", "no ascend runtime: nodes and driver are mapped one by one, as `build.py run` does")
    else:
        yield _entry(facts, str(entry.get("path", "")) if isinstance(entry, dict) else "", default=default)


def _entry(facts: HostFacts, path: str, *, default: bool) -> Check:
    if path in RUNTIME_PROGRAMS and path not in facts.paths:
        message = f"{DAEMON_JSON} names the ascend runtime at {path}, which is missing"
        return error("docker.runtime", message, "install Ascend Docker Runtime again, or remove the entry")
    use = "for every container, unless --runtime names another" if default else "with --runtime ascend"
    return ok("docker.runtime", f"ascend, {path} ({use}; it maps the cards of ASCEND_VISIBLE_DEVICES)")


def disk(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the free disk space for images with the size of the image."""
    needed, takes = USUAL_IMAGE, f"an image for NPUs takes about {gigabytes(USUAL_IMAGE)} with its CANN base"
    size = wanted.image_bytes
    if size is not None and not (wanted.layers_only and size <= USUAL_IMAGE):
        base = ", and its CANN base comes on top" if wanted.layers_only else " with its base"
        needed, takes = size, f"the image of {wanted.profile} takes about {gigabytes(size)}{base}"
    if facts.disk_free is None:
        message = f"a tree does not show how much is free; {takes}"
        yield unknown("disk", message, "df -h /var/lib/docker")
        return
    message = f"{gigabytes(facts.disk_free)} free at {facts.disk_at}; {takes}"
    step = "`docker system df` shows what images take, `build.py clean` what Cannery does; data-root names another disk"
    if facts.engine is not None and facts.engine.is_absent:
        step = "`build.py clean` shows what Cannery holds there; CANNERY_CACHE names another disk"
    if facts.disk_free < needed // 2:
        yield error("disk", message, step)
    elif facts.disk_free < needed:
        yield warning("disk", message, step)
    else:
        yield ok("disk", message)


def overlay(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report whether the kernel has overlayfs, which image layers need."""
    text = facts.texts.get(FILESYSTEMS)
    if text is None:
        yield unknown("overlayfs", f"{FILESYSTEMS} is missing", "grep overlay /proc/filesystems")
    elif "overlay" in text.split():
        yield ok("overlayfs", "the kernel has it")
    else:
        message = "the kernel does not have it, or has not loaded it yet"
        yield warning("overlayfs", message, "modprobe overlay")


def emulation(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report whether images for the other architecture can be built, which needs QEMU registered with the kernel."""
    if facts.arch is None:
        return
    other = Arch.ARM64 if facts.arch is Arch.AMD64 else Arch.AMD64
    text = facts.texts.get(f"{BINFMT}/qemu-{other.machine}", "")
    needs = wanted.target is not None and wanted.target.arch is other
    if needs and facts.cards:
        message = f"the target is {other}, and the NPUs' host {facts.arch}: its driver's libraries are of {facts.arch}"
        yield error("arch", message, f"ARCH={facts.arch} (vllm-project/vllm-ascend issue 2521)")
    if text.startswith("enabled") and re.search(r"^flags:.*F", text, re.MULTILINE):
        yield ok("emulation", f"QEMU runs {other} here")
    elif text.startswith("enabled"):
        message = f"QEMU for {other} is registered without the flag F: containers do not find it"
        step = f"{other.emulation}, instead of what registered it"
        yield warning("emulation", message, step)
    elif needs:
        message = f"the target is {other}, the host {facts.arch}, and no QEMU is registered"
        yield error("emulation", message, other.emulation)
    else:
        yield ok("emulation", f"no QEMU for {other}: images of {facts.arch} need none")


def inside(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Warn if this is a container: other checks then show its view, not the host's."""
    mark = next((path for path in CONTAINER_MARKS if path in facts.paths), "")
    if mark:
        message = f"{mark} exists: this is a container, and the checks of the engine and of disks show its own view"
        yield warning("container", message, "run doctor on the host itself")


LONGEST_VERSION = 40  # characters that are printed
# Docker's default size of shared memory.
DOCKER_SHM = 64 << 20
SHM = "/dev/shm"  # noqa: S108 - read only
# Chips whose NPUs have their own network cards.
WITH_NETWORK = frozenset({Chip.A1, Chip.A2, Chip.A3})


def kernel(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report the kernel and the system."""
    release = facts.texts.get(RELEASE, "").strip()
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', facts.texts.get(OS_RELEASE, ""), re.MULTILINE)
    system = ", ".join(filter(None, (name[1] if name else "", str(facts.arch or ""))))
    if release:
        yield ok("kernel", f"{release}{f' ({system})' if system else ''}")
    else:
        yield unknown("kernel", f"{RELEASE} is missing", "uname -r")


def page_size(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Warn about large pages, for which jemalloc has to be built (Kunpeng machines often have them)."""
    if facts.page is None:
        yield unknown("page-size", "only the running host shows it", "getconf PAGESIZE")
    elif facts.page > 4096:
        message = f"{facts.page // 1024} KB: jemalloc that was built on a machine with 4 KB pages does not run here"
        step = (
            "one built from source needs --with-lg-page=16; "
            "an image whose jemalloc does not fit prints `Unsupported system page size` at each start"
        )
        yield warning("page-size", message, step)
    else:
        yield ok("page-size", f"{facts.page // 1024} KB")


def memory(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the available memory with the shared memory of a container, which uses it."""
    total = facts.memory.get("MemTotal")
    if total is None:
        yield unknown("memory", "/proc/meminfo is missing", "free -g")
        return
    free = facts.memory.get("MemAvailable", total)
    message = f"{gigabytes(total)}, {gigabytes(free)} of it available"
    if wanted.shm_bytes and free < wanted.shm_bytes:
        message += f"; a container of {wanted.profile} may fill {wanted.shm_size} of shared memory alone"
        yield warning("memory", message, "stop the programs that use it, or use a larger machine")
    else:
        yield ok("memory", message)


def shared_memory(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Check the host's /dev/shm. Containers with --ipc host use it, others have their own with --shm-size."""
    if facts.shm is None:
        yield unknown("shm", f"{SHM} is missing, or only the running host shows its size", f"df -h {SHM}")
        return
    needed = wanted.shm_bytes or DOCKER_SHM + 1
    if facts.shm < needed:
        size = wanted.shm_size or "16g"
        message = f"{SHM} has {gigabytes(facts.shm)}" + (f"; {wanted.profile} takes {size}" if wanted.shm_bytes else "")
        step = f"start containers with --shm-size {size} and without --ipc host (`build.py run` does)"
        yield warning("shm", message, step)
    else:
        yield ok("shm", f"{SHM} has {gigabytes(facts.shm)}")


def hccn(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Check /etc/hccn.conf, which has the addresses of the NPUs' network cards. Jobs on several machines need it."""
    if not facts.cards or wanted.chip(facts) not in WITH_NETWORK:
        return
    if HCCN in facts.unreadable:
        yield closed("hccn", HCCN)
        return
    text = facts.texts.get(HCCN, "")
    found = {int(number) for number in re.findall(r"^address_([0-9]{1,9})=\S", text, re.MULTILINE)}
    lacking = [card for card in facts.cards if card not in found]
    if not text:
        needs = f"{wanted.profile} runs on several hosts" if wanted.several_hosts else "one machine needs none"
        message = f"no {HCCN}: the NPUs' network cards have no address; {needs}"
        step = "for several: hccn_tool -i 0 -ip -s address A netmask M, for each card"
        yield Check("hccn", State.WARNING if wanted.several_hosts else State.OK, message, step)
    elif lacking:
        message = f"{HCCN} has no address of card {', '.join(map(str, lacking))}"
        yield warning("hccn", message, "hccn_tool -i N -ip -s address A netmask M, for each of them")
    else:
        yield ok("hccn", f"{HCCN} has an address of each of {len(facts.cards)} cards")


def ranktable(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Warn about a ranktable of another chip generation, which HCCL refuses (case D10)."""
    text, chip = facts.texts.get(RANKTABLE), wanted.chip(facts)
    if RANKTABLE in facts.unreadable:
        yield closed("ranktable", RANKTABLE)
    if text is None:
        return
    table, wrong = json_object(text)
    version = str(table.get("version", ""))[:LONGEST_VERSION]
    if wrong:
        message = f"{RANKTABLE} {wrong}"
        yield warning("ranktable", message, f"HCCL fails with it; move it away: mv {RANKTABLE} {RANKTABLE}.old")
        return
    taken = wanted.chips[chip].ranktable if chip else None
    if taken is None:
        message = f"{RANKTABLE} has version {version or 'none'}; which one chip {chip or '?'} takes is not known"
        yield unknown("ranktable", message, "if HCCL refuses it (EI0014), move it away")
    elif version != taken:
        message = f"{RANKTABLE} has version {version or 'none'}, and HCCL of chip {chip} takes {taken} only"
        step = f"it is left from another chip: mv {RANKTABLE} {RANKTABLE}.old (gpustack/runtime pull 27)"
        yield warning("ranktable", message, step)
    else:
        yield ok("ranktable", f"{RANKTABLE}, version {version}")
