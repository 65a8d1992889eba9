"""The check of plugins: what vLLM and torch load by entry points is the code that was installed, and loads (P06)."""

import configparser
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from verifying.distributions import distributions
from verifying.image import VENV, Image, read_text, within
from verifying.manifest import installed
from verifying.versions import normal_name
from verifying.worker import Answer

PLUGINS = "import.plugins"
HOST, PLATFORM = "vllm", "vllm.platform_plugins"
GROUPS = (PLATFORM, "torch.backends")


class EntryPoints(configparser.ConfigParser):
    """The reader of entry_points.txt."""

    def optionxform(self, optionstr: str) -> str:
        """Names keep their case."""
        return optionstr


class Plugin(NamedTuple):
    """One entry point of a distribution: `name = module:attribute` below `group`."""

    owner: str
    group: str
    name: str
    value: str

    @property
    def task(self) -> dict[str, Any]:
        """The worker's task. vLLM calls its platform plugins; torch's are loaded, `import torch` called them before."""
        module, _, attribute = self.value.partition(":")
        called = self.group == PLATFORM
        return {"do": "plugin", "module": module, "attribute": attribute, "call": called, **self._asdict()}

    def __str__(self) -> str:
        return f"{self.owner}'s {self.name} = {self.value} ({self.group})"


def has_plugins(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest holds vLLM, which is nothing here without a plugin."""
    return HOST in {normal_name(item["name"]) for item in installed(manifest)}


def plugins(image: Image) -> list[Plugin]:
    """The entry points of the manifest's distributions that are plugins."""
    wanted = {normal_name(item["name"]) for item in installed(image.manifest)}
    found = [item for item in distributions(image) if item.key in wanted]
    return [plugin for item in found for plugin in entry_points(item.key, os.path.join(image.site, item.folder))]


def entry_points(owner: str, folder: str) -> Iterator[Plugin]:
    """The plugins that a distribution's own folder names."""
    reader = EntryPoints(delimiters=("=",), strict=False, interpolation=None)
    try:
        reader.read_string(read_text(os.path.join(folder, "entry_points.txt")))
    except configparser.Error:
        return
    for group in filter(reader.has_section, GROUPS):
        for name, value in reader.items(group):
            yield Plugin(owner, group, name, value.partition("[")[0].strip())


def plugin_faults(image: Image, plugin: Plugin, answer: Answer) -> list[str]:
    """Why a plugin that a child loaded is not the installed one, or would be another from the working folder."""
    result, module = answer.result, plugin.task["module"]
    file = result["file"]
    if not file:
        where = " and ".join(map(image.shown, result["places"])) or "nowhere"
        return [f"{plugin}: {module} is a folder without code: {where}"]
    sources = [item["path"] for item in image.manifest["sources"] if normal_name(item["name"]) == plugin.owner]
    places = [VENV, *filter(None, sources)]
    if not any(within(file, image.path(place)) for place in places):
        return [f"{plugin}: {module} comes from {image.shown(file)}, not from {' or '.join(places)}"]
    faults = [f"{plugin}: {image.shown(file)} has no {result['lacks']}"] if result["lacks"] else []
    faults += [] if result["seen"] else [f"{plugin}: Python does not find this entry point"]
    here = os.path.join(image.cwd, module.split(".")[0])
    shadows = [path for path in (here, f"{here}.py") if os.path.exists(path) and not within(file, path)]
    return faults + [f"{plugin}: {image.shown(path)} in the working folder stands before it" for path in shadows]
