"""Rendered Dockerfiles as stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from cannery.recipe.environment import docker_quote
from cannery.sandbox.dockerfile import Stage, Step, StepMount, base_names, read_stages, wanted_stages

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
UNKNOWN = ("COPY --from=a /out/ /", "COPY --link --from=a /out /", 'ENV A="$HOME"', "ADD x /x")


def test_each_instruction_is_read_as_what_it_does() -> None:
    assert STAGES["system"].steps[0].mounts == (
        StepMount("tmpfs", target="/run"),
        StepMount("secret", id="ca"),
        StepMount("bind", source="tools/x.sh", target="/run/cannery/x.sh"),
    )
    assert STAGES["system"].steps[0].command == "sh /run/cannery/x.sh --mount=no"
    assert STAGES["system"].steps[0].network
    assert (STAGES["made"].base, STAGES["made"].on_build_host) == ("debian:12", True)
    environment, run = STAGES["made"].steps
    assert environment.env == {"A": "a b", "B": '"q" \\ $HOME'}
    assert run == Step("RUN --network=none make", command="make", network=False)
    assert STAGES["group"].steps[0].mounts == (StepMount("bind", "/out", "/run/made", "made"),)
    assert STAGES["foundation"].steps == (
        Step("COPY --link --from=group /out/ /", copied="group"),
        Step("WORKDIR /workspace"),
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
    "text", ["FROM a\n", "FROM --platform=linux/arm64 a AS b\n", *(f"FROM a AS b\n{line}\n" for line in UNKNOWN)]
)
def test_what_no_template_has_is_no_rendered_dockerfile(text: str) -> None:
    with pytest.raises(ValueError, match=r"a stage without a name|no template has"):
        read_stages(text)


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
