"""The image: what its name shows of chip, kind and registry, and options of docker's that come after it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.lint.command import PROGRAMS
from cannery.lint.container import Remark
from cannery.util.image_reference import DEFAULT_REGISTRY, registry_of
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case

# Options of docker's with a value that no program has. `http://…` is no mount.
_MOUNTED = re.compile(r"[^:]+:/(?!/)")
_HOST = re.compile(r"host$")
DOCKERS = {
    "--device": re.compile(r"/dev/"),
    "-v": _MOUNTED,
    "--volume": _MOUNTED,
    "--mount": re.compile(r".*(?:target|dst|destination)="),
    "--privileged": re.compile(""),
    "--shm-size": re.compile(r"\d"),
    "--group-add": re.compile(r"."),
    "--cap-add": re.compile(r"."),
    "--ipc": _HOST,
    "--pid": _HOST,
    "--net": _HOST,
    "--network": _HOST,
    "--runtime": re.compile(r"ascend$", re.IGNORECASE),
}
# Options that people add at the end of a line, and that no program has.
LEFT_BEHIND = frozenset({"-it", "-ti", "-itd", "-dit", "--rm", "--name", "--detach"})
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
WHY = "docker reads its own options before the image alone"


def chip(case: Case) -> Iterator[Remark]:
    """Refuse an image of another chip than the host's, where the user names that."""
    image, host = case.container.image, case.ground.chip
    if case.image.chip and host and case.image.chip is not host:
        what = f"{image} is for chip {case.image.chip}, and the host has {host}"
        why = "kernels of one chip do not run on another; at times only a log line shows it (vllm-ascend issue 2725)"
        yield Remark(Severity.ERROR, "chip", image, what, why, f"the image for {host}")


def standin(case: Case) -> Iterator[Remark]:
    """Refuse NPUs to an image on the stand-in base, which has no CANN."""
    if case.image.standin and case.uses_npu:
        image = case.container.image
        what = f"{image} is built on the stand-in base, and NPUs are given to it"
        fix = "an image on a real base: its tag has no -standin"
        yield Remark(Severity.ERROR, "standin", image, what, "it has no CANN: nothing runs there", fix)


def registry(case: Case) -> Iterator[Remark]:
    """Name a registry in front of a reference that has one already."""
    image = case.container.image
    first = registry_of(image)
    rest = image.removeprefix(f"{first}/")
    second = registry_of(rest) if rest != image else DEFAULT_REGISTRY
    if second != DEFAULT_REGISTRY:
        what = f"{image} has two registries, {first} and {second}"
        why = "the first is asked for a repository of the second's name (gpustack/gpustack issue 5456)"
        fix = f"{rest}, unless {first} is a mirror of it"
        yield Remark(Severity.WARNING, "image.registry", image, what, why, fix)


def strange_image(case: Case) -> Iterator[Remark]:
    """Name an image that is none: a path of what was meant to be an option's value."""
    image = case.container.image
    if image.startswith(("/", "-")) or not image.strip():
        what = f"{image if image.strip() else 'an empty word'} is where the image goes"
        why = "docker takes the first word that is no option, and no option's value, for the image"
        fix = "write the option before it, such as --device; it takes one value each time"
        yield Remark(Severity.ERROR, "image.path", image, what, why, fix)


def behind(case: Case) -> Iterator[Remark]:
    """Name options of docker's among the container's arguments.

    Directly after the image, or after a shell, they are a mistake; another program may have an option of that name.
    """
    words, image = case.container.command, case.container.image
    entry = case.container.value("entrypoint").split()
    program = PurePosixPath((entry or words or ("",))[0]).name
    if not words or program in PROGRAMS:
        return
    is_first = is_sure = not entry and words[0].startswith("-")
    lost = [at for at in range(len(words)) if _is_dockers(words, at)]
    for at in lost:
        own = words[0 if entry else 1 : at]
        is_sure = is_sure or (program in SHELLS and all(one.startswith("-") and "c" not in one for one in own))
        has_value = "=" not in words[at] and words[at] != "--privileged"
        shown = " ".join(words[at : at + 1 + has_value])
        what = f"{shown} is after {image}: docker hands it to the program, and does nothing with it"
        severity = Severity.ERROR if is_sure else Severity.WARNING
        yield Remark(severity, "image.behind", shown, what, WHY, f"{shown} before the image")
    if is_first and not lost and (words[0] in LEFT_BEHIND or case.image.ascend):
        what = f"{words[0]} is after {image}: it is the container's command, not an option"
        yield Remark(Severity.WARNING, "image.behind", words[0], what, WHY, "put it before the image")


def _is_dockers(words: tuple[str, ...], at: int) -> bool:
    """Whether a word is an option of docker's, by its name and its value."""
    name, equals, value = words[at].partition("=")
    after = value if equals else " ".join(words[at + 1 : at + 2])
    return name in DOCKERS and DOCKERS[name].match(after) is not None
