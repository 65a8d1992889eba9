"""The stages of MindSpeed-RL: its data, and the settings of the step as overrides of its hydra configuration (2.0)."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import tiny_model
import tiny_parts

SCRIPT, CONFIGS, CONFIG = "cli/train_grpo.py", "configs", "grpo_qwen25_7b_A3"
DATA_SCRIPT, DATA_CONFIG = "cli/preprocess_data.py", "deepscaler"
# Its prompt template for Qwen has 500 bytes, which are tokens here.
PROMPT, RESPONSE = 960, 64
SAMPLES = 2


def table(folder: str, facts: Mapping[str, Any]) -> dict[str, object]:
    """Name → value: one GRPO step on `cards` NPUs without tensor parallelism; no checkpoint, so weights are random."""
    batch, length = 2 * facts["cards"], PROMPT + RESPONSE
    return {
        "megatron_training.tokenizer_name_or_path": f"{folder}/model",
        "megatron_training.data_path": f"{folder}/data",
        "megatron_training.global_batch_size": batch,
        "megatron_training.seq_length": length,
        "megatron_training.train_iters": 1,
        "megatron_training.sequence_parallel": False,
        "actor_config.tensor_model_parallel_size": 1,
        "actor_config.load": f"{folder}/checkpoints",
        "actor_config.save": f"{folder}/checkpoints",
        "rl_config.mini_batch_size": batch,
        "rl_config.max_prompt_length": PROMPT,
        "rl_config.n_samples_per_prompt": SAMPLES,
        "rl_config.use_tensorboard": False,
        "rl_config.actor_resource.num_npus": facts["cards"],
        "generate_config.infer_tensor_parallel_size": 1,
        "generate_config.max_num_seqs": 16,
        "generate_config.max_model_len": length,
        "generate_config.max_num_batched_tokens": length,
        "generate_config.gpu_memory_utilization": 0.3,
        "generate_config.sampling_config.max_tokens": RESPONSE,
        **{f"model.qwen25_7b.{name}": value for name, value in shape().items()},
    }


def shape() -> dict[str, object]:
    """The tiny model, as Megatron calls its sizes."""
    return {
        "num_layers": tiny_model.LAYERS,
        "hidden_size": tiny_model.HIDDEN,
        "ffn_hidden_size": tiny_model.INNER,
        "num_attention_heads": tiny_model.HEADS,
        "num_query_groups": tiny_model.GROUPS,
        "max_position_embeddings": tiny_model.LONGEST,
        "padded_vocab_size": tiny_model.VOCABULARY,
        "rotary_base": 10000,
    }


def data_table(folder: str) -> dict[str, object]:
    """Name → value for its script that makes Megatron's indexed files of prompts."""
    return {
        "input": f"{folder}/train.json",
        "tokenizer_name_or_path": f"{folder}/model",
        "output_prefix": f"{folder}/data",
        "workers": 1,
    }


def data(folder: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Writes FOLDER/train.json and runs MindSpeed-RL's script on it; its indexed files must have every row."""
    lines = [{"problem": question, "answer": answer} for question, answer in tiny_parts.questions()]
    with open(os.path.join(folder, "train.json"), "w", encoding="utf-8") as file:
        json.dump(lines, file)
    settings = [*map(tiny_parts.override, data_table(folder).items()), tiny_parts.run_folder(folder)]
    command = [sys.executable, DATA_SCRIPT, DATA_CONFIG, *settings]
    child = subprocess.run(command, cwd=facts["home"], capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"{DATA_SCRIPT} ended with code {child.returncode}: {why(child.stderr or child.stdout)}")
    from mindspeed_rl.datasets.indexed_dataset import IndexedDataset

    prefix = os.path.join(folder, "data_packed_input_ids_document")
    count = len(IndexedDataset(prefix))
    if count != len(lines):
        raise ValueError(f"{prefix}.idx has {count} rows, written were {len(lines)}")
    return {"message": f"{count} rows in indexed files, made and read back by MindSpeed-RL's own code"}


def why(text: str) -> str:
    """The line of a failed child's output that gives the cause: its last error, else its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Could not" in line]
    return (errors or lines or ["it printed nothing"])[-1].strip()


def config(folder: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Composes, and gives the command of the step (its words behind Python) and the folder where it starts."""
    settings = list(map(tiny_parts.override, table(folder, facts).items()))
    tiny_parts.compose(os.path.join(facts["home"], CONFIGS), CONFIG, settings)
    message = f"{CONFIG} of {SCRIPT} takes {len(settings)} settings"
    return {
        "message": message,
        "command": [SCRIPT, *settings, tiny_parts.run_folder(folder)],
        "cwd": facts["home"],
    }
