"""The base image that was found, and its differences from the record in images/bases/."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.compat.subject import Finding, in_order
from cannery.recipe.environment import expand_env, python_home
from cannery.vocab import BaseKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.engine.oci import ImageConfig
    from cannery.recipe.recipe import Recipe

_PYTHON = re.compile(r"(/usr/local/python[0-9][0-9.]*)/bin")
OF_THE_IMAGE = "set CANN, CHIP, OS and PYTHON to those of the image"
# Base images of distributions name themselves in these two labels, as /etc/os-release does.
_OS_LABELS = ("org.opencontainers.image.ref.name", "org.opencontainers.image.version")


@dataclass(frozen=True)
class BaseImage:
    """A base that was found: its reference without digest, the digest of its index or manifest, its configuration.

    `source` is the mirror that this machine pulls it from, as a reference without digest; "" without a mirror.
    `digest` is None for an image of the engine that is from no registry. If `config` is None, `unread` is the reason.
    `on_engine` means that the engine already has it.
    """

    reference: str
    digest: str | None
    config: ImageConfig | None
    on_engine: bool = False
    unread: str = ""
    source: str = ""


def compare(recipe: Recipe, base: BaseImage) -> tuple[Finding, ...]:
    """Return how the base differs from the record for the recipe's target.

    Another CPU architecture, or another folder of the interpreter that runs the stages, is an error. Any other
    difference is a warning: tags may be pushed again, and a user's own image may differ.
    """
    if base.config is None:
        what = f"the configuration of {base.reference} could not be read: {base.unread}"
        return (Finding(Severity.WARNING, "base.unread", what, "it is not compared with images/bases"),)
    return in_order(_config_findings(recipe, base.reference, base.config))


def _config_findings(recipe: Recipe, reference: str, config: ImageConfig) -> Iterator[Finding]:
    arch, home = recipe.target.arch, python_home(recipe.base.tag)
    if config.architecture != arch:
        what = f"{reference} is for {config.architecture}, the target is {arch}"
        yield Finding(Severity.ERROR, "base.arch", what, fix=f"ARCH={config.architecture}, or another base")
    homes = tuple(dict.fromkeys(_PYTHON.findall(config.env.get("PATH", ""))))
    if home not in homes:
        instead = f"it has {' and '.join(homes)}" if homes else "its PATH names none"
        what = f"{reference} has no Python in {home}: {instead}"
        why = "the stages run that interpreter, and the environment names its folder"
        file = f"images/bases/{recipe.base.line.cann}.yaml"
        fix = f"BASE=<an older digest of the image>, or record what it has in {file}"
        is_custom = recipe.base.kind is BaseKind.CUSTOM
        yield Finding(Severity.ERROR, "base.python", what, why, OF_THE_IMAGE if is_custom else fix)
    expected = expand_env(recipe.base.line, recipe.target, recipe.base.tag)
    if "ASCEND_TOOLKIT_HOME" not in config.env:
        what = f"{reference} sets no ASCEND_TOOLKIT_HOME: is it a CANN image?"
        yield _warning(recipe, "base.toolkit", what)
        return
    yield from _env_findings(recipe, reference, config.env, expected)
    name, version = (config.labels.get(label, "").lower() for label in _OS_LABELS)
    if name in {"ubuntu", "openeuler", "debian"} and version and recipe.target.os != f"{name}{version}":
        what = f"the labels of {reference} name {name} {version}, the target is {recipe.target.os}"
        yield _warning(recipe, "base.os", what, "OS decides which package manager is used")


def _env_findings(
    recipe: Recipe, reference: str, env: Mapping[str, str], expected: Mapping[str, str]
) -> Iterator[Finding]:
    homes = {
        "ASCEND_TOOLKIT_HOME": ("base.toolkit", "CANN's home"),
        "ATB_HOME_PATH": ("base.atb", "ATB's folder, which names its C++ ABI,"),
    }
    for name, (code, words) in homes.items():
        if name in expected and env.get(name) != expected[name]:
            what = f"{words} is {env.get(name, 'not set')} in {reference}, recorded is {expected[name]}"
            yield _warning(recipe, code, what)
    others = [name for name, value in expected.items() if name not in homes and env.get(name) != value]
    # Other paths depend on these two, so they are not reported again.
    if others and all(env.get(name) == expected.get(name) for name in homes):
        shown = ", ".join(others[:6]) + (f" and {len(others) - 6} more" if len(others) > 6 else "")
        yield _warning(recipe, "base.env", f"the environment of {reference} differs from the recorded one in {shown}")


def _warning(recipe: Recipe, code: str, what: str, why: str = "") -> Finding:
    if recipe.base.kind is BaseKind.CUSTOM:
        return Finding(Severity.WARNING, code, what, why or "the image gets the target's environment", OF_THE_IMAGE)
    why = "tags are rewritten in place: the pushed image is not the one that was recorded"
    fix = f"compare with images/bases/{recipe.base.line.cann}.yaml"
    return Finding(Severity.WARNING, code, what, why, fix)
