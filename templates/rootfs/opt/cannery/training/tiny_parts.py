"""What the stages of both trainers use: made-up prompts, and hydra's configurations."""

import json
import os
import re
from collections.abc import Iterable
from typing import Any

COUNT = 16


def questions() -> list[tuple[str, str]]:
    """The prompts and their answers: sums of one digit."""
    return [(f"What is {left} + {left % 3 + 1}?", str(left + left % 3 + 1)) for left in range(COUNT)]


def compose(configs: str, name: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """A configuration of a folder as plain values, references not followed."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(config_dir=configs, version_base=None):
        return dict(OmegaConf.to_container(compose(name, list(overrides))))


def override(pair: tuple[str, object]) -> str:
    """A setting as hydra reads it, whose grammar has JSON in it; plain texts need no quotes."""
    name, value = pair
    plain = isinstance(value, str) and re.fullmatch(r"[\w./-]+", value, re.ASCII)
    return f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}"


def run_folder(folder: str) -> str:
    """The override by which hydra writes its own files below a folder."""
    return override(("hydra.run.dir", os.path.join(folder, "hydra")))
