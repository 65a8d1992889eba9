"""Rendered Dockerfiles as stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from cannery.errors import UsageError
from cannery.recipe.environment import docker_quote
from cannery.sandbox.dockerfile import Mount, Stage, Step, base_names, read_stages, wanted_stages

GOLDENS = sorted((Path(__file__).parents[1] / "golden/files").glob("*/Dockerfile"))
TEXT = r"""
# A comment, and \
FROM debian:12 AS system
RUN --mount=type=tmpfs,target=/run \
    --mount=type=secret,id=ca \
    # between the lines of an instruction
    --mount=type=bind,source=tools/x.sh,target=/run/cannery/x.sh \
    sh /run/cannery/x.sh --mount=no

FROM --platform=$BUILDPLATFORM debian:12 AS made
ENV \
    A="a b" \
    B="\"q\" \\ \$HOME"
RUN --network=none make

FROM made AS group
RUN --network=none --mount=type=bind,from=made,source=/out,target=/run/made cp

FROM system AS foundation
COPY --link --from=group /out/ /
WORKDIR /workspace

FROM foundation AS image
USER 1000
"""
STAGES = read_stages(TEXT)


def test_each_instruction_is_read_as_what_it_does() -> None:
    assert STAGES["system"].steps[0].mounts == (
        Mount("tmpfs", target="/run"),
        Mount("secret", id="ca"),
        Mount("bind", source="tools/x.sh", target="/run/cannery/x.sh"),
    )
    assert STAGES["system"].steps[0].command == "sh /run/cannery/x.sh --mount=no"
    assert STAGES["system"].steps[0].network
    assert (STAGES["made"].base, STAGES["made"].on_build_host) == ("debian:12", True)
    environment, run = STAGES["made"].steps
    assert environment.env == {"A": "a b", "B": '"q" \\ $HOME'}
    assert run == Step("RUN --network=none make", command="make", network=False)
    assert STAGES["group"].steps[0].mounts == (Mount("bind", "/out", "/run/made", "made"),)
    assert STAGES["foundation"].steps == (
        Step("COPY --link --from=group /out/ /", copied="group"),
        Step("WORKDIR /workspace", folder="/workspace"),
    )


@pytest.mark.parametrize("value", ["", "a b", 'a"b', "a\\b", "$HOME", "\\$x\\", "é '"])
def test_a_value_is_what_was_rendered(value: str) -> None:
    (step,) = read_stages(f"FROM a AS b\nENV \\\n    A={docker_quote(value)} \\\n    B={docker_quote('x')}\n")[
        "b"
    ].steps
    assert step.env == {"A": value, "B": "x"}


def names(stages: tuple[Stage, ...]) -> list[str]:
    return [stage.name for stage in stages]


def test_stages_come_after_what_they_need_and_no_others() -> None:
    assert names(wanted_stages(STAGES, "foundation", ())) == ["system", "made", "group", "foundation"]
    assert names(wanted_stages(STAGES, "foundation", {"system"})) == ["made", "group", "foundation"]
    assert base_names(STAGES, "foundation") == {"foundation", "system", "debian:12"}


@pytest.mark.parametrize(
    "line",
    [
        "USER 1000",
        "COPY --from=a /out/ /",
        "COPY --link --from=a /out /",
        "RUN --security=insecure x",
        "RUN --mount=type=cache,target=/x x",
        "RUN --mount=type=bind,target=/x x",
        "RUN --mount=type=secret,id=ca,required=true x",
        "RUN --network=host x",
        'ENV A="$HOME"',
        "ENV A=b",
        "ENV A b",
        "WORKDIR here",
        "HEALTHCHECK NONE",
    ],
)
def test_an_instruction_that_only_buildkit_knows_is_refused_where_it_is_wanted(line: str) -> None:
    stages = read_stages(f"FROM base AS a\nRUN x\nFROM a AS b\n{line}\nRUN y\nFROM a AS c\nRUN x\nFROM a AS d\n")
    with pytest.raises(UsageError, match="only BuildKit") as caught:
        wanted_stages(stages, "b", ())
    assert line in caught.value.what
    assert names(wanted_stages(stages, "d", ())) == ["a", "d"]


@pytest.mark.parametrize("name", ["debian:12", "given"])
def test_files_are_taken_of_stages_that_are_made_alone(name: str) -> None:
    text = f"FROM base AS given\nRUN x\nFROM given AS a\nRUN --mount=type=bind,from={name},source=/out,target=/x y\n"
    for more in ("FROM a AS b\nCOPY --link --from=a /out/ /\n", f"FROM a AS b\nCOPY --link --from={name} /out/ /\n"):
        with pytest.raises(UsageError, match=f"--from={name}"):
            wanted_stages(read_stages(text + more), "b", {"given"})


def test_layers_are_put_together_in_the_target_alone() -> None:
    text = "FROM base AS a\nRUN x\nFROM base AS b\nCOPY --link --from=a /out/ /\nFROM b AS c\nRUN x\nFROM c AS d\n"
    with pytest.raises(UsageError, match="COPY"):
        wanted_stages(read_stages(text), "d", ())
    assert names(wanted_stages(read_stages(text), "b", ())) == ["a", "b"]


@pytest.mark.parametrize(
    "text", ["RUN x\n", "FROM a\n", "FROM --platform=linux/arm64 a AS b\n", "ARG x\nFROM a AS b\n"]
)
def test_what_is_no_stage_with_a_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="only BuildKit"):
        read_stages(text)


def test_a_target_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no stage sources"):
        wanted_stages(STAGES, "sources", ())


@pytest.mark.parametrize("path", GOLDENS, ids=[path.parent.name for path in GOLDENS])
def test_every_rendered_dockerfile_is_known(path: Path) -> None:
    stages = read_stages(path.read_text(encoding="utf-8"))
    found = names(wanted_stages(stages, "foundation", ()))
    assert found[0] == "system"
    assert found[-1] == "foundation"
    if "sources" in stages:
        found = names(wanted_stages(stages, "sources", {"wheels"}))
        assert "wheels" not in found
        assert found.index("native") < found.index("made-kernels") < found.index("source-kernels")
