"""The settings of the training step for MindSpeed-RL, as overrides of its hydra configuration (of branch 2.0.0)."""

from collections.abc import Mapping
from typing import Any

import tiny_model

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
