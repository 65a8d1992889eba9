"""`cannery.verify.io.run` with a docker that is a shell script: what it is called with, what becomes of its answer."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from factories import MANAGERS, MOUNTS
from test_store import LOWER, put

from cannery.catalog.catalog import ChipAccess
from cannery.context import Context
from cannery.engine.io.containers import LABEL, owner
from cannery.engine.io.find import Engine
from cannery.errors import UnableError, VerifyFailedError
from cannery.host.facts import HostNpus
from cannery.host.io.look import read_host
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.store.io.store import Store
from cannery.verify.io import run as module
from cannery.verify.io.run import FILES, Runner, Verified, VerifyRequest, has_passed, script_digest
from cannery.vocab import Arch

if TYPE_CHECKING:
    from cannery.sandbox.box import Box

ACCESS = ChipAccess(names="A2", cards=8, managers=MANAGERS, mounts=MOUNTS)
BARE = HostNpus(frozenset(), frozenset())
NPUS = HostNpus(frozenset({*MANAGERS, "/dev/davinci0"}), frozenset(MOUNTS))
REQUEST = VerifyRequest("stack:tag", "sha256:" + "ab" * 32, "script", "2g", Arch.AMD64)
REPORT = {"result": "passed", "counts": {"passed": 1}, "checks": []}


class Docker:
    """A docker whose `run` prints `answer` and ends with `status`; it notes its arguments, one call a line."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "calls"
        self.program = folder / "docker"
        self.answers(REPORT, 0)

    def answers(self, answer: object, status: int, error: str = "") -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.program.write_text(
            f"#!/bin/sh\necho \"$@\" >> '{self.notes}'\ncat <<'END'\n{text}\nEND\necho '{error}' >&2\nexit {status}\n"
        )
        self.program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @property
    def engine(self) -> Engine:
        versions = {"server_version": "26", "arch": "amd64"}
        return Engine("unix:///s", self.program, data_root=None, **versions)


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, tmp_path / "cache", {"PATH": "/usr/bin:/bin"}, Arch.AMD64, is_terminal=False)


def verify(
    context: Context, engine: Engine, request: VerifyRequest, host: HostNpus = BARE, checks: list[Any] | None = None
) -> Verified:
    """Run, and collect the checks that were reported as they ended."""
    place = EnginePlace(engine, None, context.env)  # type: ignore[arg-type] # the client is for other calls
    runner = Runner(place, ACCESS, host, context.cache, context.say, context.root)
    return module.verify(request, runner, (checks if checks is not None else []).append)


def test_a_fresh_run_is_without_network_and_removed_at_its_end(context: Context, docker: Docker) -> None:
    found = verify(context, docker.engine, REQUEST)
    assert (found.report, found.status, found.reused) == (REPORT, 0, False)
    (call,) = docker.calls
    assert call.startswith(f"run --network none --label {LABEL}={owner()} --rm --init -i --name cannery-verify-")
    assert call.endswith(" --shm-size 2g stack:tag /opt/venv/bin/python /opt/cannery/verify.py --json --stream")
    assert "--device" not in call


def test_the_platform_of_a_foreign_image_is_named(context: Context, docker: Docker) -> None:
    verify(context, docker.engine, replace(REQUEST, arch=Arch.ARM64))
    verify(context, docker.engine, replace(REQUEST, again=True))
    assert ["--platform linux/arm64 " in call for call in docker.calls] == [True, False]
    # An emulated import may be silent for longer than one on the image's own architecture.
    assert [call.split("verify.py")[1] for call in docker.calls] == [
        " --json --stream --timeout 1800",
        " --json --stream",
    ]


def test_no_two_runs_give_a_container_the_same_name(context: Context, docker: Docker) -> None:
    for _ in range(2):  # of one pid, as the first process of every CI container has
        verify(context, docker.engine, replace(REQUEST, again=True))
    words = [call.split() for call in docker.calls]
    assert len({call[call.index("--name") + 1] for call in words}) == 2


def test_npus_of_the_host_come_in_with_the_flags_of_run(context: Context, docker: Docker) -> None:
    verify(context, docker.engine, REQUEST, NPUS)
    assert "--device /dev/davinci0 --device /dev/davinci_manager" in docker.calls[0]


def test_a_host_with_half_a_driver_cannot(context: Context, docker: Docker) -> None:
    with pytest.raises(UnableError, match="hisi_hdc"):
        verify(context, docker.engine, REQUEST, HostNpus(NPUS.nodes - {"/dev/hisi_hdc"}, frozenset()))


def test_levels_and_require_npu_reach_the_script(context: Context, docker: Docker) -> None:
    request = replace(REQUEST, levels=("static", "import"), require_npu=True)
    verify(context, docker.engine, request)
    assert docker.calls[0].endswith("--json --stream --level static --level import --require-npu")


def test_a_pass_is_remembered_for_the_same_image_script_options_and_host(context: Context, docker: Docker) -> None:
    verify(context, docker.engine, REQUEST)
    found = verify(context, docker.engine, replace(REQUEST, image="stack:other-name"))
    assert (found.report, found.status, found.reused) == (REPORT, 0, True)
    assert len(docker.calls) == 1


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, image_id="sha256:" + "cd" * 32),
        replace(REQUEST, script_digest="other"),
        replace(REQUEST, levels=("static",)),
        replace(REQUEST, require_npu=True),
        replace(REQUEST, again=True),
    ],
)
def test_anything_else_runs_again(context: Context, docker: Docker, request_: VerifyRequest) -> None:
    verify(context, docker.engine, REQUEST)
    assert not verify(context, docker.engine, request_).reused
    assert len(docker.calls) == 2


def test_the_digest_of_the_script_covers_its_modules_and_nothing_else() -> None:
    folder = "rootfs/opt/cannery"
    templates = {f"{folder}/verify.py": "1", f"{folder}/verifying/elf.py": "1", "tools/common/stage.py": "1"}
    digest = script_digest(templates)
    for name in templates:
        changed = script_digest({**templates, name: "2"}) != digest
        assert changed == name.startswith(folder)
    assert script_digest({**templates, f"{folder}/verifying/more.py": ""}) != digest


def test_a_host_that_has_got_npus_runs_again(context: Context, docker: Docker) -> None:
    verify(context, docker.engine, REQUEST)
    assert not verify(context, docker.engine, REQUEST, NPUS).reused


@pytest.mark.parametrize("status", [1, 3])
def test_what_did_not_pass_is_not_remembered(context: Context, docker: Docker, status: int) -> None:
    docker.answers({**REPORT, "result": "failed"}, status)
    assert verify(context, docker.engine, REQUEST).status == status
    docker.answers(REPORT, 0)
    assert not verify(context, docker.engine, REQUEST).reused


MANIFEST = "f" * 64


def passed(context: Context, image: str = REQUEST.image_id, manifest: str = MANIFEST) -> bool:
    return has_passed(context.cache, image, manifest)


def test_a_pass_of_all_levels_with_the_manifest_is_proof_for_that_image(context: Context, docker: Docker) -> None:
    assert not passed(context)
    verify(context, docker.engine, replace(REQUEST, manifest_sha256=MANIFEST))
    assert passed(context)
    assert not passed(context, manifest="0" * 64)
    assert not passed(context, "sha256:" + "cd" * 32)


@pytest.mark.parametrize("changes", [{"levels": ("static",)}, {"manifest_sha256": ""}])
def test_a_pass_of_less_is_no_proof(context: Context, docker: Docker, changes: dict[str, Any]) -> None:
    verify(context, docker.engine, replace(REQUEST, **{"manifest_sha256": MANIFEST, **changes}))
    assert not passed(context)


def test_a_pass_that_is_remembered_tells_only_the_report(context: Context, docker: Docker) -> None:
    request = replace(REQUEST, manifest_sha256=MANIFEST)
    verify(context, docker.engine, request)
    assert verify(context, docker.engine, request).report == REPORT
    (store,) = (context.cache / "verified").iterdir()
    store.write_text(json.dumps(REPORT))  # as it was stored once
    assert not passed(context)
    assert not verify(context, docker.engine, request).reused
    assert passed(context)
    store.write_text(json.dumps({**REPORT, "asked": {"levels": [], "manifest_sha256": MANIFEST}})[:-9])
    assert not passed(context)


@pytest.mark.parametrize(("status", "stays"), [(1, False), (3, True)])
def test_a_failure_takes_the_proof_away(context: Context, docker: Docker, status: int, stays: bool) -> None:
    verify(context, docker.engine, replace(REQUEST, manifest_sha256=MANIFEST))
    docker.answers({**REPORT, "result": "failed"}, status)
    verify(context, docker.engine, replace(REQUEST, again=True), NPUS)
    assert passed(context) is stays


def test_no_report_is_a_failure_with_the_last_lines_and_the_command(context: Context, docker: Docker) -> None:
    docker.answers("", 127, error="no such file: /opt/venv/bin/python")
    with pytest.raises(VerifyFailedError) as caught:
        verify(context, docker.engine, REQUEST)
    assert "status 127" in caught.value.what
    assert "no such file" in caught.value.what
    assert caught.value.where == "stack:tag"
    assert "docker run --rm stack:tag" in caught.value.hint


def test_an_interrupt_removes_the_container(context: Context, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_streamed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify(context, docker.engine, REQUEST)
    (call,) = docker.calls
    assert call.startswith("rm --force cannery-verify-")
    assert not (context.cache / "verified").exists()


CHECKS = [
    {"id": "static.env", "level": "static", "status": "failed", "message": "no", "details": []},
    {"id": "static.user", "level": "static", "status": "passed", "message": "yes", "details": []},
]


def test_where_no_program_of_an_image_runs_its_files_are_looked_at_and_that_is_no_whole_proof(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(context.cache / "images")
    image = put(store, LOWER)
    script = f"echo '{json.dumps(REPORT)}'"
    boxes: list[Box] = []

    def command(_self: StorePlace, box: Box) -> tuple[str, ...]:
        boxes.append(box)
        return ("sh", "-c", script)

    monkeypatch.setattr(StorePlace, "command", command)
    monkeypatch.setattr("cannery.host.io.place.is_registered", lambda _arch: False)
    place = StorePlace(store, context.env, "amd64", context.cache)
    runner = Runner(place, ACCESS, BARE, context.cache, context.say, Path("/the/script"))
    request = replace(REQUEST, image=image, image_id=image, arch=Arch.ARM64, manifest_sha256=MANIFEST)
    found = module.verify(request, runner, print)
    assert (found.status, found.report["result"], found.reused) == (0, "partial", False)
    (box,) = boxes
    assert (box.outside, box.command[0], "/the/script" in box.command) == (True, sys.executable, True)
    assert module.verify(request, runner, print).reused
    assert not passed(context, image)
    assert has_passed(context.cache, image, MANIFEST, FILES)
    with pytest.raises(UnableError, match="checks of NPUs"):
        module.verify(replace(request, require_npu=True), runner, print)
    # An emulator that is there now is no reason to believe the partial result.
    monkeypatch.setattr("cannery.host.io.place.is_registered", lambda _arch: True)
    found = module.verify(request, runner, print)
    assert (found.report["result"], found.reused, boxes[-1].outside) == ("passed", False, False)
    assert passed(context, image)


def test_each_check_is_reported_as_it_ends(context: Context, docker: Docker) -> None:
    lines = "\n".join(json.dumps(check) for check in CHECKS)
    docker.answers({**REPORT, "checks": CHECKS}, 1, error=f"WARNING: a platform\n{lines}")
    # The script goes on only when its first check was reported.
    text = docker.program.read_text().replace(
        "exit 1", f"until [ -e '{docker.notes}.seen' ]; do sleep 0.05; done\nexit 1"
    )
    docker.program.write_text(text)
    seen: list[Any] = []
    place = EnginePlace(docker.engine, None, context.env)  # type: ignore[arg-type]
    runner = Runner(place, ACCESS, BARE, context.cache, context.say, context.root)

    def note(check: dict[str, Any]) -> None:
        seen.append(check)
        docker.notes.with_name("calls.seen").touch()

    found = module.verify(REQUEST, runner, note)
    assert (seen, found.status) == (CHECKS, 1)
    assert [one.pop("seconds") >= 0 for one in found.report["checks"]] == [True] * len(CHECKS)
    assert found.report["checks"] == CHECKS


def test_an_image_whose_script_does_not_stream_is_verified_too(context: Context, docker: Docker) -> None:
    docker.program.write_text(
        "#!/bin/sh\n"
        f"echo \"$@\" >> '{docker.notes}'\n"
        "case \"$*\" in *--stream*) echo 'error: unrecognized arguments: --stream' >&2; exit 2;; esac\n"
        f"echo '{json.dumps({**REPORT, 'checks': CHECKS})}'\nexit 1\n"
    )
    seen: list[Any] = []
    assert verify(context, docker.engine, REQUEST, checks=seen).status == 1
    assert seen == CHECKS
    assert ["--stream" in call for call in docker.calls] == [True, False]


def test_what_a_host_has(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci_manager"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "usr/local/dcmi").mkdir(parents=True)
    wanted = ("/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager", "/usr/local/dcmi", "/etc/none")
    host = read_host(wanted, tmp_path)
    assert host.nodes == {"/dev/davinci0", "/dev/davinci_manager"}
    assert host.paths == {"/usr/local/dcmi"}
    gid = (tmp_path / "dev/davinci0").stat().st_gid
    assert host.group == gid


def test_a_bare_host_has_nothing(tmp_path: Path) -> None:
    assert read_host(("/dev/davinci0",), tmp_path) == BARE


@pytest.mark.parametrize("left", ["", "{}", "[1]", '{"result": "failed", "counts": {}}'])
def test_a_cut_off_memory_is_no_memory(context: Context, docker: Docker, left: str) -> None:
    verify(context, docker.engine, REQUEST)
    (stored,) = (context.cache / "verified").iterdir()
    stored.write_text(left)
    again = verify(context, docker.engine, REQUEST)
    assert (again.report, again.reused) == (REPORT, False)


def test_an_engine_that_cannot_start_the_container_is_no_failed_verify(context: Context, docker: Docker) -> None:
    said = "docker: error gathering device information\nSee 'docker run --help'."
    docker.program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 125\n")
    with pytest.raises(UnableError, match="gathering device information"):
        verify(context, docker.engine, REQUEST)


def test_the_manifest_must_be_the_plan_s(context: Context, docker: Docker) -> None:
    verify(context, docker.engine, replace(REQUEST, manifest_sha256="ab" * 32))
    assert docker.calls[0].endswith(f"--manifest-sha256 {'ab' * 32}")


@pytest.mark.parametrize("beat", [0.05, module.BEAT])
def test_a_verify_that_takes_long_says_so_now_and_then(
    context: Context,
    docker: Docker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    beat: float,
) -> None:
    monkeypatch.setattr(module, "BEAT", beat)
    docker.program.write_text(docker.program.read_text().replace("cat <<", "sleep 0.4\ncat <<"))
    assert verify(context, docker.engine, REQUEST).status == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line == "verifying: 0 s so far"]
    assert len(said) >= 2 if beat < 1 else not said
