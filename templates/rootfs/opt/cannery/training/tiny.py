"""One stage of verify's level train, in a child: `python tiny.py model|data|config FOLDER FACTS`.

FACTS is JSON: `trainer` (verl or mindspeed-rl), `home` (the trainer's tree; "" where it is installed), `engine` (vllm,
sglang or "") and `cards`, the number of NPUs of the step. FOLDER exists and has what earlier stages made;
nothing else is written. The answer of the stage goes to FOLDER/<stage>.json, so that no output of an import can be
taken for it: {"message": …} with more of the stage's own, or {"error": …, "lines": […]}.
"""

import json
import os
import sys
import traceback
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # PYTHONSAFEPATH keeps the script's folder off it

import tiny_config
import tiny_data
import tiny_model

STAGES = {"model": tiny_model.make, "data": tiny_data.make, "config": tiny_config.make}


def answer(stage: str, folder: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The answer of a stage; whatever it raises is its error, hydra's SystemExit too."""
    try:
        return STAGES[stage](folder, facts)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        lines = traceback.format_exc().splitlines()[-12:]
        return {"error": f"{type(error).__name__}: {text}"[:400], "lines": lines}


if __name__ == "__main__":
    _, asked, where, about = sys.argv
    found = answer(asked, where, json.loads(about))
    with open(os.path.join(where, f"{asked}.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
    os._exit(0)  # threads that an import left behind cannot keep the child
