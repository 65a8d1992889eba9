"""What a trainer printed in its one step: the line of metrics, and why it ended."""

import math
import re
from typing import NamedTuple

from verifying.outcome import Outcome, failed, passed

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# verl: `step:1 - actor/pg_loss:0.1 - …`; MindSpeed-RL: `iteration: 1 / 1 | actor/pg_loss : 0.1 | …`.
LINES = (re.compile(r"\bstep:\d+( - .+)"), re.compile(r"\biteration: \d+ / \d+( \| .+)"))
SPLIT = re.compile(r" - | \| ")
NUMBER = re.compile(r"(?:[\w.]+\()?([-+.\w]+)\)?")  # numpy prints np.float64(0.1)
# ray names the process in front, a vLLM in it its own and the place; lines of ray itself say since when it waits.
PREFIX = r"(?:\((?:[^()]*pid=[^()]*|autoscaler[^()]*)\) )*(?:ERROR [-\d]+ [:\d]+ \[[^]]*\] )?"
ERROR = re.compile(rf"^{PREFIX}((?:\w+\.)*\w*(?:Error|Exception|Exit)\b.*)")
LAST_LINES = 20
# What a trainer says of a cause that it does not name, and what to do about it.
VOCABULARY = """verl asks for gpt-oss's vocabulary with vLLM from 0.12 on, whatever the model: without a network, put
o200k_base.tiktoken into a folder and name that in TIKTOKEN_ENCODINGS_BASE"""
HINTS = {
    "failed to download or load vocab file": " ".join(VOCABULARY.split()),
    "Total available GPUs 0 is less": "ray counts no NPU: it looks for CANN's acl, then for /dev/davinci*",
}


class Step(NamedTuple):
    """A run of a trainer: its exit code (None when it was ended), how it ended in words, and all that it printed."""

    trainer: str
    code: int | None
    ending: str
    text: str


def judged_step(step: Step, cards: int) -> Outcome:
    """Passed when the trainer ended well, said a loss, and every loss and gradient norm that it said is finite."""
    text = COLOUR.sub("", step.text)
    last = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    if step.code != 0:
        why = [found[1] for line in text.splitlines() if (found := ERROR.match(line.strip()))]
        said = f"{step.trainer} {step.ending}{': ' + why[-1][:200] if why else ''}"
        return failed(said, [*last, *(hint for sign, hint in HINTS.items() if sign in text)])
    values = metrics(text)
    told = {name: value for name, value in values.items() if "loss" in name or "grad_norm" in name}
    if not any("loss" in name for name in told):
        return failed(f"{step.trainer} ended with code 0, and said no loss of a step", last)
    endless = [f"{name} is {value}" for name, value in told.items() if not math.isfinite(value)]
    if endless:
        return failed(f"{step.trainer} did a step, and {', '.join(endless)}", last)
    shown = ", ".join(f"{name} {value:.6g}" for name, value in told.items())
    return passed(f"{step.trainer} did one GRPO step on {cards} NPU{'s' if cards != 1 else ''}: {shown}")


def metrics(text: str) -> dict[str, float]:
    """The metrics of the last line that has any; numbers alone."""
    for line in reversed(text.splitlines()):
        for pattern in LINES:
            found = pattern.search(line)
            values = dict(filter(None, map(_value, SPLIT.split(found[1])))) if found else {}
            if values:
                return values
    return {}


def _value(part: str) -> tuple[str, float] | None:
    name, _, said = part.rpartition(":")
    number = NUMBER.fullmatch(said.strip())
    try:
        return (name.strip(), float(number[1])) if name and number else None
    except ValueError:
        return None
