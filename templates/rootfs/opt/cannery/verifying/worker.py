"""Tasks for children that import, load or compute. A crash or a silence is the failure of the task at hand."""

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from verifying.child import end, ending, program, start
from verifying.image import Image


class Answer(NamedTuple):
    """What became of one task of a worker."""

    ok: bool
    result: dict[str, Any]
    causes: tuple[str, ...]  # first cause first; for a crash or a silence one line that says so
    noise: str  # what the task printed


def work(image: Image, tasks: Sequence[dict[str, Any]]) -> list[Answer]:
    """Runs the tasks in as few children as possible: a failed import ends its child, and the rest go on in a new one.

    A crash or a silence is the failure of the task that was being done; the time limit counts from one report to the
    next. A crash behind other tasks is tried again alone, to tell a clash with those from a fault of its own. So is a
    patch whose module did not import there: what counts is its own process (setuptools will not be imported behind
    Python's distutils, to name one that has been seen).
    """
    answers: dict[int, Answer] = {}
    while rest := [at for at in range(len(tasks)) if at not in answers]:
        got, culprit, how = _one_worker(image, [tasks[at] for at in rest])
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


def _one_worker(image: Image, tasks: Sequence[dict[str, Any]]) -> tuple[dict[int, Answer], int | None, str]:
    """(answers by task, index of the task that ended the child or None, how the child ended)."""
    # No files: /tmp may be read-only. The tasks are no argument, which may not be longer than 128 KiB.
    with os.fdopen(os.memfd_create("noise"), "w+b") as noise, os.fdopen(os.memfd_create("tasks"), "w+b") as work_list:
        work_list.write(json.dumps(tasks).encode())
        work_list.seek(0)
        reader, writer = os.pipe()
        fds = (writer, work_list.fileno())
        command = [image.python, "-X", "faulthandler", "-c", program("in_worker"), *map(str, fds)]
        try:
            child = start(image, command, stdin=subprocess.DEVNULL, stdout=noise, stderr=noise, pass_fds=fds)
        except OSError as error:
            os.close(reader)
            os.close(writer)
            how = f"cannot start {image.shown(image.python)}: {error.strerror}"
            return {at: Answer(ok=False, result={}, causes=(how,), noise="") for at in range(len(tasks))}, None, how
        os.close(writer)
        reports = list(_reports(child, reader, image.options.timeout))
        os.close(reader)
        silent = child.poll() is None and "end" not in (reports[-1] if reports else {})
        end(child)
        code = child.wait()
        noise.seek(0)
        printed = noise.read()
    how = ending(None if silent else code, image.options.timeout)
    return *_answers(reports, printed, how, len(tasks)), how


def _reports(child: subprocess.Popen[bytes], reader: int, limit: float) -> Iterator[dict[str, Any]]:
    """The child's reports as they come, until it says the end, ends, or is silent for longer than the limit."""
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
            noise = printed[since : report["at"] if report["at"] >= 0 else None].decode("utf-8", "replace")
            answers[report["done"]] = Answer(
                report["ok"], report.get("result", {}), tuple(report.get("causes", ())), noise
            )
            culprit = report["done"] + 1  # should the child end before the next start
        else:
            culprit = None
    if culprit is not None:
        culprit = min(culprit, count - 1)
        noise = printed[since:].decode("utf-8", "replace")
        answers[culprit] = Answer(ok=False, result={}, causes=(how,), noise=noise)
    return answers, culprit
