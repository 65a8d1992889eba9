"""The driver and the firmware: whether they are whole, fit each other, and fit the CANN of the image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.catalog.compatibility import DRIVER, newest
from cannery.catalog.target import canonical, order, series_of, without_build
from cannery.compat.subject import holds
from cannery.doctor.check import Check, State, closed, ok, seen_chips
from cannery.host.facts import ASCEND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.doctor.check import Wanted
    from cannery.host.facts import HostFacts

INSTALL = "install the Ascend driver (HDK)"


def _is_npu_host(facts: HostFacts, wanted: Wanted) -> bool:
    return bool(facts.cards or facts.driver or seen_chips(facts, wanted.drivers))


def files(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Name the files of the driver that containers mount and that are missing."""
    if not _is_npu_host(facts, wanted):
        return
    if facts.install != ASCEND:
        message = f"the driver is installed in {facts.install}, and containers look for it in {ASCEND}"
        mount = f"-v {facts.install}/driver/lib64:{ASCEND}/driver/lib64:ro"
        step = f"`build.py run` mounts it there; in a command of your own use {mount}, and so on"
        yield Check("driver.place", State.WARNING, message, step)
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
        yield Check("driver.files", State.ERROR, message, INSTALL)
    elif missing:
        message = f"no {', '.join(missing)}"
        step = "containers go without it (docker would make an empty folder of it); the driver's package brings it"
        yield Check("driver.files", State.WARNING, message, step)
    else:
        yield ok("driver.files", ", ".join(paths.values()))


def folders(facts: HostFacts, _wanted: Wanted) -> Iterator[Check]:
    """Name folders in place of files and nodes: docker's -v makes one of a path that is missing."""
    if facts.folders:
        names = sorted(facts.folders)
        message = f"{', '.join(names)}: a folder in place of a file, as docker's -v makes of a missing one"
        step = f"rmdir {' '.join(names)}; then {INSTALL[0].lower()}{INSTALL[1:]} again, which brings the file"
        yield Check("driver.folders", State.ERROR, message, step)


def version(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Judge the driver's version: against the CANN of the image, and what the image's releases ask for."""
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
            yield Check("driver.version", State.UNKNOWN, f"{place} names no version{named}", "`npu-smi info` prints it")
        elif any(path.startswith(f"{facts.install}/driver/") for path in facts.paths):
            yield Check("driver.version", State.ERROR, f"{place} is missing, or cannot be read", INSTALL)
        else:
            yield Check("driver.version", State.ERROR, f"no driver: there is no {place}", INSTALL)
        return
    yield _against(found, wanted)
    yield from _asked(found, wanted)


def _against(found: str, wanted: Wanted) -> Check:
    """Judge a driver by images/drivers.yaml. A pair that is in no row is unknown, never ok (case D12)."""
    series, table = series_of(found), wanted.drivers
    if wanted.target is None:
        fits = table.fitting(series)
        known = f"works with CANN {', '.join(fits)}" if fits else "which CANN it works with is not known here"
        return ok("driver.version", f"{found}; {known} (images/drivers.yaml)")
    cann = without_build(wanted.target.cann)
    rows = table.of(cann)
    reports = [one for one in table.reports if cann in one.cann and _key(series) <= _key(one.series)]
    report = min(reports, key=lambda one: _key(one.series), default=None)
    listed = next((row for row in rows if series in row.series), None)
    others = [other for other in table.fitting(series) if other != cann]
    older = f", or an image of CANN {' or '.join(others)}" if others else ""
    near = rows or tuple(row for row in table.drivers if series_of(row.cann) == series_of(cann))
    better = newest(s for row in near for s in row.series) if near else ""
    step = f"a driver {better}.x{older}" if better else f"a newer driver{older}"
    if report is not None and (report.series == series or listed is None):
        older = "" if report.series == series else f", with driver {report.series}, which is newer"
        message = f"{found} with CANN {cann}: {report.what}{older} ({report.source})"
        return Check("driver.version", State.WARNING, message, step)
    if listed is not None:
        return ok("driver.version", f"{found} works with CANN {cann} ({table.sources[listed.source]})")
    whole = next((row for row in rows if row.whole), None)
    if whole is not None and _key(series) < min(map(_key, whole.series)):
        named = ", ".join(f"{one}.x" for one in whole.series)
        message = f"{found} is older than the drivers that CANN {cann} works with: {named}"
        return Check("driver.version", State.WARNING, f"{message} ({table.sources[whole.source]})", step)
    message = f"whether {found} works with CANN {cann} is in no row of images/drivers.yaml"
    shown = ", ".join(f"{one}.x" for row in rows for one in row.series)
    hint = f"known to work: {shown}{older}" if shown else f"ask the release notes of CANN {cann}{older}"
    return Check("driver.version", State.UNKNOWN, message, f"{hint}; `build.py verify --require-npu` tries it")


def _key(series: str) -> list[int]:
    return [int(part) for part in series.split(".")]


def _asked(found: str, wanted: Wanted) -> Iterator[Check]:
    """Compare the driver with what the set's releases ask for (images/compatibility.yaml)."""
    wish = wanted.wish
    if wish is None:
        return
    words = f"{wish.wanted} or newer" if wish.wanted[0].isdigit() else wish.wanted
    if order(found) and holds(DRIVER, wish.wanted, found):
        yield ok("driver.asked", f"{found}; {wish.who} asks for {words}")
    else:
        message = f"{found}; {wish.who} asks for {words} ({wish.source})"
        yield Check("driver.asked", State.WARNING, message, f"a driver {words}")


def firmware(facts: HostFacts, wanted: Wanted) -> Iterator[Check]:
    """Compare the firmware with the range that the driver takes."""
    if not _is_npu_host(facts, wanted) or not facts.driver:
        return
    place = f"{facts.install}/firmware/version.info"
    text = facts.firmware.get("Version", "")
    ranges = re.findall(r"\[([\d.]+),([\d.]+)\]", facts.driver.get("compatible_version_fw", ""))
    if place in facts.unreadable:
        yield closed("firmware.version", place)
    elif not _numbers(text):
        step = "`npu-smi info -t board -i 0` prints the firmware's version"
        yield Check("firmware.version", State.UNKNOWN, f"{place} is missing, or names no version", step)
    elif not ranges:
        message = f"{text}; the driver does not name the firmware that it takes"
        yield Check("firmware.version", State.UNKNOWN, message, "install driver and firmware of one HDK")
    elif any(_numbers(low) <= _numbers(text) <= _numbers(high) for low, high in ranges):
        range_text = ", ".join(f"{low} to {high}" for low, high in ranges)
        yield ok("firmware.version", f"{text}; the driver takes {range_text}")
    else:
        range_text = ", ".join(f"{low} to {high}" for low, high in ranges)
        message = f"{text}; the driver takes {range_text}"
        yield Check("firmware.version", State.ERROR, message, "install the firmware of the driver's HDK, then restart")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if re.fullmatch(r"[0-9]{1,18}", part))
