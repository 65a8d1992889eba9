"""Runs the verify script in a container of an image, with the same options as `run`, and stores the result."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.engine.io.containers import label_words, own_name
from cannery.engine.stream import client_words
from cannery.errors import UnableError, VerifyFailedError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.run.container import RunRequest, container_box, docker_arguments, make_container
from cannery.sandbox.box import Box
from cannery.util.io.files import read_json, sha256_bytes, write_atomic
from cannery.util.io.process import Result, run
from cannery.util.io.waiting import heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import ChipAccess, ImageUser
    from cannery.host.facts import HostNpus
    from cannery.host.io.place import ImagePlace
    from cannery.run.container import Container
    from cannery.verify.lines import Check
    from cannery.vocab import Arch

SCRIPT = "/opt/cannery/verify.py"
PYTHON = "/opt/venv/bin/python"
# The level at which this host's Python checks the files of an image without running its programs; a partial proof.
FILES, PARTIAL = "files", "partial"
# Static checks that the level FILES leaves out: they run programs of the image, or check how it was started.
NOT_OF_FILES = ("python", "env", "set-env", "libraries", "device-type", "preload", "shadow", "pip-check", "shm")
# Runs the script with this host's Python. It imports everything before it changes its root to the image's files.
_LOOK = """\
import json, os, sys
folder, env, left_out, *words = sys.argv[1:]
sys.path.insert(0, folder)
import verify
from verifying.checks import CHECKS
os.chroot("root")
os.chdir("/")
os.environ.clear()
os.environ.update(json.loads(env))
left = [f"static.{name}" for name in left_out.split(",")]
only = [name for name in CHECKS if name.startswith("static.") and name not in left]
sys.exit(verify.main([*words, *(word for name in only for word in ("--only", name))]))
"""
# With this option, the script prints each check on stderr as it ends. The exit code is for an unknown option.
STREAM, WRONG_USE = "--stream", 2
# The key in a stored report with the requested levels and manifest.
ASKED = "asked"
# Exit codes of `docker run` when the engine fails: 125 the daemon, 126 and 127 a command that cannot be started.
DOCKER_S_OWN = frozenset({125, 126, 127})
# Seconds between two progress lines. Under emulation the script takes minutes.
BEAT = 30.0
# The time limit of an import under emulation, in seconds. torch_npu took over 300 on a busy machine.
EMULATED_SILENCE = 1800


def script_digest(templates: Mapping[str, str]) -> str:
    """Return the hex digest of the verify script and its modules; `templates` is {path below templates/: text}."""
    folder = f"rootfs{PurePosixPath(SCRIPT).parent}/"
    return sha256_bytes(json.dumps(sorted(item for item in templates.items() if item[0].startswith(folder))).encode())


@dataclass(frozen=True)
class VerifyRequest:
    """A request to verify an image.

    The manifest in the image must have the digest `manifest_sha256`, so that an image cannot weaken its own proof (""
    for an image of another plan). No `levels` means all except train. `user` None is root. With `several_hosts`, the
    container gets the files of HCCL.
    """

    image: str
    image_id: str
    script_digest: str
    shm_size: str
    arch: Arch
    manifest_sha256: str = ""
    levels: tuple[str, ...] = ()
    require_npu: bool = False
    again: bool = False
    user: ImageUser | None = None
    several_hosts: bool = False


@dataclass(frozen=True)
class Runner:
    """Where the script runs: the engine or image store with the image, and this host's NPUs.

    Results are stored below `cache`. `say` prints progress lines during a long run. `program` is the folder with
    Cannery's own verify script, for images whose programs this host cannot run.
    """

    place: ImagePlace
    access: ChipAccess
    host: HostNpus
    cache: Path
    say: Callable[[str], None]
    program: Path


@dataclass(frozen=True)
class Verified:
    """The report and exit code of the script (0 passed, 1 failed, 3 unable), maybe from an earlier run."""

    report: dict[str, Any]
    status: int
    reused: bool


def verify(request: VerifyRequest, runner: Runner, on_check: Callable[[Check], None]) -> Verified:
    """Verify an image. A stored pass of the same image, script and host is reused.

    If this host cannot run the programs of the image, only its files are checked, and the result is `PARTIAL`.
    `on_check` is called with each check of a new run as it ends. Raises `UnableError` if the engine cannot start the
    container, and `VerifyFailedError` if the script prints no report.
    """
    if why := runner.place.cannot(request.arch):
        if request.require_npu:
            raise UnableError(f"the checks of NPUs cannot run: {why}", where=request.image)
        request = replace(request, levels=(FILES,))
    options = [word for level in request.levels if level != FILES for word in ("--level", level)]
    options += ["--require-npu"] if request.require_npu else []
    options += ["--manifest-sha256", request.manifest_sha256] if request.manifest_sha256 else []
    host = runner.host
    of_host = sorted(host.nodes | host.paths | host.hidden)
    inputs = [request.script_digest, [*options, *([FILES] if why else [])], of_host]
    key = sha256_bytes(json.dumps(inputs).encode())[:16]
    store = runner.cache / "verified" / f"{_stem(request.image_id)}-{key}.json"
    remembered = None if request.again else _remembered(store)
    if remembered is not None:
        return Verified(remembered, 0, reused=True)
    slow = ["--timeout", str(EMULATED_SILENCE)] if runner.place.is_foreign(request.arch) else []
    report, status = _report(request, runner, [*options, *slow], on_check)
    if status == 0:
        report |= {"result": PARTIAL} if why else {}
        asked = {"levels": list(request.levels), "manifest_sha256": request.manifest_sha256}
        write_atomic(store, json.dumps({**report, ASKED: asked}, indent=1, ensure_ascii=False))
    elif status == 1:  # earlier passes of other hosts and levels do not count any more
        for old in store.parent.glob(f"{_stem(request.image_id)}-*.json"):
            old.unlink(missing_ok=True)
    return Verified(report, status, reused=False)


def _remembered(store: Path) -> dict[str, Any] | None:
    """Return a stored report; None if there is none, or if it is incomplete after a crash."""
    stored = _stored(store)
    return None if stored is None else {name: value for name, value in stored.items() if name != ASKED}


def _stored(store: Path) -> dict[str, Any] | None:
    """Return a stored report with the options of its run; None like `_remembered`."""

    def passed(report: dict[str, Any]) -> dict[str, Any] | None:
        # Old results without ASKED are not a proof for a push.
        is_whole = {"result", "counts", ASKED} <= report.keys()
        return report if is_whole and report["result"] in {"passed", PARTIAL} else None

    return read_json(store, passed)


def stored_results(cache: Path, image_id: str) -> list[Path]:
    """Return the files with stored passes of an image on this host."""
    return sorted((cache / "verified").glob(f"{_stem(image_id)}-*.json"))


def has_passed(cache: Path, image_id: str, manifest_sha256: str, *levels: str) -> bool:
    """Whether verify has passed on this host for this image with this manifest, for all levels or for `levels`.

    A pass still counts after the NPUs or drivers of the host have changed, because it is about the image.
    """
    asked = {"levels": [*levels], "manifest_sha256": manifest_sha256}
    found = map(_stored, stored_results(cache, image_id))
    return any(stored is not None and stored[ASKED] == asked for stored in found)


def _stem(image_id: str) -> str:
    """Return the start of the file names of an image's stored results."""
    return image_id.removeprefix("sha256:")[:24]


def _report(
    request: VerifyRequest, runner: Runner, options: list[str], on_check: Callable[[Check], None]
) -> tuple[dict[str, Any], int]:
    """Run the script in a container of the image. Return its report, with seconds for each check, and exit code."""
    begun, seconds = time.monotonic(), dict[str, float]()

    def note(check: Check) -> None:
        seconds[check["id"]] = time.monotonic() - begun - sum(seconds.values())
        on_check(check)

    done = _run(request, runner, [STREAM, *options], note)
    if done.returncode == WRONG_USE and STREAM in done.stderr:  # the script of an older image
        done = _run(request, runner, options, note)
    if done.returncode in DOCKER_S_OWN and not done.stdout:
        message = client_words(done.stderr, done.returncode)
        hint = "`build.py doctor` checks this host's engine, nodes and driver"
        raise UnableError(f"the engine cannot start the verify container: {message}", where=request.image, hint=hint)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise VerifyFailedError(
            f"the verify script gave no report (status {done.returncode})\n{tail}",
            where=request.image,
            hint=f"try: docker run --rm {request.image} {PYTHON} {SCRIPT}",
        ) from error
    for check in report["checks"]:
        if check["id"] in seconds:
            check["seconds"] = round(seconds[check["id"]], 1)
        else:
            on_check(check)
    return report, done.returncode


def _run(request: VerifyRequest, runner: Runner, options: list[str], on_check: Callable[[Check], None]) -> Result:
    if FILES in request.levels:
        with heartbeat(runner.say, lambda: "looking at the files", BEAT):
            return run_streamed(_look_command(request, runner, options), runner.place.env, on_check)
    name = own_name("verify")
    container = make_container(
        RunRequest(
            image=request.image,
            shm_size=request.shm_size,
            npu=bool(runner.host.cards),
            name=name,
            command=(PYTHON, SCRIPT, "--json", *options),
            user=request.user,
            nodes=2 if request.several_hosts else 1,
            platform=runner.place.platform(request.arch),
        ),
        runner.access,
        runner.host,
    )
    try:
        with heartbeat(runner.say, lambda: "verifying", BEAT):
            return run_streamed(_command(container, runner.place), runner.place.env, on_check)
    except KeyboardInterrupt:
        if isinstance(runner.place, EnginePlace):  # a container keeps running after its client has ended
            run(runner.place.engine.command("rm", "--force", name), env=runner.place.env, check=False)
        raise


def _command(container: Container, place: ImagePlace) -> tuple[str, ...]:
    """Return the command that starts a container without network: the image must have all that it needs."""
    if isinstance(place, EnginePlace):
        first, *rest = docker_arguments(container)
        return place.engine.command(first, "--network", "none", *label_words(), *rest)
    image = container.request.image
    return place.command(container_box(container, place.store.lowers(image), place.attributes(image)["Config"]))


def _look_command(request: VerifyRequest, runner: Runner, options: list[str]) -> tuple[str, ...]:
    """Return the command that runs this Cannery's script with this host's Python on the files of a stored image."""
    place = runner.place
    assert isinstance(place, StorePlace)  # noqa: S101 - an engine can run all of its images
    env = json.dumps(place.store.needed(request.image).env)
    words = (sys.executable, "-Ic", _LOOK, str(runner.program), env, ",".join(NOT_OF_FILES), "--json", *options)
    return place.command(Box(place.store.lowers(request.image), words, outside=True))


def run_streamed(command: Sequence[str | Path], env: Mapping[str, str], on_check: Callable[[Check], None]) -> Result:
    """Run a command. Checks on its stderr are passed to `on_check` and are left out of the result."""
    others = []
    with (
        tempfile.TemporaryFile() as out,
        subprocess.Popen(
            [str(word) for word in command],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process,
    ):
        for line in process.stderr or ():
            check = _check(line)
            if check is None:
                others.append(line)
            else:
                on_check(check)
        code = process.wait()
        out.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(errors="replace"), "".join(others))


def _check(line: str) -> Check | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"id", "level", "status", "message"} <= value.keys() else None
