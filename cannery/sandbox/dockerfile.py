"""Parses the Dockerfile that Cannery renders into stages. It reads what templates/ uses, not the whole language.

The Dockerfile alone describes the stages, and BuildKit reads the same file. It is rendered again before each run, so
nobody else has changed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.render.lint import instructions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cannery.render.lint import Instruction

_FROM = re.compile(r"(--platform=\$BUILDPLATFORM )?(\S+) AS (\S+)")
_COPY = re.compile(r"--link --from=(\S+) /out/ /")
_FLAG = re.compile(r"--(network|mount)=(\S+)\s+")
# Quoted as `docker_quote` does it: nothing is expanded.
_VALUE = re.compile(r'([A-Za-z_]\w*)=(?:"((?:[^"\\$]|\\.)*)"|([^"\\$\s]+))(?:\s+|$)')
# Instructions about containers: no step needs them.
_OF_CONTAINERS = {"USER", "LABEL", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class StepMount:
    """A --mount option. `stage` is its `from`; without one, `source` is in the rendered folder."""

    kind: str
    source: str = ""
    target: str = ""
    stage: str = ""
    id: str = ""


@dataclass(frozen=True)
class Step:
    """An instruction: its words in one line, and what it does.

    RUN has a shell `command`, `mounts`, and `network` if it may use one. COPY has `copied`, the stage whose /out/ is
    copied. ENV has `env`. WORKDIR has nothing, since its folder exists already.
    """

    text: str
    command: str = ""
    mounts: tuple[StepMount, ...] = ()
    network: bool = True
    copied: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A stage: its name, the image or stage that it begins on, and its steps.

    `on_build_host` is whether it runs on the platform of the build host, not on the target's.
    """

    name: str
    base: str
    on_build_host: bool
    steps: tuple[Step, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The stages and images that it reads files from, its base first."""
        mounted = (mount.stage for step in self.steps for mount in step.mounts)
        return (self.base, *filter(None, (*(step.copied for step in self.steps), *mounted)))


def read_stages(text: str) -> dict[str, Stage]:
    """Return the stages of a rendered Dockerfile by name. Raises `ValueError` for syntax that no template uses."""
    found: list[tuple[re.Match[str], list[Step]]] = []
    for one in instructions(text):
        if one.keyword != "FROM":
            found[-1][1].extend(_steps(one))
        elif match := _FROM.fullmatch(one.rest):
            found.append((match, []))
        else:
            raise ValueError(f"a stage without a name: FROM {one.rest}")
    return {match[3]: Stage(match[3], match[2], bool(match[1]), tuple(steps)) for match, steps in found}


def wanted_stages(stages: Mapping[str, Stage], target: str, given: Collection[str]) -> tuple[Stage, ...]:
    """Return the stages that `target` needs, each after the ones that it needs itself; `target` is the last.

    `given` are the names of stages that exist already.
    """
    order: dict[str, Stage] = {}

    def add(name: str) -> None:
        if name in given or name in order or name not in stages:
            return
        for needed in stages[name].sources:
            add(needed)
        order[name] = stages[name]

    add(target)
    return tuple(order.values())


def base_names(stages: Mapping[str, Stage], name: str) -> set[str]:
    """Return the names of a stage, of the stage that it begins on, and so on."""
    return {name} | (base_names(stages, stages[name].base) if name in stages else set())


def _steps(one: Instruction) -> Iterator[Step]:
    """Yield the step of an instruction; instructions for containers have none."""
    line = f"{one.keyword} {one.rest}"
    if one.keyword == "RUN":
        yield _run(one.rest, line)
    elif one.keyword == "COPY" and (copied := _COPY.fullmatch(one.rest)):
        yield Step(line, copied=copied[1])
    elif one.keyword == "ENV" and not _VALUE.sub("", one.rest):
        values = {name: re.sub(r"\\(.)", r"\1", value) or plain for name, value, plain in _VALUE.findall(one.rest)}
        yield Step(line, env=values)
    elif one.keyword == "WORKDIR":
        yield Step(line)
    elif one.keyword not in _OF_CONTAINERS:
        raise ValueError(f"no template has this instruction: {line}")


def _run(rest: str, line: str) -> Step:
    mounts: list[StepMount] = []
    network = True
    while flag := _FLAG.match(rest):
        rest = rest[flag.end() :]
        if flag[1] == "network":
            network = flag[2] != "none"
            continue
        keys = dict(part.partition("=")[::2] for part in flag[2].split(","))
        source, target = keys.get("source", ""), keys.get("target", "")
        mounts.append(StepMount(keys["type"], source, target, keys.get("from", ""), keys.get("id", "")))
    return Step(line, command=rest, mounts=tuple(mounts), network=network)
