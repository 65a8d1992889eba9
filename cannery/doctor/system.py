"""The rest of the host: kernel, pages, memory, shared memory, and what several machines need to train together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.doctor.check import Check, State, closed, gigabytes, json_object, ok
from cannery.host.facts import HCCN, OS_RELEASE, RANKTABLE, RELEASE
from cannery.vocab import Chip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.doctor.check import Wanted
    from cannery.host.facts import HostFacts

# What a container of docker's own gets, and what a host that is a container has.
LONGEST_VERSION = 40  # of what is shown
DOCKER_SHM = 64 << 20
SHM = "/dev/shm"  # noqa: S108 - looked at, not written to
# Chips whose NPUs have network cards of their own.
WITH_NETWORK = frozenset({Chip.A1, Chip.A2, Chip.A3})


def kernel(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report which system this is."""
    release = facts.texts.get(RELEASE, "").strip()
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', facts.texts.get(OS_RELEASE, ""), re.MULTILINE)
    system = ", ".join(filter(None, (name[1] if name else "", str(facts.arch or ""))))
    if release:
        yield ok("kernel", f"{release}{f' ({system})' if system else ''}")
    else:
        yield Check("kernel", State.UNKNOWN, f"{RELEASE} is missing", "uname -r")


def page_size(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Warn of large pages, for which jemalloc has to be made (Kunpeng machines often have them)."""
    if facts.page is None:
        yield Check("page-size", State.UNKNOWN, "nothing here shows it", "getconf PAGESIZE")
    elif facts.page > 4096:
        message = f"{facts.page // 1024} KB: jemalloc that was built on a machine with 4 KB pages does not run here"
        step = (
            "one built from source needs --with-lg-page=16; "
            "an image whose jemalloc does not fit prints `Unsupported system page size` at each start"
        )
        yield Check("page-size", State.WARNING, message, step)
    else:
        yield ok("page-size", f"{facts.page // 1024} KB")


def memory(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the memory with the shared memory of a container, which is a part of it."""
    total = facts.memory.get("MemTotal")
    if total is None:
        yield Check("memory", State.UNKNOWN, "/proc/meminfo is missing", "free -g")
        return
    free = facts.memory.get("MemAvailable", total)
    message = f"{gigabytes(total)}, {gigabytes(free)} of it available"
    if wanted.shm_bytes and free < wanted.shm_bytes:
        message += f"; a container of {wanted.profile} may fill {wanted.shm_size} of shared memory alone"
        yield Check("memory", State.WARNING, message, "end what holds it, or take a larger machine")
    else:
        yield ok("memory", message)


def shared_memory(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Look at the host's /dev/shm, which containers with --ipc host take; others have one of --shm-size."""
    if facts.shm is None:
        yield Check("shm", State.UNKNOWN, f"{SHM} is missing, or nothing shows its size", f"df -h {SHM}")
        return
    needed = wanted.shm_bytes or DOCKER_SHM + 1
    if facts.shm < needed:
        size = wanted.shm_size or "16g"
        message = f"{SHM} has {gigabytes(facts.shm)}" + (f"; {wanted.profile} takes {size}" if wanted.shm_bytes else "")
        step = f"start containers with --shm-size {size} and without --ipc host (`build.py run` does)"
        yield Check("shm", State.WARNING, message, step)
    else:
        yield ok("shm", f"{SHM} has {gigabytes(facts.shm)}")


def hccn(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Look at /etc/hccn.conf, the addresses of the NPUs' own network cards: several machines need it."""
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
        yield Check("hccn", State.WARNING, message, "hccn_tool -i N -ip -s address A netmask M, for each of them")
    else:
        yield ok("hccn", f"{HCCN} has an address of each of {len(facts.cards)} cards")


def ranktable(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Warn of a ranktable of another chip generation, which HCCL refuses (case D10)."""
    text, chip = facts.texts.get(RANKTABLE), wanted.chip(facts)
    if RANKTABLE in facts.unreadable:
        yield closed("ranktable", RANKTABLE)
    if text is None:
        return
    table, wrong = json_object(text)
    version = str(table.get("version", ""))[:LONGEST_VERSION]
    if wrong:
        message = f"{RANKTABLE} {wrong}"
        yield Check(
            "ranktable", State.WARNING, message, f"HCCL fails at it: move it away, mv {RANKTABLE} {RANKTABLE}.old"
        )
        return
    taken = wanted.chips[chip].ranktable if chip else None
    if taken is None:
        message = f"{RANKTABLE} has version {version or 'none'}; which one chip {chip or '?'} takes is not known"
        yield Check("ranktable", State.UNKNOWN, message, "move it away where HCCL refuses it (EI0014)")
    elif version != taken:
        message = f"{RANKTABLE} has version {version or 'none'}, and HCCL of chip {chip} takes {taken} only"
        step = f"it is left from another chip: mv {RANKTABLE} {RANKTABLE}.old (gpustack/runtime pull 27)"
        yield Check("ranktable", State.WARNING, message, step)
    else:
        yield ok("ranktable", f"{RANKTABLE}, version {version}")
