"""The stages of verl: its data, and the settings of the step as overrides of the hydra configuration of its release."""

import importlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tiny_parts

MODULE = "verl.trainer.main_ppo"
CONFIG = "ppo_trainer"
LATE = "verl.trainer.ppo.v1"  # the trainer where `trainer.use_v1` is true
REWARD = os.path.join(os.path.dirname(os.path.realpath(__file__)), "tiny_reward.py")
PROMPT, RESPONSE = 128, 32  # tokens, which are bytes here
BUCKET = 64  # MiB in which weights go to the engine: the usual 2048 would lie on the NPU or in /dev/shm
SAMPLES = 2  # answers to a prompt: GRPO compares them with each other
AR = "actor_rollout_ref"
BUCKETS = ("checkpoint_engine.update_weights_bucket_megabytes", "update_weights_bucket_megabytes")
# Names differ by verl's revision: the first that the image's configuration has is taken (0.5 to 0.9 have one of each).
Table = tuple[tuple[tuple[str, ...], object], ...]


def table(folder: str, facts: Mapping[str, Any]) -> Table:
    """(names, value): one GRPO step with FSDP on `cards` NPUs of one machine, as small as it goes, nothing saved."""
    batch = 2 * facts["cards"]
    return (
        (("algorithm.adv_estimator",), "grpo"),
        (("data.train_files",), f"{folder}/train.parquet"),
        (("data.val_files",), f"{folder}/train.parquet"),
        (("data.train_batch_size",), batch),
        (("data.max_prompt_length",), PROMPT),
        (("data.max_response_length",), RESPONSE),
        (("data.dataloader_num_workers",), 0),
        (("data.shuffle",), False),
        ((f"{AR}.model.path",), f"{folder}/model"),
        ((f"{AR}.model.use_remove_padding",), False),
        ((f"{AR}.model.enable_gradient_checkpointing",), False),
        ((f"{AR}.actor.strategy",), "fsdp"),
        ((f"{AR}.actor.optim.lr",), 1e-4),
        ((f"{AR}.actor.ppo_mini_batch_size",), batch),
        ((f"{AR}.actor.ppo_micro_batch_size_per_gpu",), 1),
        ((f"{AR}.actor.use_kl_loss",), True),
        ((f"{AR}.actor.use_torch_compile",), False),
        ((f"{AR}.ref.use_torch_compile",), False),
        ((f"{AR}.ref.log_prob_micro_batch_size_per_gpu",), 1),
        ((f"{AR}.rollout.name",), facts["engine"] or "vllm"),
        ((f"{AR}.rollout.n",), SAMPLES),
        ((f"{AR}.rollout.tensor_model_parallel_size",), 1),
        ((f"{AR}.rollout.gpu_memory_utilization",), 0.3),
        ((f"{AR}.rollout.enforce_eager",), True),
        # As verl 0.5 has it by itself; newer ones take all positions of the model, more than the batched tokens below.
        ((f"{AR}.rollout.max_model_len",), PROMPT + RESPONSE),
        ((f"{AR}.rollout.max_num_seqs",), 16),
        ((f"{AR}.rollout.max_num_batched_tokens",), 4 * (PROMPT + RESPONSE)),
        ((f"{AR}.rollout.enable_chunked_prefill",), False),
        ((f"{AR}.rollout.log_prob_micro_batch_size_per_gpu",), 1),
        ((f"{AR}.rollout.agent.num_workers",), 1),
        ((f"{AR}.rollout.{BUCKETS[0]}", f"{AR}.rollout.{BUCKETS[1]}"), BUCKET),
        (("reward.custom_reward_function.path", "custom_reward_function.path"), REWARD),
        (("reward.custom_reward_function.name", "custom_reward_function.name"), "compute_score"),
        (("trainer.device",), "npu"),
        (("trainer.nnodes",), 1),
        (("trainer.n_gpus_per_node",), facts["cards"]),
        (("trainer.logger",), ["console"]),
        (("trainer.total_epochs",), 1),
        (("trainer.total_training_steps",), 1),
        (("trainer.val_before_train",), False),
        (("trainer.test_freq",), -1),
        (("trainer.save_freq",), -1),
        (("trainer.resume_mode",), "disable"),
        (("trainer.default_local_dir",), f"{folder}/checkpoints"),
    )


def chosen(rows: Table, config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """(name, value), by the first name that the configuration has. LookupError lists the settings without one."""
    lacking = []
    for names, value in rows:
        name = next((name for name in names if has(config, name.split("."))), "")
        if name:
            yield name, value
        else:
            lacking.append(" or ".join(names))
    if lacking:
        raise LookupError(f"verl's configuration {CONFIG} has no {', '.join(lacking)}")


def has(config: object, parts: Iterable[str]) -> bool:
    """Whether a nested mapping has a key, even with the value None."""
    for part in parts:
        if not isinstance(config, Mapping) or part not in config:
            return False
        config = config[part]
    return True


def added(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides of keys that may be missing in a configuration: SGLang needs the name of its attention on NPUs."""
    return (f"++{AR}.rollout.engine_kwargs.sglang.attention_backend=ascend",) if facts["engine"] == "sglang" else ()


def words(folder: str, facts: Mapping[str, Any]) -> list[str]:
    """The settings as overrides, by the names that the image's verl has."""
    pairs = chosen(table(folder, facts), tiny_parts.compose(configs(), CONFIG))
    return [*map(tiny_parts.override, pairs), *added(facts)]


def configs() -> str:
    """The folder of verl's configuration, found without importing verl."""
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("verl is not installed")
    return os.path.join(next(iter(found.submodule_search_locations)), "trainer", "config")


def rows() -> list[dict[str, Any]]:
    """The rows of the parquet file."""
    return [
        {
            "data_source": "cannery",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": at},
        }
        for at, (question, answer) in enumerate(tiny_parts.questions())
    ]


def data(folder: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Writes FOLDER/train.parquet; verl's dataset, configured as in the step, must give each row and its prompt."""
    from datasets import Dataset
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    path, made = os.path.join(folder, "train.parquet"), rows()
    Dataset.from_list(made).to_parquet(path)
    config = OmegaConf.create(tiny_parts.compose(configs(), CONFIG, words(folder, facts)))
    dataset = RLHFDataset([path], AutoTokenizer.from_pretrained(f"{folder}/model"), config.data)
    items = [dataset[at] for at in range(len(dataset))]
    answers = [item["reward_model"]["ground_truth"] for item in items]
    if answers != [row["reward_model"]["ground_truth"] for row in made]:
        raise ValueError(f"verl's dataset gives {len(items)} rows with the answers {answers}, written were {len(made)}")
    batch = collate_fn(items)
    form = next((name for name in ("input_ids", "raw_prompt") if name in batch), "")
    if not form:
        raise ValueError(f"verl's dataset gives no prompt: {', '.join(sorted(batch))}")
    read_by = f"read back by verl's {RLHFDataset.__name__} (prompts as {form})"
    return {"message": f"{len(items)} rows in train.parquet, {read_by}"}


def config(folder: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Composes, and imports the program of the step; gives its command (the words behind Python) and its folder."""
    settings = words(folder, facts)
    composed = tiny_parts.compose(configs(), CONFIG, settings)
    importlib.import_module(MODULE)
    validated(composed)
    started(composed, facts)
    message = f"{MODULE} takes {len(settings)} settings"
    return {"message": message, "command": ["-m", MODULE, *settings, tiny_parts.run_folder(folder)], "cwd": folder}


def started(config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Imports the trainer that verl 0.9 loads late, when ray runs already, and whose needs are in no wheel's core.

    Earlier ones load it with their entry point. Without an engine no step needs it.
    """
    if not (facts["engine"] and config["trainer"].get("use_v1")):
        return
    try:
        importlib.import_module(LATE)
    except ImportError as error:
        raise ImportError(f"{LATE}, which the step starts with, cannot be imported: {error}") from error


def validated(config: dict[str, Any]) -> None:
    """Lets verl judge batch sizes and the like, where it has a function for that (0.6 and later)."""
    from omegaconf import OmegaConf

    try:
        from verl.utils.config import validate_config
    except ImportError:
        return
    validate_config(config=OmegaConf.create(config), use_reference_policy=True, use_critic=False)
