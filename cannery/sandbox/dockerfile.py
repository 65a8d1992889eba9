"""The stages of a Dockerfile that Cannery rendered, as values: what is in templates/, and nothing else of the language.

What a stage is made of is in the Dockerfile alone, which BuildKit reads too. So what is not known here is an error of
the stage that has it, and of that one only when it is wanted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_FROM = re.compile(r"(--platform=\$BUILDPLATFORM )?(\S+) AS (\S+)")
_COPY = re.compile(r"--link --from=(\S+) /out/ /")
_FLAG = re.compile(r"--(\S+?)=(\S+)\s+")
# Quoted as `docker_quote` does it: nothing is expanded.
_VALUE = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\$]|\\.)*)"(?:\s+|$)')
# The keys of a --mount by its type. What comes without `from` is of the rendered folder.
_MOUNTS = {
    "bind": ({"source", "target"}, {"from"}),
    "secret": ({"id"}, set()),
    "tmpfs": ({"target"}, set()),
}


@dataclass(frozen=True)
class Mount:
    """A --mount: type, then its keys; `stage` is `from`."""

    kind: str
    source: str = ""
    target: str = ""
    stage: str = ""
    id: str = ""


@dataclass(frozen=True)
class Step:
    """An instruction: its words in one line, and what it does.

    RUN has a shell `command`, `mounts` and whether there is a `network`; COPY `copied`, the stage whose /out/ it takes;
    WORKDIR `folder`; ENV `env`. One that is not known has none of them.
    """

    text: str
    command: str = ""
    mounts: tuple[Mount, ...] = ()
    network: bool = True
    copied: str = ""
    folder: str = ""
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
        """The stages and images whose files it takes, its base first."""
        mounted = (mount.stage for step in self.steps for mount in step.mounts)
        return (self.base, *filter(None, (*(step.copied for step in self.steps), *mounted)))


def read_stages(text: str) -> dict[str, Stage]:
    """Return the stages of a rendered Dockerfile by name. Raises `UsageError` for a FROM without a name."""
    found: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            match = _FROM.fullmatch(rest)
            if match is None:
                raise _unknown(line)
            stage = Stage(match[3], match[2], bool(match[1]), ())
        elif stage is None:
            raise _unknown(line)
        else:
            stage = Stage(stage.name, stage.base, stage.on_build_host, (*stage.steps, _step(word, rest, line)))
        found[stage.name] = stage
    return found


def wanted_stages(stages: Mapping[str, Stage], target: str, given: Collection[str]) -> tuple[Stage, ...]:
    """Return the stages that `target` is made of, each after those that it needs, itself last.

    `given` are names of those that are there already. Raises `UsageError` for a target that is not there, and for an
    instruction that only BuildKit knows.
    """
    if target not in stages:
        raise UsageError(f"no stage {target}", where="Dockerfile", hint="`build.py render` writes it again")
    order: dict[str, Stage] = {}

    def add(name: str) -> None:
        if name in given or name in order or name not in stages:
            return
        for needed in stages[name].sources:
            add(needed)
        order[name] = stages[name]

    add(target)
    for stage in order.values():
        for name in stage.sources[1:]:
            if name not in order:
                raise _unknown(f"--from={name}")
        for step in stage.steps:
            # Layers are put together in the target alone, and nothing runs on them.
            is_known = step.copied or step.folder if stage.name == target else step.command or step.env
            if not is_known:
                raise _unknown(step.text)
    return tuple(order.values())


def base_names(stages: Mapping[str, Stage], name: str) -> set[str]:
    """Return the names of a stage, of the stage that it begins on, and so on."""
    return {name} | (base_names(stages, stages[name].base) if name in stages else set())


def _unknown(line: str) -> UsageError:
    hint = "`build.py render` writes it again; BuildKit builds one that was changed by hand (`--with bake`)"
    return UsageError(f"only BuildKit knows this instruction: {line[:200]}", where="Dockerfile", hint=hint)


def _instructions(text: str) -> Iterator[str]:
    """Give the instructions, each as one line."""
    parts: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            yield " ".join(parts)
            parts = []


def _step(word: str, rest: str, line: str) -> Step:
    """Return a step; one that is not known has its text alone."""
    copied = _COPY.fullmatch(rest)
    if word == "COPY" and copied:
        return Step(line, copied=copied[1])
    if word == "WORKDIR" and rest.startswith("/"):
        return Step(line, folder=rest)
    if word == "ENV" and not _VALUE.sub("", rest):
        return Step(line, env={name: re.sub(r"\\(.)", r"\1", value) for name, value in _VALUE.findall(rest)})
    if word == "RUN":
        return _run(rest, line)
    return Step(line)


def _run(rest: str, line: str) -> Step:
    mounts: list[Mount] = []
    network = True
    while flag := _FLAG.match(rest):
        rest = rest[flag.end() :]
        if flag[1] == "network" and flag[2] == "none":
            network = False
        elif flag[1] == "mount" and (mount := _mount(flag[2])) is not None:
            mounts.append(mount)
        else:
            return Step(line)
    return Step(line, command=rest, mounts=tuple(mounts), network=network)


def _mount(text: str) -> Mount | None:
    keys = dict(part.partition("=")[::2] for part in text.split(","))
    kind = keys.pop("type", "")
    needed, more = _MOUNTS.get(kind, ({""}, set()))
    if not needed <= keys.keys() <= needed | more:
        return None
    return Mount(kind, keys.get("source", ""), keys.get("target", ""), keys.get("from", ""), keys.get("id", ""))
