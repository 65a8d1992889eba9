"""Types of single values in the catalog's models. Each is a text with a function that checks it."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, BeforeValidator

from cannery.catalog.errors import FaultError
from cannery.catalog.target import (
    is_version,
    marker_environment,
    parse_arch,
    parse_cann,
    parse_chip,
    parse_os,
    parse_python,
)
from cannery.errors import CanneryError
from cannery.util.addresses import CREDENTIALS
from cannery.vocab import DEFAULT_INDEX, Arch, Chip, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

# The checks of the verify script that need an NPU. Only these are skipped on a host without one.
NPU_CHECKS = ("npu.nodes", "npu.driver", "npu.smi", "npu.visible", "npu.network", "npu.count", "npu.tensor")
# The checks of the level train. The step needs an NPU, and some trainers cannot make their data on a stand-in.
TRAIN_CHECKS = ("train.model", "train.data", "train.config", "train.step")
LONGEST_NAME = 60
IMAGE_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
COMPONENT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Control characters that are never part of a file or command line. Line ends and tabs are allowed.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# Resolvers keep the numbers of a version in 64 bits.
LONG_NUMBER = re.compile(r"[0-9]{19}")
# The range of upload dates. Resolvers only read years of four digits.
FIRST_DAY, LAST_DAY = "2000-01-01", "2099-12-31"
# The names of distributions and extras (PEP 508).
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def text(value: object) -> str:
    """Return `value` if it is a text without control characters and credentials. Raises `FaultError` otherwise.

    The message does not show the credentials.
    """
    if isinstance(value, bool):
        raise FaultError("a text is expected here, and YAML reads this word as true or false", "quote it")
    if not isinstance(value, str):
        raise FaultError("a text is expected here")
    control = CONTROL.search(value)
    if control is not None:
        raise FaultError(f"the control character U+{ord(control[0]):04X} is in this text", "remove it")
    if CREDENTIALS.search(value):
        what = "this text has credentials in it, and files of the catalog are committed"
        raise FaultError(
            what, "leave them out, and put them into the pip settings or git's credential helper of the host"
        )
    return value


def parsed(parse: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that parses a text with `parse` and reports its error.

    Errors of `parse_cann` and similar functions begin with the name of an option, which is left out.
    """

    def validate(value: object) -> object:
        found = text(value)
        try:
            return parse(found)
        except FaultError:
            raise
        except CanneryError as error:
            raise FaultError(error.what.partition(": ")[2], error.hint) from error
        except Exception as error:  # `packaging` and `re` raise various errors
            raise FaultError(f"{found!r} cannot be read: {error}") from error

    return BeforeValidator(validate)


def _matching(pattern: str, what: str) -> BeforeValidator:
    """Return a validator of texts that fully match `pattern`; `what` describes such a text."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):  # compiled on first use
            raise FaultError(f"{value!r} is not {what}")
        return value

    return parsed(check)


def _requirement(value: str) -> str:
    # A direct reference (`name @ URL`) cannot be locked, because it is not in an index. It may have a password, so the
    # message does not show it.
    name, at, _ = value.partition("@")
    if at and not re.search(r"[;'\"]", name):
        known = name.strip() if NAME.fullmatch(name.strip()) else "something"
        what = f"{known} has an address, and a lock has only packages of an index"
        raise FaultError(
            what, "write its version, like ray>=2.50; an own tree or wheel is given by SRC_<name> or WHEELHOUSE"
        )
    try:
        wanted = Requirement(value)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise FaultError(f"{value!r} is not a requirement: {reason}", "written like ray>=2.50") from error
    if wanted.marker is not None:
        try:
            wanted.marker.evaluate(marker_environment("3.11", Arch.AMD64))
        except Exception as error:
            raise FaultError(f"{value!r} has a condition that cannot be judged: {error}") from error
    return _countable(wanted.specifier, value)


def _exact(value: str) -> str:
    name, equals, number = value.partition("==")
    if not equals or not NAME.fullmatch(name.strip()) or not is_version(number.strip()):
        raise FaultError(f"{value!r} is not NAME==VERSION")
    return _short(value)


def specifier(value: str) -> str:
    """Return `value` if it is a range of versions. Raises `FaultError` otherwise."""
    try:
        found = SpecifierSet(value)
    except InvalidSpecifier as error:
        raise FaultError(f"{value!r} is not a range of versions, like >=3.10,<3.12") from error
    return _countable(found, value)


def _countable(found: SpecifierSet, value: str) -> str:
    """Return `value`. Raises `FaultError` for a range that `packaging` accepts but a resolver does not."""
    strange = [part.version for part in found if part.operator == "===" and not is_version(part.version)]
    if strange:
        raise FaultError(f"==={strange[0]} names no version", "name a version, with ==")
    _short(str(found))
    return value


def _short(value: str) -> str:
    if LONG_NUMBER.search(value):
        raise FaultError(f"{value!r} has a number that no version has", "numbers of a version have at most 18 digits")
    return value


def version(value: str) -> str:
    """Return `value` if it is a version in normal form, since versions are compared as texts. Raises `FaultError`."""
    if not is_version(value):
        raise FaultError(f"{value!r} is not a version", "written like 2.7.1, 2.7.1.post2 or 0.13.0rc1")
    normal = str(Version(_short(value)))
    if normal != value:
        raise FaultError(f"{value!r} is not how this version is written", f'write "{normal}"')
    return value


def _date(value: str) -> str:
    try:
        found = date.fromisoformat(value).isoformat()
    except ValueError:
        found = ""
    if found != value:
        raise FaultError(f"{value!r} is not a date written like 2026-11-20")
    if not FIRST_DAY <= value <= LAST_DAY:
        raise FaultError(f"{value} is out of range", f"a day from {FIRST_DAY} to {LAST_DAY}")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise FaultError(f"{value!r} is not a regular expression: {error}") from error
    return value


def _check_id(value: str) -> str:
    if not re.fullmatch(r"(static|import|npu|train)\.[A-Za-z0-9_.-]+", value, re.ASCII):
        raise FaultError(f"{value!r} is not a check of the verify script", f"like {NPU_CHECKS[0]} or import.torch")
    for level, known in (("npu", NPU_CHECKS), ("train", TRAIN_CHECKS)):
        if value.startswith(f"{level}.") and value not in known:
            raise FaultError(f"no check {value!r}", did_you_mean(value, known))
    return value


def _chip_name(value: str) -> str:
    if value not in [*Chip]:
        raise FaultError(f"no chip {value!r}", did_you_mean(value, [*Chip]))
    return value


def _index_name(value: str) -> str:
    if value == DEFAULT_INDEX:
        raise FaultError(f"{value!r} is the index of the host's pip settings", "give this one another name")
    if not NAME.fullmatch(value):
        raise FaultError(f"{value!r} is not a name: letters and digits, with . _ or - between them")
    return value


Text = Annotated[str, BeforeValidator(text)]
DateText = Annotated[str, parsed(_date)]
VersionText = Annotated[str, parsed(version)]
RequirementText = Annotated[str, parsed(_requirement)]
SpecifierText = Annotated[str, parsed(specifier)]
# `NAME==VERSION`, as rows of the compatibility table name a release.
ExactText = Annotated[str, parsed(_exact)]
CommitText = Annotated[str, _matching(r"[0-9a-f]{40}", "a full commit: 40 lower-case hex digits")]
Sha256Text = Annotated[str, _matching(r"[0-9a-f]{64}", "a sha256: 64 lower-case hex digits")]
RepositoryText = Annotated[str, _matching(r"(?![.-])[\w.-]+/(?!\.)[\w.-]+", "a repository, like volcengine/verl")]
# The parts `..` and `.` are not allowed.
NO_DOTS = r"(?!\.\.?(?:/|$))"
PART = rf"{NO_DOTS}[\w.-]+"
# The command that gets the path would read a leading - as an option.
RelativeText = Annotated[str, _matching(rf"(?!-){PART}(?:/{PART})*", "a path inside the repository")]
PatternText = Annotated[str, parsed(_pattern)]
CheckId = Annotated[str, parsed(_check_id)]
PythonText = Annotated[str, parsed(parse_python)]
CannText = Annotated[str, parsed(parse_cann)]
OsText = Annotated[str, parsed(parse_os)]
ChipText = Annotated[Chip, parsed(parse_chip)]
ArchText = Annotated[Arch, parsed(parse_arch)]
# A text for one line of a Dockerfile or another file.
LineText = Annotated[str, _matching(r"[^\r\n]+", "one line of text that is not empty")]
# Both are written into an ENV instruction and a shell script, one per line.
EnvName = Annotated[
    str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable (letters, digits, _)")
]
EnvValue = Annotated[str, _matching(r"[^\r\n]*", "one line, which a value of the environment has to be")]
EnvLine = Annotated[str, _matching(r"[A-Za-z_][A-Za-z0-9_]*=[^\r\n]*", "an ENV line, written NAME=value")]
# A size as in Docker: a number with k, m or g (powers of 1024).
SizeText = Annotated[str, _matching(r"[1-9][0-9]{0,11}[kKmMgG]?", "a size: a number, then k, m or g, like 16g")]
Name = Annotated[str, _matching(NAME.pattern, "a name: letters and digits, with . _ or - between them")]
# A chip in images/chips.yaml: only the name that tags have.
ChipName = Annotated[str, parsed(_chip_name)]
# The name of an index is used in settings of the resolver, and in locks.
IndexName = Annotated[str, parsed(_index_name)]
LocalText = Annotated[str, _matching(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", "a local version segment, like cpu")]
ModuleText = Annotated[
    str, _matching(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", "a module or attribute, like torch_npu or verl.protocol")
]
# The paths, packages and names below are used unquoted in command lines, so shell characters are not allowed.
FOLDERS = rf"(?:/{NO_DOTS}[\w.+-]+)+"
PLAIN = "of letters, digits and . _ + -, without `..` or `//`"
PathText = Annotated[str, _matching(FOLDERS, f"an absolute path {PLAIN}")]
# A script that a shell sources, with options, such as `/…/set_env.sh --cxx_abi=${ATB_CXX_ABI:-1}`.
ScriptText = Annotated[
    str,
    _matching(
        rf"{FOLDERS}(?: --[\w-]+=(?:[\w.-]+|\$\{{\w+(?::-[\w.-]*)?\}}))*",
        f"a script's absolute path {PLAIN}; options may follow, like --cxx_abi=${{ATB_CXX_ABI:-1}}",
    ),
]
# The first two numbers of a CANN or driver version.
SeriesText = Annotated[str, _matching(r"\d{1,2}\.\d{1,2}", 'a series: the first two numbers of a version, like "25.3"')]
PciText = Annotated[str, _matching(r"0x[0-9a-f]{4}", 'a PCI device id, written like "0xd802"')]
LinkText = Annotated[str, _matching(rf"/(?:opt|usr/local){FOLDERS}", f"a path below /opt or /usr/local, {PLAIN}")]
DeviceText = Annotated[str, _matching(rf"/dev{FOLDERS}", f"a path below /dev, {PLAIN}")]
MachinePathText = Annotated[
    str, _matching(rf"(?:/{NO_DOTS}(?:[\w.+-]|{{machine}})+)+", f"an absolute path {PLAIN}; it may hold {{machine}}")
]
GlobText = Annotated[
    str, _matching(rf"(?:/{NO_DOTS}[\w.+*?-]+)+", f"a glob of absolute paths {PLAIN}, with * and ? as wildcards")
]
# The name of a file, a program, a Debian suite or a chip.
WordText = Annotated[str, _matching(r"\w[\w.+-]*", "a name, like g++ or libhccl.so")]
# A name that Debian and RPM allow, without a version. apt-get removes a package whose name is followed by -.
PackageText = Annotated[
    str,
    _matching(r"[A-Za-z0-9][A-Za-z0-9._+-]*(?<!-)", "a system package, like libgomp1 or g++, without a version"),
]
ResourceText = Annotated[
    str, _matching(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][\w.-]*", "a resource of Kubernetes, like huawei.com/Ascend910")
]
FullPythonText = Annotated[str, _matching(r"3\.\d{1,2}\.\d{1,2}", 'a full Python version, like "3.11.14"')]
# Keys that other files refer to.
TagText = Annotated[str, _matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", "a tag of an image")]


def once(name: Callable[[Any], str] = str) -> AfterValidator:
    """Return a validator that refuses a list with two items of the same name."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[str] = set()
        for position, word in enumerate(map(name, items)):
            if word in seen:
                raise FaultError(f"{word} is given twice", "remove one of them", (position,))
            seen.add(word)
        return items

    return AfterValidator(check)


def profile_name_fault(name: str) -> str:
    """Return why a profile cannot have this name, or "". It is also the name of the image in engines and registries."""
    if IMAGE_NAME.fullmatch(name) and len(name) <= LONGEST_NAME:
        return ""
    rule = f"lower-case letters and digits, with single . _ or - between them, at most {LONGEST_NAME} characters"
    return f"{name!r} cannot be the name of an image: {rule}{_offer(name)}"


def component_name_fault(name: str) -> str:
    """Return why a component cannot have this name, or "". It is a normalised distribution name."""
    if COMPONENT_NAME.fullmatch(name):
        return ""
    return f"a component's name is lower-case letters and digits, with single - between them{_offer(name)}"


def _offer(name: str) -> str:
    near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_NAME].strip("-")
    return f"; name the file {near}.yaml" if near else ""
