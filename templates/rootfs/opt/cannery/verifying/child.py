"""Child processes in the image's environment: limited in time, ended with all that they started; and tasks for them."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from verifying.image import Image, read_text

# Run by `python -c`: so its folder is not in sys.path there.
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")


class Finished(NamedTuple):
    """A child that ended, or was ended after the time limit (`code` None); `ending` describes which."""

    code: int | None
    out: str
    err: str
    ending: str

    @property
    def last_words(self) -> list[str]:
        """The last lines of its stderr."""
        return self.err.splitlines()[-3:]


def start(image: Image, command: Sequence[str], cwd: str = "", **streams: Any) -> subprocess.Popen[bytes]:
    """Starts a child in the image's environment, in a session of its own, in / or `cwd`. OSError when it cannot."""
    env = {**image.env, "PYTHONDONTWRITEBYTECODE": "1", **scratch(image.env)}  # no .pyc is left behind
    return subprocess.Popen(command, cwd=cwd or image.path("/"), env=env, start_new_session=True, **streams)


def scratch(env: Mapping[str, str], shared: str = "/dev/shm") -> dict[str, str]:
    """TMPDIR and HOME for a child where nothing can be written, as on a read-only root; else nothing.

    They are shared memory, which every container has: libraries that ask for a folder at import get one (tempfile,
    and torch's extensions below HOME).
    """
    places = [env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)] + ["/tmp", "/var/tmp", "/usr/tmp"]
    if any(os.access(place, os.W_OK) for place in places) or not os.access(shared, os.W_OK):
        return {}
    return {"TMPDIR": shared, "HOME": shared}


def run(image: Image, command: Sequence[str]) -> Finished:
    """Runs a child to its end or to the time limit. OSError when it cannot start."""
    pipe = subprocess.PIPE
    child = start(image, command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    code: int | None
    try:
        out, err = child.communicate(timeout=image.options.timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        end(child)
        out, err = child.communicate()
        code = None
    how = ending(code, image.options.timeout)
    return Finished(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), how)


def end(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and all processes that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def ending(code: int | None, seconds: float) -> str:
    """How a child ended, in words."""
    if code is None:
        return f"no answer within {seconds:g} s"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with code {code} before it was done"


class Answer(NamedTuple):
    """What became of one task of a worker."""

    ok: bool
    result: dict[str, Any]
    causes: tuple[str, ...]  # first cause first; for a crash or a silence one line about it
    noise: str  # what the task printed


def work(image: Image, tasks: Sequence[dict[str, Any]], cwd: str = "") -> Iterator[Answer]:
    """Runs tasks in as few children as possible, in / or `cwd`, and gives their answers in order, each when it ends.

    A failed import ends its child, and the rest go on in a new one. A crash or a silence is the failure of the task
    that was being done; the time limit counts from one answer to the next. A task with `alone` that fails behind others
    is tried again in a child of its own, which counts (setuptools will not be imported behind Python's distutils).
    """
    at = 0
    while at < len(tasks):
        first = at
        for answer in _one_worker(image, tasks[first:], cwd):
            again = not answer.ok and at > first and tasks[at].get("alone")
            yield next(_one_worker(image, [tasks[at]], cwd)) if again else answer
            at += 1


def _one_worker(image: Image, tasks: Sequence[dict[str, Any]], cwd: str) -> Iterator[Answer]:
    """The answers of one child: of every task, or of the first ones up to the one that ended it."""
    # No files: /tmp may be read-only. The tasks are no argument, which may not be longer than 128 KiB.
    with os.fdopen(os.memfd_create("noise"), "w+b") as noise, os.fdopen(os.memfd_create("tasks"), "w+b") as work_list:
        work_list.write(json.dumps(tasks).encode())
        work_list.seek(0)
        reader, writer = os.pipe()
        fds = (writer, work_list.fileno(), noise.fileno())
        command = [image.python, "-X", "faulthandler", "-c", read_text(WORKER), *map(str, fds)]
        try:
            child = start(image, command, cwd, stdin=subprocess.DEVNULL, stdout=noise, stderr=noise, pass_fds=fds)
        except OSError as error:
            os.close(reader)
            how = f"cannot start {image.shown(image.python)}: {error.strerror}"
            yield from [Answer(ok=False, result={}, causes=(how,), noise="")] * len(tasks)
            return
        finally:
            os.close(writer)
        since, last = 0, None
        for report in _reports(child, reader, image.options.timeout):
            printed = os.pread(noise.fileno(), report["at"] - since, since).decode("utf-8", "replace")
            answer = Answer(report["ok"], report["result"], tuple(report["causes"]), printed)
            since = report["at"]
            if report["last"]:
                last = answer
            else:
                yield answer
        os.close(reader)
        silent = child.poll() is None
        end(child)
        code = child.wait()
        printed = os.pread(noise.fileno(), os.fstat(noise.fileno()).st_size, since).decode("utf-8", "replace")
    how = ending(None if silent else code, image.options.timeout)
    yield last or Answer(ok=False, result={}, causes=(how,), noise=printed)


def _reports(child: subprocess.Popen[bytes], reader: int, limit: float) -> Iterator[dict[str, Any]]:
    """The child's reports as they come, until the last one, its end, or a silence that is longer than the limit."""
    held, heard = b"", time.monotonic()
    while True:
        gone = child.poll() is not None
        if select.select([reader], [], [], 0 if gone else 0.2)[0]:
            block = os.read(reader, 65536)
            if not block:
                with suppress(subprocess.TimeoutExpired):  # it is about to end, or sits there with the pipe closed
                    child.wait(min(limit, 10))
                return
            *lines, held = (held + block).split(b"\n")
            for report in map(json.loads, lines):
                heard = time.monotonic()
                yield report
                if report["last"]:
                    return
        elif gone or time.monotonic() - heard > limit:
            return
