"""The checks of the level train: one step of GRPO on a made-up tiny model and data, by the image's own trainer.

What needs no NPU is done in one child by the modules of ../training, in a scratch folder; train.step runs the trainer
itself.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from verifying.child import Answer, end, ending, start, work
from verifying.image import Image, read_text
from verifying.imports import not_imported
from verifying.manifest import installed, normal_name
from verifying.npu import visible
from verifying.outcome import Outcome, failed, passed, skipped

MARK = "CANNERY_TRAIN"  # by it the processes are known that a trainer left behind: ray's are in sessions of their own
KEY = "scratch"
# The CPUs that ray counts, regardless of the container's: MindSpeed-RL asks for 8 a card and 10 more, verl for 3 a card
# and some more. With fewer they wait forever. Ray also starts this many workers ahead, in place of one a core.
RESOURCES = {"RAY_OVERRIDE_RESOURCES": '{"CPU": 32}'}
# The step is on one machine, and verify's container has no network, where no other address is to be found.
ALONE = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
# A worker and its engine are two processes on one NPU: both can listen only where HCCL has ports to choose from.
PORTS = {"HCCL_HOST_SOCKET_PORT_RANGE": "60000-60050", "HCCL_NPU_SOCKET_PORT_RANGE": "61000-61050"}
LONGEST = 30  # characters: ray puts sockets 65 to 75 deeper, and the path of a socket ends at 107


def scratch(image: Image) -> str:
    """The folder, made at first use: the one asked for, else a new one with a short name."""

    def make() -> str:
        if not image.options.scratch:
            return tempfile.mkdtemp(prefix="train-")
        os.makedirs(image.options.scratch, exist_ok=True)
        return os.path.abspath(image.options.scratch)

    return image.remember(KEY, make)


def outside(image: Image) -> Image:
    """The image with an environment in which caches, logs and ray's files go to the scratch folder; no network."""
    folder = scratch(image)
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    env = {
        **ALONE,
        **PORTS,
        **RESOURCES,
        **image.env,
        MARK: folder,
        "HOME": home,
        "HF_HOME": f"{home}/huggingface",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "HYDRA_FULL_ERROR": "1",
        **({"RAY_TMPDIR": folder} if len(folder) <= LONGEST else {}),
    }
    return replace(image, env=env)


def tidy(image: Image) -> None:
    """Ends what a trainer left running, and removes the folder unless it was asked for."""
    folder = image.memory.get(KEY)
    if not folder:
        return
    wanted = f"{MARK}={folder}".encode()
    for number in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError):
            with open(f"/proc/{number}/environ", "rb") as file:
                is_left = number != os.getpid() and wanted in file.read().split(b"\0")
            if is_left:
                os.kill(number, signal.SIGKILL)
    if not image.options.scratch:
        shutil.rmtree(folder, ignore_errors=True)


COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# verl: `step:1 - actor/pg_loss:0.1 - …`; MindSpeed-RL: `iteration: 1 / 1 | actor/pg_loss : 0.1 | …`.
LINES = (re.compile(r"\bstep:\d+( - .+)"), re.compile(r"\biteration: \d+ / \d+( \| .+)"))
SPLIT = re.compile(r" - | \| ")
NUMBER = re.compile(r"(?:[\w.]+\()?([-+.\w]+)\)?")  # numpy prints np.float64(0.1)
# ray names the process in front, a vLLM in it its own and the place; ray's own lines have a time.
PREFIX = r"(?:\((?:[^()]*pid=[^()]*|autoscaler[^()]*)\) )*(?:ERROR [-\d]+ [:\d]+ \[[^]]*\] )?"
ERROR = re.compile(rf"^{PREFIX}((?:\w+\.)*\w*(?:Error|Exception|Exit)\b.*)")
LAST_LINES = 20
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
    """Passed when the trainer ended with code 0 and printed a loss, and every loss and gradient norm is finite."""
    text = COLOUR.sub("", step.text)
    last = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    if step.code != 0:
        why = [found[1] for line in text.splitlines() if (found := ERROR.match(line.strip()))]
        answer = f"{step.trainer} {step.ending}{': ' + why[-1][:200] if why else ''}"
        return failed(answer, [*last, *(hint for sign, hint in HINTS.items() if sign in text)])
    values = metrics(text)
    wanted = {name: value for name, value in values.items() if "loss" in name or "grad_norm" in name}
    if not any("loss" in name for name in wanted):
        return failed(f"{step.trainer} ended with code 0, and printed no loss of a step", last)
    endless = [f"{name} is {value}" for name, value in wanted.items() if not math.isfinite(value)]
    if endless:
        return failed(f"{step.trainer} did a step, and {', '.join(endless)}", last)
    shown = ", ".join(f"{name} {value:.6g}" for name, value in wanted.items())
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
    name, _, answer = part.rpartition(":")
    number = NUMBER.fullmatch(answer.strip())
    try:
        return (name.strip(), float(number[1])) if name and number else None
    except ValueError:
        return None


TRAINING = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "training")
TRAINERS = {"verl": "verl", "mindspeed-rl": "MindSpeed-RL"}
ENGINES = ("vllm", "sglang")
MOST_CARDS = 2  # two show that cards reach each other; more would only take longer
STEP_SECONDS = 1200.0
STAGE_TIMES = 3  # of the longest silence that imports may have: a stage imports a lot
NO_ENGINE = "neither vLLM nor SGLang is in this image, and verl rolls out with nothing else"
NEEDS = {
    "train.data": ("train.model",),
    "train.config": ("train.model", "train.data"),
    "train.step": ("train.model", "train.data", "train.config"),
}


def trainer(manifest: Mapping[str, Any]) -> str:
    """Which trainer the image has, a key of TRAINERS; "" when it has none. verl is the one where it has both."""
    sources = manifest["sources"]
    names = {normal_name(item["name"]) for item in installed(manifest)} | {item["component"] for item in sources}
    return next((name for name in TRAINERS if name in names), "")


def data_check(image: Image) -> Outcome:
    """Made-up prompts are written in the trainer's form, and its own code reads them back."""
    reason = why_no_data(image)
    return skipped(f"stand-in: {reason}") if reason else staged(image, "data")


def why_no_data(image: Image) -> str:
    """Why MindSpeed-RL's own code cannot be imported on a stand-in; "" when the trainer's code can."""
    is_standin = image.manifest["base"]["kind"] == "standin" and trainer(image.manifest) == "mindspeed-rl"
    return not_imported(image.manifest).get("import.mindspeed_rl", "") if is_standin else ""


def step_check(image: Image) -> Outcome:
    """The trainer does one step of GRPO on the NPU: it ends with code 0 and a finite loss."""
    if trainer(image.manifest) == "verl" and not engine(image.manifest):
        return skipped(NO_ENGINE)
    return stage_fault(image, "step") or judged_step(step(image, answers(image)["config"].result), cards(image))


def step(image: Image, about: Mapping[str, Any]) -> Step:
    """Runs the trainer by the result of the stage config. Its output is a file: what it leaves running holds a pipe."""
    path = os.path.join(scratch(image), "step.log")
    code: int | None
    with open(path, "wb") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        child = start(outside(image), [image.python, *about["command"]], about["cwd"], **streams)
        try:
            code = child.wait(STEP_SECONDS)
        except subprocess.TimeoutExpired:
            end(child)
            child.wait()
            code = None
    return Step(TRAINERS[trainer(image.manifest)], code, ending(code, STEP_SECONDS), read_text(path))


def staged(image: Image, stage: str) -> Outcome:
    """The outcome of a stage, or the failure of an earlier one that it needs."""
    return stage_fault(image, stage) or passed(answers(image)[stage].result["message"])


def stage_fault(image: Image, stage: str) -> Outcome | None:
    """Why a stage was not done; None when it was. For the step: why an earlier stage was not done."""
    for name, answer in answers(image).items():
        if not answer.ok:
            why = answer.causes[-1] if name == stage else f"train.{name}: {answer.causes[-1]}"
            return failed(why, [*answer.causes[:-1], *answer.noise.splitlines()[-LAST_LINES:]])
        if name == stage:
            break
    return None


def answers(image: Image) -> dict[str, Answer]:
    """What became of the stages; they are done once, in order."""

    def do() -> dict[str, Answer]:
        options = replace(image.options, timeout=STAGE_TIMES * image.options.timeout)
        own = f"tiny_{trainer(image.manifest).replace('-', '_')}"
        names = ["model", *([] if why_no_data(image) else ["data"]), "config"]
        about = {"do": "stage", "path": TRAINING, "folder": scratch(image), "facts": facts(image)}
        tasks = [{**about, "module": "tiny_model" if name == "model" else own, "stage": name} for name in names]
        return dict(zip(names, work(outside(replace(image, options=options)), tasks), strict=True))

    return image.remember("train stages", do)


def facts(image: Image) -> dict[str, Any]:
    """What the stages have to know of the image."""
    paths = [item["path"] for item in image.manifest["sources"] if item["component"] == "mindspeed-rl" and item["path"]]
    return {
        "trainer": trainer(image.manifest),
        "home": image.path(paths[0]) if paths else "",
        "engine": engine(image.manifest),
        "cards": cards(image),
    }


def engine(manifest: Mapping[str, Any]) -> str:
    """The engine that rolls out; "" when the image has none."""
    names = {normal_name(item["name"]) for item in installed(manifest)}
    return next((name for name in ENGINES if name in names), "")


def cards(image: Image) -> int:
    """On how many NPUs the step runs; 1 where none is seen, for what is done without."""
    found = visible(image)
    return 1 if isinstance(found, str) else min(max(len(found), 1), MOST_CARDS)


CHECKS: dict[str, Callable[[Image], Outcome]] = {
    # A tokenizer and a Qwen2 of two layers are made, saved, loaded, and trained one step on the CPU.
    "train.model": partial(staged, stage="model"),
    "train.data": data_check,
    # The trainer's own configuration takes the settings of the step.
    "train.config": partial(staged, stage="config"),
    "train.step": step_check,
}
