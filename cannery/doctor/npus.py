"""Checks of the NPUs and their driver.

For the NPUs: the PCI bus, the device nodes, who may open them, and the chip. For driver and firmware: whether they are
complete, fit each other, and fit the CANN of the image.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.catalog.compatibility import DRIVER, series_key
from cannery.catalog.target import canonical, order, series_of, without_build
from cannery.compat.subject import holds
from cannery.doctor.check import closed, error, ok, seen_chips, unknown, warning
from cannery.host.facts import ASCEND, DEV, MODULES, PASSWD, User
from cannery.run.container import REPORT
from cannery.vocab import CHIP_ALIASES, Chip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.doctor.check import Check, Wanted
    from cannery.host.facts import HostFacts, Node

# The PCI class of a processing accelerator. The vendor's network cards have other classes.
ACCELERATOR = "0x1200"
REINSTALL = "install the Ascend driver, or install it again for this kernel; then restart"
DRIVER_PACKAGE = "install the Ascend driver (HDK)"
OWNERS = "the driver's installer makes them HwHiAiUser's, 0660: install it again, or chgrp and chmod them so"
# Names in npu-smi that differ from those elsewhere. 910B without a digit is the first family (its rows show DDR and 32
# GB of HBM, as in vllm-project/vllm-ascend issue 3010); an A2 prints 910B1 to 910B4. Each die of an A3 is Ascend910
# (issues 2082 and 12980 there).
SMI_CHIPS = {"910b": Chip.A1, "ascend910": Chip.A3}
SMI_A5 = re.compile(r"(?:ascend)?950[a-z]*")
SMI_NAME = re.compile(r"^\|\s*\d+\s+(\S+)\s*\|", re.MULTILINE)


def _npus(facts: HostFacts, wanted: Wanted) -> list[str]:
    """Return the device ids of the NPUs on the bus."""
    return [
        device
        for device, kind in facts.pci or ()
        if device in wanted.drivers.pci or (kind.startswith(ACCELERATOR) and device.startswith("0xd"))
    ]


def cards(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the NPUs on the PCI bus with the driver's device nodes."""
    npus, nodes = _npus(facts, wanted), facts.cards
    listed = (
        f"/dev/davinci{{{','.join(map(str, nodes))}}}" if len(nodes) > 1 else f"/dev/davinci{''.join(map(str, nodes))}"
    )
    if nodes and npus and len(nodes) < len(npus):
        message = f"{len(npus)} NPUs on the PCI bus, {len(nodes)} nodes: {listed}"
        yield warning("devices.cards", message, "`npu-smi info` and `dmesg | grep -i davinci` show the others")
    elif nodes:
        wrong = [node.path for node in facts.nodes if facts.live and not node.is_device]
        if wrong:
            message = f"{', '.join(wrong)} is not a device: a mount of a missing file made it"
            yield error("devices.cards", message, f"remove it; {REINSTALL}")
        else:
            yield ok("devices.cards", f"{len(nodes)} cards: {listed}")
    elif DEV in facts.unreadable:
        yield closed("devices.cards", DEV)
    elif npus:
        loaded = re.search(r"^drv_", facts.texts.get(MODULES, ""), re.MULTILINE)
        why = "" if MODULES not in facts.texts or loaded else "; the kernel has no module of the driver loaded"
        message = f"{len(npus)} NPUs on the PCI bus, and no /dev/davinciN{why}"
        yield error("devices.cards", message, REINSTALL)
    elif facts.driver:
        bus = "the PCI bus shows none" if facts.pci is not None else "the PCI bus is not shown"
        message = f"the driver is installed, and there is no /dev/davinciN; {bus}"
        where = "in a container, give them with --device; else `lspci -d 19e5:` shows whether the host has NPUs"
        yield error("devices.cards", message, where)
    else:
        message = "no NPU on this host: no /dev/davinciN, no driver, and none on the PCI bus"
        step = "images can be built here; run them with `--npus none`, or on a host with NPUs"
        yield warning("devices.cards", message, step)


def managers(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report missing manager nodes on a host with cards."""
    if not facts.cards:
        return
    present = {node.path for node in facts.nodes}
    needed = wanted.access(facts).managers
    missing = [path for path in needed if path not in present]
    hidden = [path for path in missing if path in facts.unreadable]
    if missing and missing == hidden:
        yield closed("devices.managers", *hidden)
    elif missing:
        message = f"missing beside the cards: {', '.join(missing)}"
        yield error("devices.managers", message, f"no NPU opens without them: {REINSTALL}")
    else:
        yield ok("devices.managers", ", ".join(needed))


def access(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report who owns the nodes, and whether the user may open them, on the host and in a container."""
    if not facts.nodes:
        return
    shown = [_owned(facts, node) for node in facts.nodes]
    same = (
        shown[0]
        if len(set(shown)) == 1
        else "; ".join(f"{n.path} {t}" for n, t in zip(facts.nodes, shown, strict=True))
    )
    gids = {node.gid for node in facts.nodes} - {0}
    if facts.user is None:
        message = f"nodes: {same}; a tree does not show which user is meant"
        yield unknown("devices.access", message, "--user NAME looks one up in its /etc/passwd, --user NUMBER takes any")
        return
    closed = [node.path for node in facts.nodes if not _can_open(facts.user, node)]
    group = " ".join(f"--group-add {gid}" for gid in sorted(gids))
    if closed:
        names = " or ".join(filter(None, (facts.name(gid) for gid in sorted(gids))))
        which = ", ".join(closed) if len(closed) < len(facts.nodes) else "any of the nodes"
        message = f"user {facts.user.name} cannot open {which} ({same})"
        can_join = names and facts.user.is_named
        join = f"`sudo usermod -aG {names} {facts.user.name}`, then log in again; " if can_join else ""
        step = f"{join}containers of a user other than root: {group}" if group else OWNERS
        yield warning("devices.access", message, step)
    else:
        yield ok("devices.access", f"user {facts.user.name} may open the nodes ({same})")
    if not facts.user.is_named and (facts.live or PASSWD in facts.texts):
        uid = facts.user.uid
        message = f"uid {uid} has no name here: HCCL between several cards fails for such a user ({REPORT})"
        step = f"`useradd -u {uid} NAME`; in a container its image has to name it: `user` of the profile"
        yield warning("devices.user", message, step)
    nameless = [gid for gid in sorted(gids) if not facts.name(gid)]
    if nameless:
        message = f"the nodes belong to group {nameless[0]}, which /etc/group does not name"
        step = f"groupadd -g {nameless[0]} HwHiAiUser; until then, containers by number: {group}"
        yield warning("devices.group", message, step)


def _owned(facts: HostFacts, node: Node) -> str:
    return f"{facts.name(node.uid, PASSWD) or node.uid}:{facts.name(node.gid) or node.gid} {node.mode & 0o777:04o}"


def _can_open(user: User, node: Node) -> bool:
    """Whether a user may read and write a node, by its owner, group and mode."""
    wanted = 0o600 if user.uid == node.uid else 0o060 if node.gid in user.groups else 0o006
    return user.uid == 0 or node.mode & wanted == wanted


def image_user(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report whether the image's user (not root) may open the nodes with the group that `run` adds."""
    user = wanted.user
    if user is None or not facts.nodes:
        return
    added = min({node.gid for node in facts.nodes} - {0}, default=0)
    somebody = User(user.name, user.uid, frozenset({user.gid, added}))
    shut = [node for node in facts.nodes if not _can_open(somebody, node)]
    named = f"{user.name} ({user.uid}), the user of the image of {wanted.profile}"
    if shut:
        message = f"{named}, cannot open {', '.join(f'{node.path} {_owned(facts, node)}' for node in shut)}"
        yield error("devices.image-user", message, OWNERS)
    else:
        yield ok("devices.image-user", f"{named}, may open the nodes with --group-add {added}, which `run` adds")


def chip(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report the chip of the host, from PCI ids or else npu-smi, and whether the image is for it."""
    strange = [device for device in _npus(facts, wanted) if device not in wanted.drivers.pci]
    seen, source = seen_chips(facts, wanted.drivers), "PCI id"
    if not seen:
        names = map(str.lower, SMI_NAME.findall(facts.smi or ""))
        named = (Chip.A5 if SMI_A5.fullmatch(name) else SMI_CHIPS.get(name) or CHIP_ALIASES.get(name) for name in names)
        seen, source = tuple(dict.fromkeys(found for found in named if found)), "npu-smi"
    target = wanted.wanted_chip
    if len(seen) > 1:
        message = f"several chips: {', '.join(seen)} ({source})"
        yield warning("chip", message, "one container takes cards of one chip: choose them with NPUS")
    elif not seen:
        if facts.cards or strange:
            known = f"; PCI id {strange[0]} is in no row of images/drivers.yaml" if strange else ""
            message = f"neither the PCI bus nor npu-smi shows which chip it is{known}"
            yield unknown("chip", message, "`npu-smi info` prints it; CHIP=… names it to every command")
    elif target is not None and target is not seen[0]:
        what = f"{wanted.profile} is for" if wanted.profile else "CHIP is"
        message = f"the host has {_named(seen[0], wanted)} ({source}), {what} {target}"
        step = f"CHIP={seen[0]}; kernels of one chip do not run on another (vllm-ascend issue 2725)"
        yield error("chip", message, step)
    else:
        yield ok("chip", f"{_named(seen[0], wanted)} ({source})")


def _named(found: Chip, wanted: Wanted) -> str:
    return f"{found}, {wanted.chips[found].names}"


def smi(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report the output of npu-smi."""
    place = next((path for path in sorted(facts.paths) if path.endswith("/npu-smi")), "")
    if not place:
        hidden = sorted(path for path in facts.unreadable if path.endswith("/npu-smi"))
        if hidden:
            yield closed("npu-smi", *hidden)
        elif facts.driver or facts.cards:
            step = "it comes with the driver: install that again, or look for it with `find / -name npu-smi`"
            yield warning("npu-smi", "npu-smi is at none of its places", step)
    elif facts.smi is None:
        message = f"{place} exists; only the running host shows what it answers"
        yield unknown("npu-smi", message, "run doctor on the host itself")
    elif busy := re.search(r"-80(?:05|20)\b", facts.smi):
        message = f"{place} answers {busy[0]}: a card is held by another container, or not given to this one"
        yield warning("npu-smi", message, "`docker ps` names the containers; one card, one container")
    elif (version := re.search(r"npu-smi\s+(\d\S*)", facts.smi)) is None:
        first = next(iter(facts.smi.strip().splitlines()), "nothing")
        message = f"{place} answers: {first[:200]}"
        step = "the driver does not answer: `dmesg | grep -i davinci`, then restart the host"
        yield error("npu-smi", message, step)
    else:
        yield ok("npu-smi", f"{place} {version[1]}")


def _is_npu_host(facts: HostFacts, wanted: Wanted) -> bool:
    return bool(facts.cards or facts.driver or seen_chips(facts, wanted.drivers))


def files(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Report missing files of the driver that containers mount."""
    if not _is_npu_host(facts, wanted):
        return
    if facts.install != ASCEND:
        message = f"the driver is installed in {facts.install}, and containers look for it in {ASCEND}"
        mount = f"-v {facts.install}/driver/lib64:{ASCEND}/driver/lib64:ro"
        step = f"`build.py run` mounts it there; in a command of your own use {mount}, and so on"
        yield warning("driver.place", message, step)
    paths = {path: path.replace(ASCEND, facts.install, 1) for path in wanted.access(facts).mounts}
    missing = [place for place in paths.values() if place not in facts.paths]
    library = any(path.endswith("/libascend_hal.so") for path in facts.paths)
    libraries = () if library else (path for path in facts.unreadable if path.endswith("/libascend_hal.so"))
    hidden = sorted({*facts.unreadable.intersection(missing), *libraries})
    if hidden and set(missing) <= set(hidden):
        yield closed("driver.files", *hidden)
    elif any("/driver" in path for path in missing) or not library:
        lost = missing or [f"libascend_hal.so below {facts.install}/driver/lib64"]
        message = f"the driver is missing, or a part of it: no {', '.join(lost)}"
        yield error("driver.files", message, DRIVER_PACKAGE)
    elif missing:
        message = f"no {', '.join(missing)}"
        step = "containers go without it (docker would make an empty folder of it); the driver's package brings it"
        yield warning("driver.files", message, step)
    else:
        yield ok("driver.files", ", ".join(paths.values()))


def folders(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Report folders in place of files and nodes. Docker's -v makes a folder if the source is missing."""
    if facts.folders:
        names = sorted(facts.folders)
        message = f"{', '.join(names)}: a folder instead of a file: docker's -v makes one for a missing file"
        step = f"rmdir {' '.join(names)}; then {DRIVER_PACKAGE} again, which brings the file"
        yield error("driver.folders", message, step)


def version(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Check the driver's version against the CANN of the image and the requirements of its releases."""
    if not _is_npu_host(facts, wanted):
        return
    place = f"{facts.install}/driver/version.info"
    text = facts.driver.get("Version", "")
    try:
        found = canonical(text)
    except ValueError:
        if place in facts.unreadable:
            yield closed("driver.version", place)
        elif place in facts.texts:
            named = f": {text[:80]!r}" if text else ""
            yield unknown("driver.version", f"{place} names no version{named}", "`npu-smi info` prints it")
        elif any(path.startswith(f"{facts.install}/driver/") for path in facts.paths):
            yield error("driver.version", f"{place} is missing, or cannot be read", DRIVER_PACKAGE)
        else:
            yield error("driver.version", f"no driver: there is no {place}", DRIVER_PACKAGE)
        return
    yield _check_driver(found, wanted)
    wish = wanted.wish
    if wish is None:
        return
    words = f"{wish.wanted} or newer" if wish.wanted[0].isdigit() else wish.wanted
    if order(found) and holds(DRIVER, wish.wanted, found):
        yield ok("driver.asked", f"{found}; {wish.who} asks for {words}")
    else:
        message = f"{found}; {wish.who} asks for {words} ({wish.source})"
        yield warning("driver.asked", message, f"a driver {words}")


def _check_driver(found: str, wanted: Wanted) -> Check:
    """Check a driver against images/drivers.yaml. A pair without a row is unknown, never ok (case D12)."""
    series, table = series_of(found), wanted.drivers
    if wanted.target is None:
        fits = table.fitting(series)
        known = f"works with CANN {', '.join(fits)}" if fits else "which CANN it works with is not known here"
        return ok("driver.version", f"{found}; {known} (images/drivers.yaml)")
    cann = without_build(wanted.target.cann)
    rows = table.of(cann)
    reports = [one for one in table.reports if cann in one.cann and series_key(series) <= series_key(one.series)]
    report = min(reports, key=lambda one: series_key(one.series), default=None)
    listed = next((row for row in rows if series in row.series), None)
    others = [other for other in table.fitting(series) if other != cann]
    older = f", or an image of CANN {' or '.join(others)}" if others else ""
    near = rows or tuple(row for row in table.drivers if series_of(row.cann) == series_of(cann))
    better = max((one for row in near for one in row.series), key=series_key, default="")
    step = f"a driver {better}.x{older}" if better else f"a newer driver{older}"
    if report is not None and (report.series == series or listed is None):
        older = "" if report.series == series else f", with driver {report.series}, which is newer"
        message = f"{found} with CANN {cann}: {report.what}{older} ({report.source})"
        return warning("driver.version", message, step)
    if listed is not None:
        return ok("driver.version", f"{found} works with CANN {cann} ({table.sources[listed.source]})")
    whole = next((row for row in rows if row.whole), None)
    if whole is not None and series_key(series) < min(map(series_key, whole.series)):
        named = ", ".join(f"{one}.x" for one in whole.series)
        message = f"{found} is older than the drivers that CANN {cann} works with: {named}"
        return warning("driver.version", f"{message} ({table.sources[whole.source]})", step)
    message = f"whether {found} works with CANN {cann} is in no row of images/drivers.yaml"
    shown = ", ".join(f"{one}.x" for row in rows for one in row.series)
    hint = f"known to work: {shown}{older}" if shown else f"ask the release notes of CANN {cann}{older}"
    return unknown("driver.version", message, f"{hint}; `build.py verify --require-npu` tries it")


def firmware(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the firmware with the range in the driver's version.info."""
    if not _is_npu_host(facts, wanted) or not facts.driver:
        return
    place = f"{facts.install}/firmware/version.info"
    text = facts.firmware.get("Version", "")
    ranges = re.findall(r"\[([\d.]+),([\d.]+)\]", facts.driver.get("compatible_version_fw", ""))
    if place in facts.unreadable:
        yield closed("firmware.version", place)
    elif not _numbers(text):
        step = "`npu-smi info -t board -i 0` prints the firmware's version"
        yield unknown("firmware.version", f"{place} is missing, or names no version", step)
    elif not ranges:
        message = f"{text}; the driver does not name the firmware that it takes"
        yield unknown("firmware.version", message, "install driver and firmware of one HDK")
    elif any(_numbers(low) <= _numbers(text) <= _numbers(high) for low, high in ranges):
        range_text = ", ".join(f"{low} to {high}" for low, high in ranges)
        yield ok("firmware.version", f"{text}; the driver takes {range_text}")
    else:
        range_text = ", ".join(f"{low} to {high}" for low, high in ranges)
        message = f"{text}; the driver takes {range_text}"
        yield error("firmware.version", message, "install the firmware of the driver's HDK, then restart")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if re.fullmatch(r"[0-9]{1,18}", part))
