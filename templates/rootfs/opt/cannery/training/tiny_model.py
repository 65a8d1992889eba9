"""Stage model: a tokenizer and a Qwen2 of random weights, made from nothing, saved, loaded and trained one step."""

import math
import os
from typing import Any

LAYERS, HEADS, GROUPS = 2, 2, 1
HEAD = 64  # the smallest size of a head that attention kernels commonly have; so the hidden size is 128
HIDDEN, INNER = HEADS * HEAD, 256
VOCABULARY = 320  # 256 bytes, the special tokens and fillers: no id that a model can draw is without a text
LONGEST = 2048
END, PAD = "<|im_end|>", "<|endoftext|>"
SPECIAL = {PAD: 256, "<|im_start|>": 257, END: 258}  # ids: behind those of the bytes
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = "2 + 3 = 5; 3 + 4 = 7; 4 + 5 = 9"


def model(folder: str, _facts: dict[str, Any]) -> dict[str, Any]:
    """Writes FOLDER/model, as a trainer and a rollout engine take it, and trains what is loaded from there."""
    where = os.path.join(folder, "model")
    tokenizer().save_pretrained(where)
    network().save_pretrained(where)
    before, after, size = one_step(where)
    if not (math.isfinite(before) and math.isfinite(after)):
        raise ArithmeticError(f"the loss of the tiny model is {before}, and {after} after one step")
    if after >= before:
        raise ArithmeticError(f"one step of AdamW did not lower the loss of the tiny model: {before:.4f}, {after:.4f}")
    about = f"{LAYERS} layers, {size} parameters"
    return {"message": f"a Qwen2 of {about}, saved and loaded; one step on the CPU: loss {before:.4f} to {after:.4f}"}


def tokenizer() -> Any:
    """A tokenizer of single bytes with a chat template: it can take any text, and needs no file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    fillers = [f"<|extra_{number}|>" for number in range(VOCABULARY - len(letters) - len(SPECIAL))]
    words = [*letters, *SPECIAL, *fillers]
    raw = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([*SPECIAL, *fillers])
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=PAD, model_max_length=LONGEST)
    made.chat_template = TEMPLATE
    return made


def network() -> Any:
    """The model, with weights of a fixed seed."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=False,
        use_cache=True,
        bos_token_id=None,
        pad_token_id=SPECIAL[PAD],
        eos_token_id=SPECIAL[END],
        architectures=["Qwen2ForCausalLM"],
    )
    return Qwen2ForCausalLM(config)


def one_step(where: str) -> tuple[float, float, int]:
    """The loss before and behind one step of AdamW on the CPU, of model and tokenizer from a folder; parameters."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(where)
    ids = words(TEXT, return_tensors="pt")["input_ids"]
    if words.decode(ids[0]) != TEXT:
        raise ValueError(f"the saved tokenizer makes {words.decode(ids[0])!r} of {TEXT!r}")
    loaded = AutoModelForCausalLM.from_pretrained(where).float().train()
    # Neither foreach nor fused: to choose between them, torch_npu would ask an NPU for its name.
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=1e-2, foreach=False, fused=False)
    before = loaded(input_ids=ids, labels=ids).loss
    before.backward()
    optimizer.step()
    with torch.no_grad():
        after = loaded(input_ids=ids, labels=ids).loss
    return float(before.detach()), float(after), sum(part.numel() for part in loaded.parameters())
