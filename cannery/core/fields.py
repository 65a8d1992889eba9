"""Scalar fields of the catalog's models: each is a text that a function has checked, and says in words what is wrong.

YAML reads an unquoted `3.10` as the number 3.1, so a number where a text belongs is an error that says to quote it.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator

from cannery.core.target import parse_cann, parse_os, parse_python
from cannery.core.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_WANTED = "a text is wanted here"
# The verify script's checks that need an NPU: the only ones that are skipped where there is none.
NPU_CHECKS = ("npu.nodes", "npu.driver", "npu.smi", "npu.visible", "npu.count", "npu.tensor")
LONGEST_NAME = 60
IMAGE_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
COMPONENT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# A version of any of the kinds that stand in tables: 2.7.1.post2, 8.3.rc1, 25.0.rc1.1
VERSION_LIKE = re.compile(r"[0-9][0-9A-Za-z.+]*")
# PEP 508's names, of distributions and of extras.
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def yaml_kind(value: object) -> str | None:
    """Return what an unquoted scalar of YAML became, in words, where that is no text; else None."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    return "a date" if isinstance(value, date) else None


def text(value: object) -> object:
    """Return `value` unless YAML made something else of a scalar; raise `ValueError` that says to quote it."""
    kind = yaml_kind(value)
    if kind is not None:
        raise ValueError(f'unquoted {value} is {kind} to YAML; quote it: "{value}"')
    return value


def parsed(parse: Callable[[str, str], object]) -> BeforeValidator:
    """Return a validator that hands a text to `parse` (text, option), and tells its error without the option."""

    def validate(value: object) -> object:
        found = text(value)
        if not isinstance(found, str):
            raise ValueError(TEXT_WANTED)  # noqa: TRY004 - pydantic collects ValueError
        try:
            return parse(found, "value")
        except Exception as error:
            raise ValueError(str(error).removeprefix("value: ").replace("\n  → ", "; ")) from error

    return BeforeValidator(validate)


def _matching(pattern: str, what: str) -> BeforeValidator:
    """Return a validator of texts that `pattern` matches whole; `what` says what such a text is."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str, _option: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return parsed(check)


def _requirement(value: str, _option: str) -> str:
    try:
        Requirement(value)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{value!r} is not a requirement (written like ray>=2.50): {reason}") from error
    return value


def _exact(value: str, _option: str) -> str:
    fault = f"{value!r} is not NAME==VERSION"
    try:
        wanted = Requirement(value)
    except InvalidRequirement as error:
        raise ValueError(fault) from error
    if wanted.marker or wanted.extras or [part.operator for part in wanted.specifier] != ["=="]:
        raise ValueError(fault)
    return value


def _specifier(value: str, _option: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier as error:
        raise ValueError(f"{value!r} is not a range of versions, like >=3.10,<3.12") from error
    return value


def _fit(value: str, option: str) -> str:
    return value if VERSION_LIKE.fullmatch(value) else _specifier(value, option)


def _version(value: str, _option: str) -> str:
    try:
        Version(value)
    except InvalidVersion as error:
        raise ValueError(f"{value!r} is not a version") from error
    return value


def _date(value: str, _option: str) -> str:
    try:
        found = date.fromisoformat(value).isoformat()
    except ValueError:
        found = ""
    if found != value:
        raise ValueError(f"{value!r} is not a date written like 2026-11-20")
    return value


def _pattern(value: str, _option: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    return value


def _check_id(value: str, _option: str) -> str:
    if not re.fullmatch(r"(static|import|npu)\.[A-Za-z0-9_.-]+", value, re.ASCII):
        raise ValueError(f"{value!r} is not a check of the verify script, like {NPU_CHECKS[0]} or import.torch")
    if value.startswith("npu.") and value not in NPU_CHECKS:
        raise ValueError(f"no check {value!r}; {did_you_mean(value, NPU_CHECKS)}")
    return value


Text = Annotated[str, BeforeValidator(text)]
DateText = Annotated[str, parsed(_date)]
VersionText = Annotated[str, parsed(_version)]
RequirementText = Annotated[str, parsed(_requirement)]
SpecifierText = Annotated[str, parsed(_specifier)]
# `NAME==VERSION`, and what stands beside it in a row of the compatibility table: a version or a range.
ExactText = Annotated[str, parsed(_exact)]
FitText = Annotated[str, parsed(_fit)]
CommitText = Annotated[str, _matching(r"[0-9a-f]{40}", "a full commit: 40 lower-case hex digits")]
RepositoryText = Annotated[str, _matching(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", "a repository, like volcengine/verl")]
RelativeText = Annotated[str, _matching(r"[\w.-]+(?:/[\w.-]+)*", "a path inside the repository")]
PatternText = Annotated[str, parsed(_pattern)]
CheckId = Annotated[str, parsed(_check_id)]
PythonText = Annotated[str, parsed(parse_python)]
CannText = Annotated[str, parsed(parse_cann)]
OsText = Annotated[str, parsed(parse_os)]
# Both go into an ENV instruction and a shell script, a line each.
EnvName = Annotated[
    str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable (letters, digits, _)")
]
EnvValue = Annotated[str, _matching(r"[^\r\n]*", "one line, which a value of the environment has to be")]
# As docker writes sizes: a number, and k, m or g (1024 based).
SizeText = Annotated[str, _matching(r"[0-9]+[kKmMgG]?", "a size: a number, then k, m or g, like 16g")]
Name = Annotated[str, _matching(NAME.pattern, "a name: letters and digits, with . _ or - between them")]
LocalText = Annotated[str, _matching(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", "a local version segment, like cpu")]
ModuleText = Annotated[
    str, _matching(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", "a module or attribute, like torch_npu or verl.protocol")
]
PathText = Annotated[str, _matching(r"/[^\r\n]*", "an absolute path")]


def profile_name_fault(name: str) -> str:
    """Say why a profile's file may not have this name (it is the image's name in an engine and registries); or ""."""
    if IMAGE_NAME.fullmatch(name) and len(name) <= LONGEST_NAME:
        return ""
    rule = f"lower-case letters and digits, with single . _ or - between them, at most {LONGEST_NAME} characters"
    return f"{name!r} cannot be the name of an image: {rule}{_offer(name)}"


def component_name_fault(name: str) -> str:
    """Say why a component's file may not have this name (a normalised distribution name); or ""."""
    if COMPONENT_NAME.fullmatch(name):
        return ""
    return f"a component's name is lower-case letters and digits, with single - between them{_offer(name)}"


def _offer(name: str) -> str:
    near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_NAME].strip("-")
    return f"; name the file {near}.yaml" if near else ""
