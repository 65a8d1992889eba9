"""Stage data: made-up prompts in the trainer's own form, written, and read back by the trainer's own code."""

import json
import os
import subprocess
import sys
from typing import Any

import tiny_config
import tiny_mindspeed_rl
import tiny_verl

COUNT = 16


def questions() -> list[tuple[str, str]]:
    """The prompts and their answers: sums of one digit."""
    return [(f"What is {left} + {left % 3 + 1}?", str(left + left % 3 + 1)) for left in range(COUNT)]


def make(folder: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Writes the data of the training step and reads it back."""
    return {"message": verl(folder, facts) if facts["trainer"] == "verl" else mindspeed_rl(folder, facts["home"])}


def rows() -> list[dict[str, Any]]:
    """The rows of verl's parquet file."""
    return [
        {
            "data_source": "cannery",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": at},
        }
        for at, (question, answer) in enumerate(questions())
    ]


def verl(folder: str, facts: dict[str, Any]) -> str:
    """Writes FOLDER/train.parquet; verl's dataset, configured as in the step, must give each row and its prompt."""
    from datasets import Dataset
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    path, made = os.path.join(folder, "train.parquet"), rows()
    Dataset.from_list(made).to_parquet(path)
    _, words = tiny_config.verl_words(folder, facts)
    overrides = [word for word in words[2:] if not word.startswith("hydra.")]
    config = OmegaConf.create(tiny_config.compose(tiny_config.verl_configs(), tiny_verl.CONFIG, overrides))
    dataset = RLHFDataset([path], AutoTokenizer.from_pretrained(f"{folder}/model"), config.data)
    items = [dataset[at] for at in range(len(dataset))]
    answers = [item["reward_model"]["ground_truth"] for item in items]
    if answers != [row["reward_model"]["ground_truth"] for row in made]:
        raise ValueError(f"verl's dataset gives {len(items)} rows with the answers {answers}, written were {len(made)}")
    batch = collate_fn(items)
    form = next((name for name in ("input_ids", "raw_prompt") if name in batch), "")
    if not form:
        raise ValueError(f"verl's dataset gives no prompt: {', '.join(sorted(batch))}")
    return f"{len(items)} rows in train.parquet, read back by verl's {RLHFDataset.__name__} (prompts as {form})"


def mindspeed_rl(folder: str, home: str) -> str:
    """Writes FOLDER/train.json, and has MindSpeed-RL's script make indexed files of it, which must hold each row."""
    lines = [{"problem": question, "answer": answer} for question, answer in questions()]
    with open(os.path.join(folder, "train.json"), "w", encoding="utf-8") as file:
        json.dump(lines, file)
    table = tiny_mindspeed_rl.data_table(folder)
    words = [
        tiny_mindspeed_rl.DATA_CONFIG,
        *map(tiny_config.override, table.items()),
        tiny_config.override(("hydra.run.dir", f"{folder}/hydra")),
    ]
    command = [sys.executable, tiny_mindspeed_rl.DATA_SCRIPT, *words]
    child = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        ending = f"{tiny_mindspeed_rl.DATA_SCRIPT} ended with code {child.returncode}"
        raise RuntimeError(f"{ending}: {tiny_config.why(child.stderr or child.stdout)}")
    from mindspeed_rl.datasets.indexed_dataset import IndexedDataset

    prefix = os.path.join(folder, "data_packed_input_ids_document")
    count = len(IndexedDataset(prefix))
    if count != len(lines):
        raise ValueError(f"{prefix}.idx has {count} rows, written were {len(lines)}")
    return f"{count} rows in indexed files, made and read back by MindSpeed-RL's own code"
