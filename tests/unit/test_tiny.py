"""The tables of the training step, and how they become overrides; nothing of what images alone have is imported."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import tiny_mindspeed_rl
import tiny_model
import tiny_parts
import tiny_reward
import tiny_verl

FACTS = {"trainer": "verl", "home": "", "engine": "vllm", "cards": 2}


def config_of(names: list[str]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name in names:
        at = made
        *folders, last = name.split(".")
        for folder in folders:
            at = at.setdefault(folder, {})  # type: ignore[assignment]
        at[last] = None
    return made


def test_names_are_those_of_the_configuration_that_is_there() -> None:
    rows = tiny_verl.table("/s", FACTS)
    newest = dict(tiny_verl.chosen(rows, config_of([names[0] for names, _ in rows])))
    oldest = dict(tiny_verl.chosen(rows, config_of([names[-1] for names, _ in rows])))
    assert newest["reward.custom_reward_function.path"] == oldest["custom_reward_function.path"] == tiny_verl.REWARD
    assert len(newest) == len(oldest) == len(rows)
    assert (newest["data.train_batch_size"], newest["trainer.n_gpus_per_node"]) == (4, 2)
    assert newest["actor_rollout_ref.rollout.name"] == "vllm"


def test_all_that_a_configuration_lacks_is_named() -> None:
    rows = tiny_verl.table("/s", FACTS)
    lacking = {"trainer.device", "reward.custom_reward_function.path"}
    config = config_of([names[0] for names, _ in rows if names[0] not in lacking])
    with pytest.raises(LookupError) as error:
        list(tiny_verl.chosen(rows, config))
    wanted = "reward.custom_reward_function.path or custom_reward_function.path, trainer.device"
    assert str(error.value) == f"verl's configuration ppo_trainer has no {wanted}"


def test_a_batch_fits_the_cards_and_what_is_generated_the_engine() -> None:
    for cards in (1, 2):
        table = {names[-1]: value for names, value in tiny_verl.table("/s", {**FACTS, "cards": cards})}
        batch = table["data.train_batch_size"]
        assert isinstance(batch, int)
        assert batch % cards == 0
        assert batch <= tiny_parts.COUNT
        assert table["actor_rollout_ref.actor.ppo_mini_batch_size"] == batch
    length = tiny_verl.PROMPT + tiny_verl.RESPONSE
    longest = table["actor_rollout_ref.rollout.max_num_batched_tokens"]
    assert isinstance(longest, int)
    assert length == table["actor_rollout_ref.rollout.max_model_len"]
    assert length <= min(longest, tiny_model.LONGEST)
    assert tiny_mindspeed_rl.PROMPT + tiny_mindspeed_rl.RESPONSE <= tiny_model.LONGEST


def test_prompts_fit_with_their_template() -> None:
    longest = max(len(question) for question, _ in tiny_parts.questions())
    assert longest + len("<|im_start|>user\n\n<|im_start|>assistant\n") + 10 <= tiny_verl.PROMPT
    assert len({question for question, _ in tiny_parts.questions()}) == tiny_parts.COUNT
    assert ("What is 4 + 2?", "6") in tiny_parts.questions()


@pytest.mark.parametrize(
    ("engine", "more"),
    [("sglang", ("++actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend=ascend",)), ("vllm", ())],
)
def test_sglang_is_told_its_attention(engine: str, more: tuple[str, ...]) -> None:
    assert tiny_verl.added({"engine": engine}) == more


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("grpo", "grpo"),
        ("/tmp/train-x/model", "/tmp/train-x/model"),
        ("/a b=,c", '"/a b=,c"'),
        (False, "false"),
        (1e-4, "0.0001"),
        (-1, "-1"),
        (["console"], '["console"]'),
    ],
)
def test_settings_as_hydra_reads_them(value: object, text: str) -> None:
    assert tiny_parts.override(("a.b", value)) == f"a.b={text}"


@pytest.mark.parametrize(
    ("engine", "trainer", "error"),
    [
        ("vllm", {"use_v1": True}, "made_up_trainer, which the step starts with, cannot be imported: No module named"),
        ("", {"use_v1": True}, ""),
        ("vllm", {"use_v1": False}, ""),
        ("vllm", {}, ""),
    ],
)
def test_a_trainer_that_is_loaded_late_must_be_there(
    engine: str, trainer: dict[str, object], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_verl, "LATE", "made_up_trainer")
    with pytest.raises(ImportError, match=error) if error else nullcontext():
        tiny_verl.started({"trainer": trainer}, {"engine": engine})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback\nValueError: no\n\n[ERROR] 2026 unknown\n", "ValueError: no"),
        ("Could not override 'a.b'.\nSet HYDRA_FULL_ERROR=1", "Could not override 'a.b'."),
        ("one\n two \n", "two"),
        ("", "it printed nothing"),
    ],
)
def test_a_failed_child_says_why(text: str, line: str) -> None:
    assert tiny_mindspeed_rl.why(text) == line


def test_the_reward_tells_answers_apart() -> None:
    scores = [
        tiny_reward.compute_score("d", text, "5", extra_info={"index": 1}) for text in ("5", "a 5", "55", "ab", "")
    ]
    assert scores == [1.5, 1 + 0.5 / 3, 0.5, 0.0, 0.0]


def test_the_special_tokens_stand_behind_the_bytes() -> None:
    assert sorted(tiny_model.SPECIAL.values()) == [256, 257, 258]
    assert {tiny_model.END, tiny_model.PAD} < {*tiny_model.SPECIAL}
    assert all(f"{word}" in tiny_model.TEMPLATE for word in ("<|im_start|>", tiny_model.END))
    assert tiny_mindspeed_rl.shape()["hidden_size"] == tiny_model.HEADS * tiny_model.HEAD


def test_mindspeed_rl_is_told_one_card_a_replica() -> None:
    table = tiny_mindspeed_rl.table("/s", {**FACTS, "cards": 2})
    assert table["rl_config.actor_resource.num_npus"] == 2
    assert table["megatron_training.global_batch_size"] == table["rl_config.mini_batch_size"] == 4
    assert table["model.qwen25_7b.padded_vocab_size"] == tiny_model.VOCABULARY
    assert tiny_mindspeed_rl.data_table("/s")["output_prefix"] == table["megatron_training.data_path"]
