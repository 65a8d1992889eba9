"""The checks of the level train: one step of GRPO on a made-up tiny model and data, by the image's own trainer.

What needs no NPU is done in children by ../training/tiny.py, in a scratch folder; train.step runs the trainer itself.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from verifying.child import Finished, end, ending, run, start
from verifying.image import Image, read_text
from verifying.manifest import installed, not_imported
from verifying.npu import visible
from verifying.outcome import Outcome, failed, passed, skipped
from verifying.scratch import outside, scratch
from verifying.step_log import Step, judged_step
from verifying.versions import normal_name

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "training", "tiny.py")
TRAINERS = {"verl": "verl", "mindspeed-rl": "MindSpeed-RL"}
ENGINES = ("vllm", "sglang")
MOST_CARDS = 2  # two show that cards reach each other; more would only take longer
STEP_SECONDS = 1200.0
STAGE_TIMES = 3  # of the longest silence that imports may have: a stage has several children that import torch
NO_ENGINE = "neither vLLM nor SGLang is in this image, and verl rolls out with nothing else"
NEEDS = {"train.data": ("train.model",), "train.step": ("train.model", "train.data", "train.config")}


def trainer(manifest: Mapping[str, Any]) -> str:
    """Which trainer the image has, a key of TRAINERS; "" when it has none. verl is the one where it has both."""
    sources = manifest["sources"]
    names = {normal_name(item["name"]) for item in installed(manifest)} | {item["component"] for item in sources}
    return next((name for name in TRAINERS if name in names), "")


def model_check(image: Image) -> Outcome:
    """A tokenizer and a Qwen2 of two layers are made, saved, loaded, and trained one step on the CPU."""
    return staged(image, "model")


def data_check(image: Image) -> Outcome:
    """Made-up prompts are written in the trainer's form, and its own code reads them back."""
    reason = not_imported(image.manifest).get("import.mindspeed_rl")
    if trainer(image.manifest) == "mindspeed-rl" and image.manifest["base"]["kind"] == "standin" and reason:
        return skipped(f"stand-in: {reason}")
    return unmade(image, "train.data") or staged(image, "data")


def config_check(image: Image) -> Outcome:
    """The trainer's own configuration takes the settings of the step."""
    return staged(image, "config")


def step_check(image: Image) -> Outcome:
    """The trainer does one step of GRPO on the NPU: it ends with code 0 and a finite loss."""
    if trainer(image.manifest) == "verl" and not engine(image.manifest):
        return skipped(NO_ENGINE)
    lacking = unmade(image, "train.step")
    if lacking:
        return lacking
    return judged_step(step(image, answer_of(image, "config")), cards(image))


def step(image: Image, about: Mapping[str, Any]) -> Step:
    """Runs the trainer as the stage config says; its output goes to a file, as what it leaves running holds a pipe."""
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


def unmade(image: Image, check: str) -> Outcome | None:
    """The failure of an earlier stage that a check needs, for a run that was not asked for that stage."""
    for name in NEEDS[check]:
        found = CHECKS[name](image)
        if found.status == "failed":
            return failed(f"{name}: {found.message}", found.details)
    return None


def staged(image: Image, stage: str) -> Outcome:
    """What a stage of tiny.py says; each runs once."""
    return image.remember(f"train {stage}", lambda: _run_stage(image, stage))


def _run_stage(image: Image, stage: str) -> Outcome:
    with suppress(OSError):  # of an earlier run in a folder of the user's
        os.remove(os.path.join(scratch(image), f"{stage}.json"))
    try:
        options = replace(image.options, timeout=STAGE_TIMES * image.options.timeout)
        child = run(
            outside(replace(image, options=options)),
            [image.python, SCRIPT, stage, scratch(image), json.dumps(facts(image))],
        )
    except OSError as error:
        return failed(f"{image.shown(image.python)} cannot be started: {error.strerror}")
    said = answer_of(image, stage)
    if child.code != 0 or not said:
        return failed(f"the child {ended(child)}", child.err.splitlines()[-8:])
    return failed(said["error"], said["lines"]) if "error" in said else passed(said["message"])


def ended(child: Finished) -> str:
    """How a child ended that left no answer."""
    return "ended without an answer" if child.code == 0 else child.ending


def answer_of(image: Image, stage: str) -> dict[str, Any]:
    """The answer that a stage left; {} when there is none."""
    try:
        with open(os.path.join(scratch(image), f"{stage}.json"), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def facts(image: Image) -> dict[str, Any]:
    """What tiny.py has to know of the image."""
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


CHECKS = {
    "train.model": model_check,
    "train.data": data_check,
    "train.config": config_check,
    "train.step": step_check,
}
