"""Stage config: the trainer's own hydra configuration takes the overrides of the training step, without an NPU."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import tiny_mindspeed_rl
import tiny_verl


def make(folder: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Composes, and gives the command of the step (its words behind Python, and the folder where it starts)."""
    if facts["trainer"] == "verl":
        pairs, words = verl_words(folder, facts)
        composed = job([*words, "--cfg", "job"])
        validated(composed)
        started(composed, facts)
        message, cwd = f"{tiny_verl.MODULE} takes {len(pairs)} settings", folder
    else:
        table = tiny_mindspeed_rl.table(folder, facts)
        words = [
            tiny_mindspeed_rl.SCRIPT,
            *map(override, table.items()),
            override(("hydra.run.dir", f"{folder}/hydra")),
        ]
        configs = os.path.join(facts["home"], tiny_mindspeed_rl.CONFIGS)
        compose(configs, tiny_mindspeed_rl.CONFIG, map(override, table.items()))
        message, cwd = (
            f"{tiny_mindspeed_rl.CONFIG} of {tiny_mindspeed_rl.SCRIPT} takes {len(table)} settings",
            facts["home"],
        )
    return {"message": message, "command": words, "cwd": cwd}


def verl_words(folder: str, facts: Mapping[str, Any]) -> tuple[list[tuple[str, object]], list[str]]:
    """The settings by the names that the image's verl has, and the words behind Python that give them to it."""
    pairs = list(tiny_verl.chosen(tiny_verl.table(folder, facts), compose(verl_configs(), tiny_verl.CONFIG)))
    more = [*tiny_verl.added(facts), override(("hydra.run.dir", f"{folder}/hydra"))]
    return pairs, ["-m", tiny_verl.MODULE, *map(override, pairs), *more]


def verl_configs() -> str:
    """The folder of verl's configuration, found without importing verl."""
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("verl is not installed")
    return os.path.join(next(iter(found.submodule_search_locations)), "trainer", "config")


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


def job(words: list[str]) -> dict[str, Any]:
    """What the trainer's own entry point would run with, printed by hydra in a child of its own."""
    from omegaconf import OmegaConf

    child = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(words[:2])} --cfg job ended with code {child.returncode}: {why(child.stderr)}")
    return dict(OmegaConf.to_container(OmegaConf.create(child.stdout)))


def why(text: str) -> str:
    """The line of a failed child's output that gives the cause: its last error, else its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Could not" in line]
    return (errors or lines or ["it printed nothing"])[-1].strip()


def started(config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Imports the trainer that verl 0.9 loads late, when ray runs already, and whose needs are in no wheel's core.

    Earlier ones load it with their entry point, so the composing has proved it. Without an engine no step needs it.
    """
    if not (facts["engine"] and config["trainer"].get("use_v1")):
        return
    try:
        importlib.import_module(tiny_verl.LATE)
    except ImportError as error:
        raise ImportError(f"{tiny_verl.LATE}, which the step starts with, cannot be imported: {error}") from error


def validated(config: dict[str, Any]) -> None:
    """Lets verl judge batch sizes and the like, where it has a function for that (0.6 and later)."""
    from omegaconf import OmegaConf

    try:
        from verl.utils.config import validate_config
    except ImportError:
        return
    validate_config(config=OmegaConf.create(config), use_reference_policy=True, use_critic=False)
