"""Device nodes that are there, and that the container cannot open or finds at another one's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.host.facts import CARD
from cannery.lint.case import remark, remove, replace
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark
    from cannery.lint.container import Device


def mounted_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that come as mounts: they stay closed, but for those that --device or a rule of devices opens too."""
    if case.privileged:
        return
    mapped = {device.source for device in case.container.devices}
    ruled = bool(case.container.all("device-cgroup-rule"))
    for mount in case.container.mounts:
        source, word = mount.source.rstrip("/"), mount.setting.word
        if source in mapped:
            what, why = f"{word}: --device brings {source} already", "a mount adds nothing to it"
            yield remark(Severity.NOTE, "node.mounted", word, what, why, "leave the mount out", remove(mount.setting))
        elif source == "/dev" or CARD.fullmatch(source) or source in case.managers:
            whole = source == "/dev"
            open_in_part = ruled or (whole and bool(case.container.cards))
            what = f"{word} mounts {source}: the container's device rules keep it closed"
            why = "only --device opens a node to a container that is not privileged"
            fix = "--device for each node that is needed, and no mount of /dev" if whole else f"--device {source}"
            if open_in_part:
                what = (
                    f"{word} mounts {source}, of which the container's device rules keep closed what they do not name"
                )
            edits = [] if whole or ruled else [replace(mount.setting, "--device", source)]
            severity = Severity.WARNING if open_in_part else Severity.ERROR
            yield remark(severity, "node.mounted", word, what, why, fix, *edits)


def closed_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes without the right to read or write."""
    for device in case.container.devices:
        if (device.card is not None or device.source in case.managers) and not {*"rw"} <= {*device.permissions}:
            what = f"{device.setting.word} gives the right {device.permissions!r} alone"
            fix = f"--device {device.source}"
            why = "the driver opens its nodes for reading and writing"
            edit = replace(device.setting, "--device", device.source)
            yield remark(Severity.ERROR, "node.permission", device.setting.word, what, why, fix, edit)


def same_target(case: Case) -> Iterator[Remark]:
    """Name a card that takes another one's place: `/dev/davinci{0..1}:/dev/davinci{0..1}` is four words."""
    seen: dict[str, Device] = {}
    for device in case.container.devices:
        before = seen.setdefault(device.target, device)
        if before.source != device.source and CARD.fullmatch(device.target):
            word = device.setting.word
            what = f"{word}: {before.setting.word} is at {device.target} already"
            why = "one node stands at a path; two ranges in a word make every pair of them"
            fix = f"--device {device.source}, without a path of the container's"
            yield remark(Severity.WARNING, "node.target", word, what, why, fix)
            return
