"""Mounts: what the engine refuses, what is not the host's folder, and what hides a part of the image."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING

from cannery.lint.case import DRIVER, Edit, add, remark, remove, replace
from cannery.lint.shell_words import is_open
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark
    from cannery.lint.container import Mount


@dataclass(frozen=True)
class Place:
    """A folder of an image that a mount must not stand over, what is lost then, and in whose images it is."""

    path: str
    lost: str
    severity: Severity = Severity.ERROR
    ours: bool = False


PLACES = (
    Place("/usr/local/Ascend/cann", "CANN"),
    Place("/usr/local/Ascend/ascend-toolkit", "CANN"),
    Place("/usr/local/Ascend/nnal", "NNAL (ATB)"),
    Place("/opt/venv", "every package of the stack", ours=True),
    Place("/opt/cannery", "the manifest and the verify script", ours=True),
    Place("/usr/local/lib", "jemalloc, which LD_PRELOAD names, and other libraries", ours=True),
    Place("/usr/local/bin", "programs", Severity.WARNING),
    Place("/usr/local/sbin", "programs", Severity.NOTE),
    Place("/vllm-workspace", "vllm and vllm-ascend, which are installed from there", Severity.WARNING),
)
SOURCES = "/opt/src"


def _spelt(mount: Mount) -> str:
    return mount.setting.word


def bad_paths(case: Case) -> Iterator[Remark]:
    """Name mounts that the engine refuses or takes otherwise than meant: relative paths, and one path alone."""
    for mount in case.container.mounts:
        word = _spelt(mount)
        if mount.target and not mount.target.startswith("/") and not is_open(mount.target):
            what = f"{word}: {mount.target} is not absolute, and has to be in the container"
            yield remark(Severity.ERROR, "mount.relative", word, what, "the engine refuses it", f"/{mount.target}")
        elif mount.setting.key == "volume" and ":" not in (mount.setting.value or "") and mount.target:
            severity = Severity.ERROR if _is_host_path(mount.target) else Severity.NOTE
            what = f"{word}: one path alone is an empty volume of that name, not the host's folder"
            fix = f"-v {mount.target}:{mount.target}"
            edits = [replace(mount.setting, *fix.split(" ", 1))] if severity is Severity.ERROR else []
            yield remark(
                severity, "mount.single", word, what, "the engine makes a new volume at each start", fix, *edits
            )
        elif mount.kind == "bind" and not case.container.where and _is_relative(mount.source):
            yield _relative(mount, word)


def _is_host_path(path: str) -> bool:
    return path.startswith(("/usr/local/Ascend", "/usr/local/dcmi", "/etc/")) or path.endswith("/npu-smi")


def _is_relative(source: str) -> bool:
    return bool(source) and not source.startswith(("/", ".")) and not is_open(source)


def _relative(mount: Mount, word: str) -> Remark:
    if mount.source.startswith("~"):
        # `-v ~/a:/b` is filled in by the shell; `--volume=~/a:/b` and a quoted one are not.
        what = f"{word}: nothing fills in the ~ unless it stands unquoted at the beginning of a word"
        return remark(
            Severity.WARNING, "mount.relative", word, what, "docker takes it as it is", f"$HOME{mount.source[1:]}"
        )
    what = f"{word}: {mount.source} is not absolute, and a volume's name has no slash"
    edit = replace(mount.setting, "-v", f"/{mount.setting.value}") if mount.setting.key == "volume" else None
    why = "the engine refuses it"
    return remark(Severity.ERROR, "mount.relative", word, what, why, f"/{mount.source}", *([edit] if edit else []))


def twice(case: Case) -> Iterator[Remark]:
    """Name a second mount of the same place: docker stops unless it is the same word, compose takes the last."""
    seen: dict[str, Mount] = {}
    for mount in case.container.mounts:
        target = mount.target.rstrip("/")
        before = seen.setdefault(target, mount)
        if before is not mount and target:
            what = f"{_spelt(mount)}: {_spelt(before)} mounts {target} already"
            edits = [remove(mount.setting)] if before.source == mount.source else []
            severity, why = Severity.ERROR, "the engine refuses a mount point that is named twice"
            if (before.setting.key, before.setting.value) == ("volume", mount.setting.value):
                severity, why = Severity.NOTE, "docker takes two words that are the same for one"
            elif case.container.where:
                severity, why = Severity.WARNING, "compose takes the last of them; older ones stop there"
            yield remark(severity, "mount.twice", _spelt(mount), what, why, "leave one of them out", *edits)


def hidden(case: Case) -> Iterator[Remark]:
    """Name mounts that hide what the image has: CANN, the packages, a tree that is installed from where it stands."""
    for mount in case.container.mounts:
        if not mount.target:
            continue
        found = [_known(case, place) for place in PLACES if mount.hides(place.path) and _may_have(case, place)]
        if found:
            yield _hides(case, mount, found)
        elif mount.target.startswith("/usr/local/Ascend/cann-") and mount.target.count("/") == 4:
            yield _hides(case, mount, [Place(mount.target, "CANN")])
        elif case.told.ours or mount.target.removeprefix(f"{SOURCES}/").rstrip("/") in case.ground.trees:
            yield from _sources(case, mount)


def _may_have(case: Case, place: Place) -> bool:
    return case.told.ours or not place.ours


def _known(case: Case, place: Place) -> Place:
    """Return `place` as a warning where an image, for all that its name tells, may have nothing there.

    Some images have no CANN, and are started with the host's.
    """
    sure = case.told.ours or case.told.ascend or place.severity is not Severity.ERROR
    return place if sure else replaced(place, severity=Severity.WARNING)


def _hides(case: Case, mount: Mount, places: list[Place]) -> Remark:
    worst = min(places, key=lambda place: list(Severity).index(place.severity))
    lost = ", ".join(dict.fromkeys(place.lost for place in places if place.severity is worst.severity))
    word, fix, edits = _spelt(mount), "mount it at another place", list[Edit]()
    if mount.target.rstrip("/").startswith("/usr/local/Ascend"):
        fix = f"mount what of it is the host's: {' '.join(case.access.mounts)}"
        # The host's CANN is perhaps what the image is to run with: only who wrote the line knows.
        edits = [remove(mount.setting)] if worst.severity is Severity.ERROR else []
        lacking = [path for path in case.access.mounts if path.startswith(DRIVER) and not case.gives(path, but=mount)]
        edits += [add("-v", f"{path}:{path}:ro") for path in lacking] if edits else []
    elif worst.path in {"/usr/local/bin", "/usr/local/sbin"} and mount.source.rstrip("/") == mount.target.rstrip("/"):
        fix = f"mount what is needed of it: -v {worst.path}/npu-smi:{worst.path}/npu-smi:ro"
    what = f"{word} hides what the image has there: {lost}"
    why = "a mount takes the place of what stands below it"
    return remark(worst.severity, "mount.hides", word, what, why, fix, *edits)


def _sources(case: Case, mount: Mount) -> Iterator[Remark]:
    """Judge a mount over /opt/src: over one tree it is what a developer may want, over all of them it is not."""
    word, target = _spelt(mount), mount.target.rstrip("/")
    name = target.removeprefix(f"{SOURCES}/").partition("/")[0]
    if mount.hides(SOURCES):
        what = f"{word} hides every source tree of the image"
        fix = f"mount one tree: -v DIR:{SOURCES}/<component>"
        yield remark(Severity.ERROR, "mount.source", word, what, "packages are installed from there", fix)
    elif target == f"{SOURCES}/{name}":
        kernels = "; it has compiled parts, which your tree has to have too" if name in case.ground.native else ""
        known = "" if not case.ground.trees or name in case.ground.trees else f"; no component is called {name}"
        what = f"{word} takes the place of the image's {name}{kernels}{known}"
        why = "patches and generated files of the image's tree are gone, and verify fails at sources.*"
        fix = f"on purpose: build with SRC_{name}=DIR, so that the manifest says so; else mount it elsewhere"
        yield remark(Severity.WARNING, "mount.source", word, what, why, fix)
