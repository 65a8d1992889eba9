"""bake() with a fake docker: replays recordings, fails early, floods, hangs, hangs on."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from cannery.build.io.buildx import View, bake
from cannery.build.io.secrets import Secrets
from cannery.build.io.view import LiveView, Look, PlainView, make_view
from cannery.build.progress import BuildState, Status
from cannery.build.stages import Brought
from cannery.errors import BuildFailedError, NetworkError, UnableError

DATA = Path(__file__).parents[1] / "unit" / "data"
ROOT = Path(__file__).parents[2]

FAKE = """
import base64, json, os, signal, sys, time
from pathlib import Path
args = sys.argv[1:]
here = Path(__file__).parent
said = {"args": args, "cwd": os.getcwd(), "pgid": os.getpgrp(), "env": dict(os.environ)}
(here / "called.json").write_text(json.dumps(said))
mode, _, name = os.environ["FAKE"].partition(":")
say = lambda text: (sys.stderr.write(text), sys.stderr.flush())
def event(**fields): say(json.dumps(fields) + "\\n")
def step(**fields): event(vertexes=[{"digest": "a", "name": "[big 1/1] RUN make", **fields}])
START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
def interrupted(number, frame):
    with (here / "signals").open("a") as file: file.write("INT\\n")
    if mode == "stubborn": return
    say("ERROR: failed to solve: Canceled: context canceled\\n")
    sys.exit(1)
if mode == "replay":
    say(Path(name).read_text())
    failed = "ERROR:" in Path(name).read_text()
    sys.exit(1 if failed else 0)
if mode == "say":
    print("on stdout", flush=True)
    say(name + "\\n")
    sys.exit(1)
if mode == "flood":
    step(started=START)
    text = b"".join(b"%07d 0123456789012345678901234567890123456789\\n" % n for n in range(1000))
    block = base64.b64encode(text).decode()
    for _ in range(208): event(logs=[{"vertex": "a", "stream": 1, "data": block}])
    last = base64.b64encode(b"the real error\\nno newline hunter2").decode()
    event(logs=[{"vertex": "a", "stream": 2, "data": last}])
    step(started=START, completed=END, error='process "/bin/sh -c make" did not complete successfully: exit code: 2')
    say("ERROR: failed to solve: x\\n")
    sys.exit(1)
if mode in {"hang", "stubborn"}:
    signal.signal(signal.SIGINT, interrupted)
    step(started=START)
    while True: time.sleep(0.05)
if mode == "joins":
    with (here / "runs").open("a") as file: file.write("x")
    runs = len((here / "runs").read_text())
    at = lambda second: "2026-01-01T00:00:%02dZ" % second
    load = {"digest": "l", "name": "[internal] load build definition from Dockerfile"}
    event(vertexes=[{**load, "started": at(5), "completed": at(5)}])
    if runs == 1 or name != "once":
        text = 'process "/bin/sh -c make" did not complete successfully: exit code: 2'
        step(started=at(6 if name == "own" else 1), completed=at(9), error=text)
        say("ERROR: failed to solve: x\\n")
        sys.exit(1)
    step(started=at(6), completed=at(9))
    sys.exit(0)
sys.exit("unknown mode")
"""


class Seen:
    def __init__(self) -> None:
        self.states: list[BuildState] = []
        self.finished = 0

    def update(self, state: BuildState) -> None:
        self.states.append(state)

    def finish(self, state: BuildState) -> None:
        self.states.append(state)
        self.finished += 1


class Build:
    """Calls bake() in a folder of its own with the fake docker; `mode` says what that does."""

    def __init__(self, base: Path) -> None:
        self.folder, self.fake, self.log = base / "out", base / "docker.py", base / "log" / "build.log"
        self.fake.write_text(FAKE)
        self.folder.mkdir()

    def __call__(self, mode: str, view: View | None = None, *, overrides: tuple[str, ...] = ()) -> tuple[int, int]:
        return bake(
            (sys.executable, str(self.fake)),
            {"PATH": os.environ["PATH"], "FAKE": mode, "TOKEN": "hunter2"},
            self.folder,
            log=self.log,
            view=lambda: view or Seen(),
            overrides=overrides,
            secrets=Secrets({}, ("hunter2",)),
        )


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path)


def test_success(build: Build) -> None:
    view = Seen()
    result = build(f"replay:{DATA / 'rawjson-ok.txt'}", view, overrides=("*.no-cache=true",))
    assert (result, view.finished) == ((0, 6), 1)
    called = json.loads((build.fake.parent / "called.json").read_text())
    assert called["cwd"] == str(build.folder)
    assert called["args"][:4] == ["bake", "-f", "docker-bake.json", "--progress=rawjson"]
    assert called["args"][-3:] == ["--set", "*.no-cache=true", "image"]
    assert called["pgid"] != os.getpgrp()
    # buildx 0.20 and newer ask before they read a secret's file outside the folder, and end where nobody answers.
    assert called["env"]["BUILDX_BAKE_ENTITLEMENTS_FS"] == "0"
    log = build.log.read_text()
    assert "[group-torch] part 1 part 2 part 3\n" in log
    assert all("[" in line for line in log.splitlines())


def test_failure(build: Build) -> None:
    with pytest.raises(BuildFailedError) as caught:
        build(f"replay:{DATA / 'rawjson-fail.txt'}")
    text = str(caught.value)
    assert caught.value.code == 5
    assert "stage group-bad" in text
    assert "| no such wheel" in text
    assert str(build.log) in text
    log = build.log.read_text()
    assert "[group-slow] --- cancelled" in log
    assert "[bake] ERROR: failed to solve" in log


def test_registry_away(build: Build) -> None:
    with pytest.raises(NetworkError, match=r"quay\.invalid"):
        build(f"replay:{DATA / 'rawjson-noname.txt'}")


def test_a_base_that_went_away_after_it_was_found_is_named(build: Build) -> None:
    reference = f"q.io/ascend/cann:8.5.0@sha256:{'0f' * 32}"
    text = f"{reference}: failed to resolve source metadata for {reference}: {reference}: not found"
    with pytest.raises(NetworkError) as caught:
        build(f"say:ERROR: failed to solve: {text}")
    assert caught.value.where == "registry q.io"
    assert caught.value.what.startswith(f"the engine cannot fetch it: {reference}")


def test_ten_megabytes_arrive_whole(build: Build) -> None:
    with pytest.raises(BuildFailedError) as caught:
        build("flood")
    lines = build.log.read_text().splitlines()
    assert sum(line.endswith("0123456789") for line in lines) == 208_000
    shown = [line for line in caught.value.what.splitlines() if line.startswith("  | ")]
    assert len(shown) == 50
    assert shown[-2:] == ["  | the real error", "  | no newline ***"]
    assert shown[0].startswith("  | 0000952 ")
    assert "hunter2" not in build.log.read_text() + str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ERROR: Cannot connect to the Docker daemon at unix:///x.", UnableError),
        ("docker: unknown command: docker buildx", BuildFailedError),
    ],
)
def test_plain_errors(build: Build, text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        build(f"say:{text}")
    assert "[bake] on stdout\n" in build.log.read_text()


@pytest.mark.parametrize(("name", "runs", "fails"), [("once", 2, False), ("always", 2, True), ("own", 1, True)])
def test_a_build_that_joins_a_failed_one_is_begun_once_more(build: Build, name: str, runs: int, fails: bool) -> None:
    with pytest.raises(BuildFailedError) if fails else nullcontext():
        build(f"joins:{name}")
    assert len((build.fake.parent / "runs").read_text()) == runs
    assert ("it joined another build, which failed" in build.log.read_text()) is (runs == 2)


def test_the_program_must_be_there(build: Build) -> None:
    with pytest.raises(UnableError, match="nosuch-docker"):
        bake(("nosuch-docker",), {"PATH": "/bin"}, build.folder, log=build.log, view=Seen)


def interrupted_build(build: Build, mode: str, number: int) -> tuple[Seen, int]:
    """Run a build, send `number` to this process once its first step has been seen; return view and process group."""
    view = Seen()

    def interrupt() -> None:
        end = time.monotonic() + 10
        while not (view.states and view.states[-1].steps) and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        build(mode, view)
    sender.join()
    return view, json.loads((build.fake.parent / "called.json").read_text())["pgid"]


def test_interrupt_cancels_once_and_leaves_nothing(build: Build) -> None:
    view, group = interrupted_build(build, "hang", signal.SIGINT)
    assert (build.fake.parent / "signals").read_text() == "INT\n"
    assert view.finished == 1
    assert next(iter(view.states[-1].steps.values())).status is Status.RUNNING
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
    assert "interrupted" in build.log.read_text()


def test_a_build_that_ignores_the_interrupt_is_killed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cannery.util.io.process.CANCEL_SECONDS", 0.3)
    _view, group = interrupted_build(build, "stubborn", signal.SIGINT)
    assert (build.fake.parent / "signals").read_text() == "INT\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


# --- views ----------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Stepping:
    """Passes states on to a view, with the events' own times as the clock."""

    def __init__(self, view: View, clock: Clock) -> None:
        self.view, self.clock = view, clock

    def update(self, state: BuildState) -> None:
        self.clock.now = state.now
        self.view.update(state)

    def finish(self, state: BuildState) -> None:
        self.view.finish(state)


LOOK = Look({"group-torch": Brought("torch 2.8.0", 900), "group-ray": Brought("what ray needs: 9 packages", 100)})


def test_plain_lines_are_one_for_each_stage_that_ends(build: Build) -> None:
    stream, clock = io.StringIO(), Clock()
    view = make_view(stream, LOOK, is_terminal=False, clock=clock)
    assert isinstance(view, PlainView)
    build(f"replay:{DATA / 'rawjson-ok.txt'}", Stepping(view, clock))
    lines = stream.getvalue().splitlines()
    assert [line.partition("s  ")[2] for line in lines if "group-torch" in line] == [
        "group-torch (torch 2.8.0): done in 1.0 s"
    ]
    assert sum("done in 0.1 s, 8.0 MB" in line for line in lines) == 1
    assert "6/6 steps" in lines[-1]
    assert "RUN" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_plain_lines_of_a_cached_build_are_few(build: Build) -> None:
    stream = io.StringIO()
    build(f"replay:{DATA / 'rawjson-cached.txt'}", make_view(stream, LOOK, is_terminal=False, clock=Clock()))
    text = stream.getvalue()
    assert "group-ray" not in text
    assert "6/6 steps (6 cached)" in text.splitlines()[-1]


def test_verbose_prints_what_steps_print(build: Build) -> None:
    stream = io.StringIO()
    look = Look(LOOK.brings, is_verbose=True)
    build(f"replay:{DATA / 'rawjson-ok.txt'}", make_view(stream, look, is_terminal=True, clock=Clock()))
    assert "[group-torch] part 1 part 2 part 3\n" in stream.getvalue()


def test_a_long_silent_step_gives_a_sign_of_life_each_minute(build: Build) -> None:
    seen = Seen()
    build(f"replay:{DATA / 'rawjson-ok.txt'}", seen)
    running = next(
        s for s in seen.states if any(x.status is Status.RUNNING and x.name.is_step for x in s.steps.values())
    )
    stream, clock = io.StringIO(), Clock()
    view = PlainView(stream, LOOK, clock)
    for _ in range(130):
        clock.now += 1
        view.update(running)
    first, second = (line for line in stream.getvalue().splitlines() if "still running: " in line)
    # No event arrived, but the time that is printed goes on.
    assert float(second.split()[0]) - float(first.split()[0]) == pytest.approx(60.0)


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("columns", [80, 120])
def test_live_lines(build: Build, color: bool, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "" if color else "1")
    stream = io.StringIO()
    look = Look({"group-bad": Brought("what transformers needs: 17 packages, and words that do not fit in a row")})
    view = make_view(stream, look, is_terminal=True, clock=Clock())
    assert isinstance(view, LiveView)
    seen = Seen()
    with pytest.raises(BuildFailedError):
        build(f"replay:{DATA / 'rawjson-fail.txt'}", seen)
    running = next(
        s
        for s in seen.states
        if any(x.name.stage == "group-bad" and x.status is Status.RUNNING for x in s.steps.values())
    )
    view.update(running)
    time.sleep(0.6)
    view.update(seen.states[-1])
    view.finish(seen.states[-1])
    text = stream.getvalue()
    assert ("\x1b[36m" in text) is color
    assert "\x1b[?25h" in text, "the cursor is back"
    drawn, _, printed = text.rpartition("\x1b[?25h")
    lines = [line for line in re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)) if line]
    assert all(len(line) <= columns for line in lines), "the line that is drawn again never wraps"
    assert re.fullmatch(r"1/5 steps, .*: what transformers needs: 17 packages.*", lines[0])
    ends = [line.partition("s  ")[2] for line in printed.splitlines()]
    assert any(line.startswith("group-bad (what transformers needs") and "failed after" in line for line in ends)
    assert ends[-1].startswith("1/5 steps")


def test_rich_is_not_imported_before_it_draws() -> None:
    code = "import sys, cannery.build.io.buildx, cannery.build.io.view; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
