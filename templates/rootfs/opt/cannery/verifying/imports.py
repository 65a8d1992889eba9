"""The checks of the level import: the manifest's modules, torch with torch_npu, and the plugins of vLLM and torch."""

import configparser
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from verifying.child import Answer, run, work
from verifying.image import VENV, Image, read_text, within
from verifying.loader import advice, missing_library
from verifying.manifest import installed, not_imported
from verifying.outcome import Outcome, failed, judged, passed, skipped
from verifying.packages import distributions
from verifying.patches import patch_ids, patch_outcome, patch_skip, patch_tasks
from verifying.versions import cann_version, normal_name, same_version, version_key

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
    return faults + [f"{plugin}: {image.shown(path)} in the working folder comes before it" for path in shadows]


PAIR = "import.torch-npu-pair"
PYTHON = "import.python"  # the `python` that PATH gives, in the image's environment
TORCH_NPU = ("import.torch_npu", PAIR)  # the checks that import what that `python` has to import
UNDEFINED = re.compile(r"undefined symbol: (\S+)")
WRONG_SOC = re.compile(r"soc[ _]?version.{0,60}(mismatch|not match|unsupported|not support)", re.IGNORECASE)


def import_ids(manifest: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Check id → entries of `checks.imports`: one check a module (`import.<module>`), however many attributes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in manifest["checks"]["imports"]:
        found.setdefault(f"import.{item['module']}", []).append(item)
    return found


def has_pair(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest holds both torch and torch_npu."""
    names = {normal_name(item["name"]) for item in installed(manifest)}
    return {"torch", "torch-npu"} <= names


def import_outcomes(image: Image, wanted: Sequence[str], tell: Callable[[str, Outcome], None]) -> dict[str, Outcome]:
    """Runs the import checks named by id, together in as few children as possible.

    `tell` gets the checks of modules whose import went well as they end.
    """
    standin = image.manifest["base"]["kind"] == "standin"
    left_out = [name for name in wanted if standin and name in image.manifest["may_skip"]]
    reasons = not_imported(image.manifest)
    usual = "the manifest leaves it out on a stand-in base"
    outcomes = {name: skipped(f"stand-in: {reasons.get(name, usual)}") for name in left_out}
    by_patch = patch_ids(image.manifest)
    outcomes |= {name: skip for name in wanted if name in by_patch and (skip := patch_skip(image, name))}
    wanted = [name for name in wanted if name not in outcomes]
    python = PYTHON in wanted
    wanted = [name for name in wanted if name != PYTHON]
    asked = PLUGINS in wanted
    names = [name for name in wanted if name not in by_patch and name != PLUGINS]
    table, found = import_ids(image.manifest), plugins(image) if asked else []
    tasks = [_task(table.get(name, ())) for name in names]
    of_patches = {name: patch_tasks(image, name) for name in wanted if name in by_patch}
    more = [task for tasks in of_patches.values() for task in tasks]

    def outcome_of(name: str, answer: Answer) -> Outcome:
        good = pair_outcome if name == PAIR else partial(import_outcome, items=table[name])
        return trouble(image, answer) or good(image, answer)

    def done(at: int, answer: Answer) -> None:
        if at < len(names):
            tell(names[at], outcome_of(names[at], answer))

    answers = work(image, [*tasks, *(plugin.task for plugin in found), *more], done)
    rest = iter(answers)
    by_name = dict(zip(names, islice(rest, len(names)), strict=True))
    outcomes |= {name: outcome_of(name, answer) for name, answer in by_name.items()}
    if asked:
        outcomes[PLUGINS] = plugins_outcome(image, list(zip(found, islice(rest, len(found)), strict=True)))
    for name, mine in of_patches.items():
        outcomes[name] = patch_outcome(image, name, list(islice(rest, len(mine))), failed_import)
    if python:
        # The worker is that `python`, where it is the venv's.
        proved = path_python(image) == image.python and any(by_name[n].ok for n in TORCH_NPU if n in by_name)
        outcomes[PYTHON] = passed(f"{VENV}/bin/python -c 'import torch_npu'") if proved else python_outcome(image)
    return outcomes


def trouble(image: Image, answer: Answer) -> Outcome | None:
    """The failure of what did not load, or was built for another chip; None when there is none."""
    if not answer.ok:
        return failed_import(image, answer)
    wrong_soc = next((line.strip() for line in answer.noise.splitlines() if WRONG_SOC.search(line)), "")
    return failed(f"was built for another chip: {wrong_soc}") if wrong_soc else None


def _task(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worker's task for the entries of one module; without any it is the pair's."""
    if not items:
        return {"do": "pair"}
    attributes = [item["attribute"] for item in items if item.get("attribute")]
    return {"do": "import", "module": items[0]["module"], "attributes": attributes}


def import_outcome(image: Image, answer: Answer, items: Sequence[Mapping[str, Any]]) -> Outcome:
    """Judges an import that went through: the attributes that the manifest expects."""
    faults = []
    for item in items:
        if item.get("attribute") and item.get("equals") is not None:
            found = answer.result["values"][item["attribute"]]
            if found != item["equals"] and not same_version(item["equals"], found):
                faults.append(f"{item['module']}.{item['attribute']} is {found}, the manifest says {item['equals']}")
    version, file = answer.result["version"], answer.result["file"]
    trees = {item["component"] for item in image.manifest["sources"]}
    # Without __init__.py a folder imports as a namespace: meant in some trees, else what is left of a removed package.
    if not file and items[0]["component"] not in trees:
        places = " and ".join(map(image.shown, answer.result["places"])) or "nowhere"
        faults.append(f"{items[0]['module']} is a folder without code: {places}")
    where = image.shown(file or next(iter(answer.result["places"]), "(no file)"))
    return judged(faults, f"{items[0]['module']}{' ' + version if version else ''} from {where}")


def pair_outcome(image: Image, answer: Answer) -> Outcome:
    """Judges torch and torch_npu as imported: the manifest's versions, one release, one C++ ABI, and extension."""
    found, faults = answer.result, []
    versions = {normal_name(item["name"]): item["version"] for item in image.manifest["wheels"]}
    for module, name in (("torch", "torch"), ("torch_npu", "torch-npu")):
        wanted = versions.get(name, "")
        if wanted and not same_version(wanted, found[module]):
            faults.append(f"{module} is {found[module]} at import, the manifest says {wanted}")
    releases = [version_key(found[module])[0][1:2] for module in ("torch", "torch_npu")]
    if releases[0] != releases[1]:
        faults.append(f"torch_npu {found['torch_npu']} is not made for torch {found['torch']}")
    if not found["extension"].endswith(".so"):
        faults.append(f"torch_npu's C extension is not loaded (torch_npu._C: {found['extension'] or 'absent'})")
    abi = image.manifest["base"]["atb_abi"]
    if found["abi"] != abi:
        faults.append(f"torch has the C++ ABI {found['abi']}, ATB of this image {abi}")
    notes = f"NPU available: {found['available']}"
    return judged(faults, f"torch {found['torch']} and torch_npu {found['torch_npu']}, C++ ABI {found['abi']}; {notes}")


def plugins_outcome(image: Image, answers: Sequence[tuple[Plugin, Answer]]) -> Outcome:
    """Judges the plugins as loaded; vLLM without a platform plugin would not know the NPU."""
    faults: list[str] = []
    details: list[str] = []
    good = []
    if not any(plugin.group == PLATFORM for plugin, _ in answers):
        faults.append(f"no distribution of the manifest is a platform plugin of vLLM (entry points {PLATFORM})")
    for plugin, answer in answers:
        bad = trouble(image, answer)
        faults += [f"{plugin}: {bad.message}"] if bad else plugin_faults(image, plugin, answer)
        details += bad.details if bad else ()
        good.append(f"{plugin}{' gives ' + answer.result['gives'] if answer.ok and answer.result['gives'] else ''}")
    outcome = judged(faults, "; ".join(good))
    return replace(outcome, details=(*outcome.details, *details))


def old_nnal(image: Image, symbol: str) -> str:
    """What a symbol of ATB means that torch_npu wants and NNAL does not have."""
    version = next(
        (item["version"] for item in image.manifest["wheels"] if normal_name(item["name"]) == "torch-npu"), ""
    )
    rows = [item for item in image.manifest["base"]["version_files"] if item["name"].lower() == "nnal"]
    nnal = next((cann_version(image.text(item["path"])) or item["version"] for item in rows), "unknown")
    fits = " or ".join(image.manifest.get("torch_npu_cann", ()))
    better = f"torch_npu {version} is made for CANN {fits}" if fits else "CANN of a newer line brings a newer NNAL"
    return f"NNAL {nnal} is too old for torch_npu {version}: its ATB does not define {symbol}; {better}"


def python_outcome(image: Image) -> Outcome:
    """`python -c 'import torch_npu'` by the PATH of the image's environment, as a user of a container types it."""
    found = path_python(image)
    if found is None:
        return failed(f"there is no python on PATH={image.env.get('PATH', '')}")
    try:
        child = run(image, [found, "-c", "import torch_npu"])
    except OSError as error:
        return failed(f"{image.shown(found)} cannot be started: {error.strerror}")
    if child.code != 0:
        return failed(f"{image.shown(found)} -c 'import torch_npu': {child.ending}", child.last_words)
    wanted = f"{VENV}/bin/python"
    faults = [] if image.shown(found) == wanted else [f"python is {image.shown(found)}, not {wanted}"]
    return judged(faults, f"{image.shown(found)} -c 'import torch_npu'")


def path_python(image: Image) -> "str | None":
    """The `python` that the PATH of the image's environment gives."""
    folders = [folder for folder in image.env.get("PATH", os.defpath).split(":") if folder]
    return shutil.which("python", path=":".join(map(image.path, folders)))


def failed_import(image: Image, answer: Answer) -> Outcome:
    """A failed import by its first cause: a missing library before the symptoms that follow from it (D02)."""
    noise = [line for line in answer.noise.splitlines() if line.strip()][-8:]
    missing = missing_library(answer.causes)
    if missing:
        return failed(f"{missing} is not found: {advice(image, missing)}", [*answer.causes, *noise])
    first = answer.causes[0]
    symbol = next((found[1] for cause in answer.causes if (found := UNDEFINED.search(cause))), "")
    if symbol.startswith(("_ZN3atb", "_ZNK3atb", "_ZTIN3atb", "_ZTVN3atb", "_ZTSN3atb")):
        return failed(old_nnal(image, symbol), [*answer.causes, *noise])
    short = first if len(first) <= 200 else first[:199] + "…"
    return failed(short, [*answer.causes[short == first :], *noise])
