"""What verify's level train does without an NPU, in a child: `python tiny.py FOLDER FACTS`.

FACTS is JSON: `trainer` (verl or mindspeed-rl), `home` (the trainer's tree; "" where it is installed), `engine` (vllm,
sglang or ""), `cards`, the number of NPUs of the step, and `stages`: those of model, data and config to do, in order.
FOLDER exists; nothing else is written. The answer of a stage goes to FOLDER/<stage>.json, so that no output of an
import can be taken for it: {"message": …} with more of the stage's own, or {"error": …, "lines": […]}, then the last.
"""

import json
import os
import sys
import traceback
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # PYTHONSAFEPATH keeps the script's folder off it

import tiny_mindspeed_rl
import tiny_model
import tiny_verl

TRAINERS = {"verl": tiny_verl, "mindspeed-rl": tiny_mindspeed_rl}


def answer(stage: str, folder: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The answer of a stage; whatever it raises is its error, hydra's SystemExit too."""
    trainer: Any = TRAINERS[facts["trainer"]]
    try:
        made: dict[str, Any] = (tiny_model.make if stage == "model" else getattr(trainer, stage))(folder, facts)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        lines = traceback.format_exc().splitlines()[-12:]
        return {"error": f"{type(error).__name__}: {text}"[:400], "lines": lines}
    return made


if __name__ == "__main__":
    _, where, about = sys.argv
    for asked in json.loads(about)["stages"]:
        found = answer(asked, where, json.loads(about))
        with open(os.path.join(where, f"{asked}.json"), "w", encoding="utf-8") as file:
            json.dump(found, file)
        if "error" in found:
            break
    os._exit(0)  # threads that an import left behind cannot keep the child
