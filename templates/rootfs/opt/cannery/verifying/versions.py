"""Names and versions as indexes compare them, and what CANN's version files state."""

import re


def normal_name(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


VERSION = re.compile(
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)"
    r"(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d*))?"
    r"(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?"
    r"(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def version_key(text: str) -> tuple[tuple[object, ...], str]:
    """(public part, local part) of a PEP 440 version, equal for equal versions. Other text is compared as it is."""
    match = VERSION.fullmatch(text.strip().lower())
    if not match:
        return (text.strip().lower(),), ""
    epoch, release, pre, pre_no, dash, post, post_no, dev, dev_no, local = match.groups()
    numbers = [int(part) for part in release.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    public = (
        int(epoch or 0),
        tuple(numbers),
        (PRE.get(pre, pre), int(pre_no or 0)) if pre else None,
        int(dash) if dash else (int(post_no or 0) if post else None),
        int(dev_no or 0) if dev else None,
    )
    return public, ".".join(part.lstrip("0") or "0" for part in re.split(r"[-_.]", local)) if local else ""


def release(text: str) -> str:
    """The numbers of a version: 2.7.1 of 2.7.1.post2+cpu."""
    match = VERSION.fullmatch(text.strip().lower())
    return match[2] if match else ""


def same_version(wanted: str, found: str) -> bool:
    """Equal public parts, and equal local parts if `wanted` has one: 0.13.0 takes 0.13.0+empty, 2.13.0+cpu itself."""
    (public, local), (found_public, found_local) = version_key(wanted), version_key(found)
    return public == found_public and (not local or local == found_local)


def same_release(wanted: str, found: str) -> bool:
    """Equal public parts: a build's own local part (`+empty`, or a commit) does not identify the source."""
    return version_key(wanted)[0] == version_key(found)[0]


CANN_VERSION = re.compile(
    r"(?<![\w.])(\d+\.\d+\.(?:rc\d+|\d+)(?:\.?(?:alpha|beta)\.?\d+)?)(?:\.b\d+)?(?![\w.])", re.IGNORECASE
)


def without_build(cann: str) -> str:
    """A version of CANN without its build: 8.5.0.b160 is a build of 8.5.0, and version files name either."""
    return re.sub(r"\.b\d+$", "", cann)


def cann_version(text: str) -> str:
    """The CANN version that a version file states, lower case, or "".

    The files of CANN have no common form: `version=8.1.RC1`, `version_dir=8.1.RC1` beside an inner
    `Version=7.6.0.1.220`, `Ascend-cann-atb : 8.1.RC1`.
    """
    lines = sorted(text.splitlines(), key=lambda line: not line.lower().startswith("version_dir"))
    found = (match.group(1).lower() for line in lines for match in CANN_VERSION.finditer(line))
    return next(found, "")
