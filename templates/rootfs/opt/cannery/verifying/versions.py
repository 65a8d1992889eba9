"""Names and versions as indexes compare them, and what CANN's version files state."""

import re


def normal_name(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# The words of PEP 440 for pre-, post- and development releases, with what they mean.
WORDS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc", "rev": "post", "r": "post"}
WORD = re.compile(r"[-_.]?(alpha|beta|preview|pre|post|rev|rc|dev|a|b|c|r)[-_.]?(\d*)")


def version_key(text: str) -> tuple[str, str]:
    """(public part, local part) of a PEP 440 version, equal for equal versions."""
    public, _, local = text.strip().lower().removeprefix("v").partition("+")
    public = re.sub(r"-(\d+)$", r".post\1", public)
    public = WORD.sub(lambda found: f".{WORDS.get(found[1], found[1])}{int(found[2] or 0)}", public)
    return re.sub(r"(?<=\d)(\.0+)+(?=\.[a-z]|$)", "", public), re.sub(r"[-_]", ".", local)


def release(text: str) -> str:
    """The numbers of a version: 2.7.1 of 2.7.1.post2+cpu."""
    found = re.match(r"(\d+\.)*\d+", version_key(text)[0])
    return found[0] if found else ""


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
