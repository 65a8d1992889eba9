"""Child processes in the image's environment: limited in time, ended with all that they started; and tasks for them."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from verifying.image import Image


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


def run(image: Image, command: Sequence[str], cwd: str = "", text: str = "") -> Finished:
    """Runs a child to its end or to the time limit. OSError when it cannot start."""
    pipe = subprocess.PIPE
    child = start(image, command, cwd, stdin=pipe, stdout=pipe, stderr=pipe)
    code: int | None
    try:
        out, err = child.communicate(text.encode(), timeout=image.options.timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        end(child)
        out, err = child.communicate()
        code = None
    how = ending(code, image.options.timeout)
    return Finished(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), how)


def program(name: str) -> str:
    """The text of a program that a child runs by `python -c`: so its folder is not in sys.path there."""
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "children", f"{name}.py"), encoding="utf-8") as file:
        return file.read()


def end(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and whatever it started."""
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


def nothing(_at: int, _answer: Answer) -> None:
    """For those who need no answer before the last."""


def work(image: Image, tasks: Sequence[dict[str, Any]], done: Callable[[int, Answer], None] = nothing) -> list[Answer]:
    """Runs the tasks in as few children as possible: a failed import ends its child, and the rest go on in a new one.

    `done` gets the index and the answer of a task that went well, when it ends.

    A crash or a silence is the failure of the task that was being done; the time limit counts from one report to the
    next. A crash behind other tasks is tried again alone, to tell a clash with those from a fault of its own. So is a
    patch whose module did not import there: what counts is its own process (setuptools will not be imported behind
    Python's distutils, to name one that has been seen).
    """
    answers: dict[int, Answer] = {}
    while rest := [at for at in range(len(tasks)) if at not in answers]:
        got, culprit, how = _one_worker(image, [tasks[at] for at in rest], partial(_of_rest, done, rest))
        answers.update({rest[at]: answer for at, answer in got.items()})
        if culprit is not None and culprit > 0 and how.startswith("killed by"):
            alone, _, _ = _one_worker(image, [tasks[rest[culprit]]])
            if alone[0].ok:
                before = ", ".join(str(tasks[at].get("module", tasks[at]["do"])) for at in rest[:culprit])
                answers[rest[culprit]] = got[culprit]._replace(causes=(f"{how} after {before}; alone it works",))
        for at in sorted(got):
            if at not in {0, culprit} and not got[at].ok and tasks[rest[at]]["do"] == "patch":
                alone, _, _ = _one_worker(image, [tasks[rest[at]]])
                answers[rest[at]] = alone[0]
    return [answers[at] for at in range(len(tasks))]


def _of_rest(done: Callable[[int, Answer], None], rest: Sequence[int], at: int, answer: Answer) -> None:
    done(rest[at], answer)


def _one_worker(
    image: Image, tasks: Sequence[dict[str, Any]], done: Callable[[int, Answer], None] = nothing
) -> tuple[dict[int, Answer], int | None, str]:
    """(answers by task, index of the task that ended the child or None, how the child ended)."""
    # No files: /tmp may be read-only. The tasks are no argument, which may not be longer than 128 KiB.
    with os.fdopen(os.memfd_create("noise"), "w+b") as noise, os.fdopen(os.memfd_create("tasks"), "w+b") as work_list:
        work_list.write(json.dumps(tasks).encode())
        work_list.seek(0)
        reader, writer = os.pipe()
        fds = (writer, work_list.fileno())
        command = [image.python, "-X", "faulthandler", "-c", program("worker"), *map(str, fds)]
        try:
            child = start(image, command, stdin=subprocess.DEVNULL, stdout=noise, stderr=noise, pass_fds=fds)
        except OSError as error:
            os.close(reader)
            os.close(writer)
            how = f"cannot start {image.shown(image.python)}: {error.strerror}"
            return {at: Answer(ok=False, result={}, causes=(how,), noise="") for at in range(len(tasks))}, None, how
        os.close(writer)
        reports = []
        for report in _reports(child, reader, image.options.timeout):
            reports.append(report)
            if report.get("ok"):
                printed = os.pread(noise.fileno(), os.fstat(noise.fileno()).st_size, 0)
                done(report["done"], _answer(report, printed, max(reports[-2]["at"], 0)))
        os.close(reader)
        silent = child.poll() is None and "end" not in (reports[-1] if reports else {})
        end(child)
        code = child.wait()
        noise.seek(0)
        printed = noise.read()
    how = ending(None if silent else code, image.options.timeout)
    return *_answers(reports, printed, how, len(tasks)), how


def _reports(child: subprocess.Popen[bytes], reader: int, limit: float) -> Iterator[dict[str, Any]]:
    """The child's reports as they come, until it reports its end, ends, or is silent for longer than the limit."""
    held, heard = b"", time.monotonic()
    while True:
        gone = child.poll() is not None
        if select.select([reader], [], [], 0 if gone else 0.2)[0]:
            block = os.read(reader, 65536)
            if not block:
                with suppress(subprocess.TimeoutExpired):  # it is about to end, or sits there with the pipe closed
                    child.wait(min(limit, 10))
                return
            held += block
            *lines, held = held.split(b"\n")
            for line in lines:
                heard = time.monotonic()
                report = json.loads(line)
                yield report
                if "end" in report:
                    return
        elif gone or time.monotonic() - heard > limit:
            return


def _answers(
    reports: Sequence[dict[str, Any]], printed: bytes, how: str, count: int
) -> tuple[dict[int, Answer], int | None]:
    answers: dict[int, Answer] = {}
    since = 0
    culprit: int | None = 0
    for report in reports:
        if "start" in report:
            culprit, since = report["start"], max(report["at"], 0)
        elif "done" in report:
            answers[report["done"]] = _answer(report, printed, since)
            culprit = report["done"] + 1  # should the child end before the next start
        else:
            culprit = None
    if culprit is not None:
        culprit = min(culprit, count - 1)
        noise = printed[since:].decode("utf-8", "replace")
        answers[culprit] = Answer(ok=False, result={}, causes=(how,), noise=noise)
    return answers, culprit


def _answer(report: Mapping[str, Any], printed: bytes, since: int) -> Answer:
    """What became of a task by its last report; `since` is where its output begins."""
    noise = printed[since : report["at"] if report["at"] >= 0 else None].decode("utf-8", "replace")
    return Answer(report["ok"], report.get("result", {}), tuple(report.get("causes", ())), noise)
