"""The reducer on streams recorded from buildx 0.13.1 with Docker 26.1.5 (groups, disk: containerd image store)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from factories import plan
from hypothesis import given
from hypothesis import strategies as st

from cannery.build.failure import failure, registry_of
from cannery.build.progress import BuildState, Part, Status, Step, apply, close, data, items, parse_name, read_line
from cannery.build.stages import Brought, Stage, brought, duration, seconds_left, stages, words_for
from cannery.errors import BuildFailedError, CanneryError, NetworkError, UnableError
from cannery.plan import Layer, LayerKind
from cannery.util.addresses import redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.build.progress import Item

DATA = Path(__file__).parent / "data"
LOG = "out/log/build.log"


def events(text: str) -> list[Item | str]:
    pending = ""
    found: list[Item | str] = []
    for line in text.splitlines():
        pending, new = read_line(pending, line)
        found += new
    return found


def recording(name: str) -> str:
    return (DATA / f"rawjson-{name}.txt").read_text()


def reduce(text: str, redact: Callable[[str], str] = str) -> BuildState:
    state = BuildState()
    for event in events(text):
        state = apply(state, event, redact)
    return close(state, redact)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def vertex(
    digest: str = "a",
    name: str = "[s 1/1] RUN x",
    *,
    started: float | None = None,
    completed: float | None = None,
    error: str = "",
) -> Item:
    times = {"started": started, "completed": completed}
    found = {key: at(time) for key, time in times.items() if time is not None}
    return {"vertexes": [{"digest": digest, "name": name, "error": error, **found}]}


def printed(text: bytes, stream: int = 1, digest: str = "a") -> Item:
    return {"logs": [{"vertex": digest, "stream": stream, "data": base64.b64encode(text).decode()}]}


def first(state: BuildState) -> Step:
    return next(iter(state.steps.values()))


def by_label(state: BuildState) -> dict[str, Stage]:
    return {stage.label: stage for stage in stages(state)}


# --- the stream ---------------------------------------------------------------------------------------------------


def test_indented_and_one_line_objects_read_alike() -> None:
    text = recording("ok")
    decoder, position, objects = json.JSONDecoder(), 0, []
    while (position := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, position)
        objects.append(json.dumps(value))
    assert len(objects) == 53
    assert events("\n".join(objects)) == events(text)


def test_text_between_objects_is_kept_and_an_object_cut_off_is_dropped() -> None:
    found = events('{\n  "vertexes": [\nERROR: killed\n{"vertexes":[{"digest":"a","name":"n"}]}\n{\n  "logs": [')
    assert found == ["ERROR: killed", {"vertexes": [{"digest": "a", "name": "n"}]}]


def test_odd_json_is_text_and_odd_values_read_as_absent() -> None:
    assert events("{nonsense}") == ["{nonsense}"]
    odd = '{"vertexes":[3,{"digest":4,"started":"soon","new":1}],"logs":[{"data":"%%%"}],"statuses":"no","x":[]}'
    state = reduce(odd)
    assert {key: step.parts for key, step in state.steps.items()} == {"": {"": Part()}}
    assert (state.started, first(state).tail, first(state).bytes) == (None, (), 0)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=20)))
def test_no_line_raises(lines: list[str]) -> None:
    pending = ""
    for line in lines:
        pending, _found = read_line(pending, line)


@pytest.mark.parametrize("keep", range(0, 21000, 777))
def test_stream_cut_anywhere_gives_a_state(keep: int) -> None:
    state = reduce(recording("fail")[:keep])
    assert state.failed is None or state.failed.name.stage == "group-bad"


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stage", "instruction", "is_step"),
    [
        ("[group-ray 2/3] RUN  a\n b", "group-ray", "RUN a b", True),
        ("[2/3] COPY . /", "image", "COPY . /", True),
        ("[linux/amd64->arm64 tools 1/2] FROM x", "tools", "FROM x", True),
        ("[image linux/arm64 stage-1 1/2] RUN x", "stage-1", "RUN x", True),
        ("[image] exporting to image", "export", "exporting to image", False),
        ("[dev internal] load build context", "context", "load build context", False),
        ("[internal] load metadata for q.io/a:1", "base image", "load metadata for q.io/a:1", False),
        ("[auth] a/b:pull token for q.io", "base image", "a/b:pull token for q.io", False),
        ("importing cache manifest from q.io/c", "cache", "importing cache manifest from q.io/c", False),
        ("", "setup", "", False),
    ],
)
def test_names(text: str, stage: str, instruction: str, is_step: bool) -> None:
    name = parse_name(text)
    assert (name.stage, name.instruction, name.is_step) == (stage, instruction, is_step)


# --- recordings ---------------------------------------------------------------------------------------------------


def test_a_build() -> None:
    state = reduce(recording("ok"))
    found = by_label(state)
    assert state.counts == (0, 6, 6)
    assert {stage.status for stage in found.values()} == {Status.DONE}
    assert found["group-torch"].seconds == pytest.approx(1.024, abs=0.001)
    assert found["context"].bytes == 8_002_023
    assert state.seconds == pytest.approx(1.358, abs=0.001)
    assert state.other == ()


def test_output_of_two_streams_is_joined_to_lines() -> None:
    state = reduce(recording("ok"))
    torch = next(step for step in state.steps.values() if step.name.stage == "group-torch")
    assert torch.tail == ("start", "done 1", "done 2", "done 3", "part 1 part 2 part 3")


def test_a_cached_build_counts_all_steps_as_cached() -> None:
    state = reduce(recording("cached"))
    assert state.counts == (6, 6, 6)
    assert by_label(state)["group-ray"].status is Status.CACHED


def test_link_copies_of_the_containerd_store_are_one_step_each() -> None:
    state = reduce(recording("groups"))
    assert state.counts == (0, 6, 6)
    final = [step for step in state.steps.values() if step.name.stage == "final"]
    assert min(step.name.instruction for step in final).startswith("COPY --link")
    assert {len(step.parts) for step in final} == {1, 2}
    assert {step.status for step in state.steps.values()} == {Status.DONE}


def test_while_it_runs() -> None:
    state = BuildState()
    for event in events(recording("ok")):
        state = apply(state, event)
        if by_label(state).get("group-ray") and by_label(state)["group-ray"].status is Status.RUNNING:
            break
    found = by_label(state)
    assert found["final"].status is Status.WAITING
    assert found["tools"].status is Status.DONE
    assert found["group-torch"].status is Status.RUNNING


def test_failure_names_stage_instruction_code_and_last_lines() -> None:
    state = reduce(recording("fail"))
    step = state.failed
    assert step is not None
    assert step.name.stage == "group-bad"
    assert len(step.tail) == 50
    assert step.tail[0] == "line 32"
    assert step.tail[-1] == "no such wheel"
    assert by_label(state)["group-slow"].status is Status.CANCELLED
    error = failure(state, LOG)
    assert isinstance(error, BuildFailedError)
    assert error.where == "stage group-bad"
    for part in ("exit code 3", "RUN --network=none echo fine", "| line 80", "| no such wheel", "out/log/build.log"):
        assert part in error.what
    assert "| line 31\n" not in error.what
    assert "continue at this step" in error.hint


def test_a_cancelled_build_has_no_step_of_its_own_that_failed() -> None:
    assert reduce(recording("cancel")).failed is None


def test_a_registry_that_is_not_there() -> None:
    error = failure(reduce(recording("noname")), LOG)
    assert isinstance(error, NetworkError)
    assert error.where == "registry quay.invalid"
    assert "quay.invalid/ascend/cann:8.5" in error.what


def test_a_full_disk() -> None:
    error = failure(reduce(recording("disk")), LOG)
    assert isinstance(error, UnableError)
    assert "no space left" in error.what
    assert LOG in error.hint


# --- written by hand: what could not be recorded here ----------------------------------------------------------------


def base_error(text: str, ref: str = "q.io/a/b:1") -> CanneryError:
    name = f"[internal] load metadata for {ref}"
    return failure(apply(BuildState(), vertex("m", name, started=1.0, completed=2.0, error=text)), LOG)


@pytest.mark.parametrize(
    "text",
    [
        "unexpected status from HEAD request to https://q.io/v2/a/b/manifests/1: 401 Unauthorized",
        "q.io/a/b:1: not found",
        'failed to do request: Head "https://q.io/v2/": tls: failed to verify certificate: x509: unknown',
        'failed to do request: Head "https://q.io/v2/": dial tcp 192.0.2.1:443: i/o timeout',
        "no match for platform in manifest: not found",
        "429 Too Many Requests - toomanyrequests: limit",
    ],
)
def test_a_registry_is_named_with_its_answer(text: str) -> None:
    error = base_error(text)
    assert isinstance(error, NetworkError)
    assert error.where == "registry q.io"
    assert "q.io/a/b:1" in error.what
    assert text in error.what


def test_hub_has_no_host_in_its_references() -> None:
    assert base_error("pull access denied", "ubuntu:22.04").where == "registry docker.io"
    assert [registry_of(r) for r in ("a/b", "localhost/a", "h:5000/a", "a.b/c")] == [
        "docker.io",
        "localhost",
        "h:5000",
        "a.b",
    ]


def test_words_of_the_network_in_a_step_are_the_steps_failure() -> None:
    error = 'process "/bin/sh -c curl https://x: dial tcp: i/o timeout" did not complete successfully: exit code: 6'
    state = apply(BuildState(), vertex(started=1.0, completed=2.0, error=error))
    assert isinstance(failure(state, LOG), BuildFailedError)


SYSTEM = "[image 2/2] RUN --mount=type=secret,id=ca sh /run/cannery/system.sh apt 7 libjemalloc2"


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        (SYSTEM, "W: Failed to fetch http://h/InRelease  Temporary failure resolving 'h'", NetworkError),
        (SYSTEM, "E: Failed to fetch http://h/a.deb  Could not connect to h:80 (192.0.2.1), timed out", NetworkError),
        (SYSTEM.replace("apt", "dnf"), "Curl error (6): Couldn't resolve host name for https://h/r", NetworkError),
        (SYSTEM, "E: Unable to locate package libjemalloc3", BuildFailedError),
        ("[source-a 2/2] RUN make", "ssh: Could not resolve hostname h", BuildFailedError),
    ],
)
def test_a_mirror_that_is_away_is_the_network_s_failure(name: str, line: str, kind: type[Exception]) -> None:
    state = apply(BuildState(), vertex(name=name, started=1.0))
    state = apply(state, printed(f"{line}\nlast words\n".encode()))
    end = 'process "/bin/sh -c x" did not complete successfully: exit code: 100'
    error = failure(apply(state, vertex(name=name, started=1.0, completed=2.0, error=end)), LOG)
    assert type(error) is kind
    assert f"  | {line}\n" in error.what
    assert "exit code 100" in error.what
    assert ("DNS" in (error.hint or "")) is (kind is NetworkError)


@pytest.mark.parametrize(
    ("last", "kind", "word"),
    [
        (b"dd: /big: No space left on device\n", UnableError, "no space"),
        (b"exec /bin/sh: exec format error\n", UnableError, "architecture"),
        (b"error: no such file\n", BuildFailedError, "exit code 1"),
    ],
)
def test_what_a_step_prints_last_can_say_more_than_its_status(last: bytes, kind: type[Exception], word: str) -> None:
    state = apply(BuildState(), vertex(started=1.0))
    state = apply(state, printed(last))
    end = 'process "/bin/sh -c x" did not complete successfully: exit code: 1'
    error = failure(apply(state, vertex(started=1.0, completed=2.0, error=end)), LOG)
    assert type(error) is kind
    assert word in error.what


@pytest.mark.parametrize(
    ("line", "kind", "word"),
    [
        ("ERROR: Cannot connect to the Docker daemon at unix:///x. Is it running?", UnableError, "connect"),
        ("ERROR: failed to receive status: rpc error: code = Unavailable desc = EOF", UnableError, "went away"),
        ("ERROR: failed to find target nosuch", BuildFailedError, "nosuch"),
        ("ERROR: failed to solve: dockerfile parse error on line 2: unknown instruction: RNU", BuildFailedError, "RNU"),
        ("Segmentation fault", BuildFailedError, "Segmentation"),
    ],
)
def test_errors_before_any_step(line: str, kind: type[Exception], word: str) -> None:
    error = failure(apply(BuildState(), line), LOG)
    assert type(error) is kind
    assert word in str(error)


def test_lines_cut_anywhere_come_out_whole() -> None:
    text = "größe\n完成\r\nbar 1%\rbar 2%\n\x1b[31mred\x1b[0m\nend"
    state = apply(BuildState(), vertex(started=1.0))
    fresh: list[tuple[str, str]] = []
    for position in range(len(text.encode())):
        state = apply(state, printed(text.encode()[position : position + 1]))
        fresh += state.fresh
    state = apply(state, vertex(started=1.0, completed=2.0))
    assert [line for _key, line in (*fresh, *state.fresh) if not line.startswith("---")] == [
        "größe",
        "完成",
        "bar 2%",
        "red",
        "end",
    ]
    assert first(state).tail == ("größe", "完成", "bar 2%", "red", "end")


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    state = apply(BuildState(), vertex(started=1.0))
    for _ in range(20):
        state = apply(state, printed(b"x" * 100_000))
    assert sum(len(left) for left in first(state).open.values()) <= 256 * 1024


def test_a_vertex_that_starts_again_is_running() -> None:
    state = apply(BuildState(), vertex(started=1.0, completed=2.0))
    assert first(state).status is Status.DONE
    state = apply(state, vertex(started=5.0))
    assert first(state).status is Status.RUNNING
    state = apply(state, vertex())  # announced again, without times
    assert first(state).status is Status.RUNNING
    state = apply(state, vertex(started=5.0, completed=7.0))
    assert by_label(state)["s"].seconds == 2.0


def test_weak_parts_of_a_group_may_stay_undone() -> None:
    group = {"id": "g", "name": "[f 1/1] COPY a b"}
    strong = {"digest": "a", "started": at(1), "completed": at(2), "cached": True, "progressGroup": group}
    weak = {"digest": "b", "progressGroup": {**group, "weak": True}}
    state = apply(BuildState(), {"vertexes": [weak, strong]})
    assert [(step.status, step.name.stage) for step in state.steps.values()] == [(Status.CACHED, "f")]


# --- what is shown ----------------------------------------------------------------------------------------------


def layer(name: str, kind: LayerKind, packages: int, summary: str = "") -> Layer:
    return Layer(name, kind, "0" * 12, summary or name, packages, packages * 10)


def test_what_a_stage_brings_in_a_few_words() -> None:
    layers = (
        layer("transformers-deps", LayerKind.GROUP, 17),
        layer("ray", LayerKind.GROUP, 1, "ray 2.60.0"),
        layer("torch", LayerKind.GROUP, 3),
        layer("verl-src", LayerKind.SOURCE, 0, "verl at 0f1e2d3c."),
    )
    found = brought(replace(plan(), layers=layers))
    assert {name: one.words for name, one in found.items()} == {
        "group-transformers-deps": "what transformers needs: 17 packages",
        "group-ray": "ray 2.60.0",
        "group-torch": "torch and 2 more",
        "source-verl-src": "verl at 0f1e2d3c.".rstrip("."),
    }
    assert words_for("export", found) != "export"
    assert words_for("elsewhere", found) == "elsewhere"


def test_the_time_left_goes_by_bytes() -> None:
    brings = {"group-a": Brought("a", 300), "group-b": Brought("b", 100)}
    state = apply(BuildState(), vertex("a", "[group-a 1/1] RUN a", started=0.0, completed=30.0))
    state = apply(state, vertex("b", "[group-b 1/1] RUN b", started=0.0))
    # b has run as long as a: all but a tenth of it counts as done
    assert seconds_left(stages(state), brings, 30.0) == pytest.approx(30 * 10 / 390)
    assert seconds_left(stages(state), {"group-b": Brought("b", 10_000)}, 30.0) is None  # too early
    compiling = apply(state, vertex("c", "[made-apex 1/1] RUN c", started=0.0))
    assert seconds_left(stages(compiling), brings, 30.0) is None
    assert words_for("made-apex", brings) == "apex, compiled from source"
    done = apply(state, vertex("b", "[group-b 1/1] RUN b", started=0.0, completed=40.0))
    assert seconds_left(stages(done), brings, 40.0) is None
    assert [duration(seconds) for seconds in (40, 170)] == ["about 40 s", "about 3 min"]


def test_seconds_of_a_stage_count_overlaps_once() -> None:
    state = apply(BuildState(), vertex("a", "[image 1/3] COPY a", started=0.0, completed=4.0))
    state = apply(state, vertex("b", "[image 2/3] COPY b", started=1.0, completed=2.0))
    state = apply(state, vertex("c", "[image 3/3] COPY c", started=10.0))
    state = apply(state, vertex("d", "[x 1/1] RUN d", started=12.0, completed=12.0))
    assert by_label(state)["image"].seconds == 6.0


# --- secrets --------------------------------------------------------------------------------------------------------


def test_secrets_are_masked_everywhere_also_across_chunks() -> None:
    redact = redactor(["hunter2", "p@ss/word"])
    state = BuildState()
    for event in (
        vertex(name="[s 1/1] RUN x hunter2", started=1.0),
        printed(b"token hun"),
        printed(b"ter2 http://u:a@b@h.example/x p%40ss%2Fword\n"),
        vertex(name="[s 1/1] RUN x hunter2", started=1.0, completed=2.0, error="hunter2 refused"),
        "ERROR: hunter2",
    ):
        state = apply(state, event, redact)
    assert first(state).tail == ("token *** http://***@h.example/x ***",)
    assert "hunter2" not in repr(state)


def test_secret_of_several_lines_and_secrets_in_each_other() -> None:
    redact = redactor(["-----BEGIN KEY-----\nMIIEabcdef\n}\n", "abc", "abcdef", ""])
    assert redact("} MIIEabcdef abcdef abc x") == "} *** *** *** x"
    assert redactor()("plain a@b.c text") == "plain a@b.c text"


# --- small things ------------------------------------------------------------------------------------------------


def test_state_counts_base64_of_a_recording_in_full() -> None:
    """What the decoder reads is what BuildKit wrote, byte for byte."""
    text = recording("fail")
    raw = b"".join(base64.b64decode(part.split('"')[3]) for part in text.splitlines() if '"data":' in part)
    chunks = [item for event in events(text) if isinstance(event, dict) for item in items(event, "logs")]
    assert b"".join(data(item, "data") for item in chunks) == raw


def test_the_step_that_failed_first_is_the_reason() -> None:
    """The others are killed for it."""
    killed, broken = (f'process "/bin/sh -c x" did not complete successfully: exit code: {n}' for n in (137, 2))
    for order in (1, -1):
        state = BuildState()
        for name, error, end in (("a", broken, 2.0), ("b", killed, 2.5))[::order]:
            state = apply(state, vertex(name, f"[{name} 1/1] RUN {name}", started=1.0, completed=end, error=error))
        assert state.failed is not None
        assert "exit code: 2" in state.failed.error
