"""The checks of the level import: the manifest's modules, torch with torch_npu, and the plugins of vLLM and torch.

The modules are those of the manifest's `checks.imports`, and those that its patches change, which have to come from the
patched files.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path
from typing import Any

from verifying.child import Answer, run, work
from verifying.image import VENV, Image
from verifying.libraries import advice, missing_library
from verifying.manifest import cann_version, installed, normal_name, release, same_version
from verifying.outcome import Outcome, failed, judged, passed, skipped
from verifying.packages import distributions

PLUGINS = "import.plugins"
HOST, PLATFORM = "vllm", "vllm.platform_plugins"
GROUPS = (PLATFORM, "torch.backends")


def shown(point: EntryPoint) -> str:
    """A plugin's entry point for messages."""
    owner = normal_name(point.dist.name) if point.dist else ""
    return f"{owner}'s {point.name} = {point.value} ({point.group})"


def has_plugins(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest holds vLLM, which is nothing here without a plugin."""
    return HOST in {normal_name(item["name"]) for item in installed(manifest)}


def plugins(image: Image) -> list[EntryPoint]:
    """The entry points of the manifest's distributions that are plugins."""
    wanted = {normal_name(item["name"]) for item in installed(image.manifest)}
    return [
        point
        for item in distributions(image)
        if item.key in wanted
        for point in PathDistribution(Path(image.site, item.folder)).entry_points
        if point.group in GROUPS
    ]


def plugin_task(point: EntryPoint) -> dict[str, Any]:
    """The worker's task. vLLM calls its platform plugins; torch's are loaded, `import torch` called them before."""
    module, _, attribute = point.value.partition("[")[0].strip().partition(":")
    about = {"group": point.group, "name": point.name, "value": point.value}
    return {"do": "plugin", "module": module, "attribute": attribute, "call": point.group == PLATFORM, **about}


PAIR = "import.torch-npu-pair"
PYTHON = "import.python"  # the `python` that PATH gives, in the image's environment
TORCH_NPU = {"import.torch_npu", PAIR}  # the checks that import what that `python` has to import
UNDEFINED = re.compile(r"undefined symbol: (\S+)")
WRONG_SOC = re.compile(r"soc[ _]?version.{0,60}(mismatch|not match|unsupported|not support)", re.IGNORECASE)


def import_ids(manifest: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Check id → the manifest's entries for its module. Each module has one check, `import.<module>`."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    of_patches = (
        {**file, "component": patch["component"]}
        for patch in manifest["patches"]
        for file in patch["files"]
        if file.get("module")
    )
    for item in (*manifest["checks"]["imports"], *of_patches):
        found.setdefault(f"import.{item['module']}", []).append(item)
    return found


def not_imported(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Check id → why a module cannot be imported in a stand-in image: it, or its distribution, is left out."""
    rows = ((name, item) for name, items in import_ids(manifest).items() for item in items)
    return {name: item["standin"] for name, item in rows if item.get("standin")} | {
        f"import.{module}": f"{item['name']} is left out: {item['reason']}"
        for item in manifest.get("left_out", ())
        for module in item["modules"]
    }


def has_pair(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest holds both torch and torch_npu."""
    names = {normal_name(item["name"]) for item in installed(manifest)}
    return {"torch", "torch-npu"} <= names


def import_outcomes(image: Image, wanted: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    """Runs the import checks named by id, together in as few children as possible; gives each when it ends."""
    rows, reasons = import_ids(image.manifest), not_imported(image.manifest)
    names = [name for name in wanted if name not in {PLUGINS, PYTHON}]
    if image.manifest["base"]["kind"] == "standin":
        left_out = [name for name in wanted if name in image.manifest["may_skip"]]
        usual = "the manifest leaves it out on a stand-in base"
        yield from ((name, skipped(f"stand-in: {reasons.get(name, usual)}")) for name in left_out)
        wanted, names = ([name for name in some if name not in left_out] for some in (wanted, names))
    found = plugins(image) if PLUGINS in wanted else []
    answers = work(image, [*(_task(rows.get(name, ())) for name in names), *map(plugin_task, found)])
    imported = set()
    for name, answer in zip(names, answers, strict=False):
        good = pair_outcome if name == PAIR else partial(import_outcome, items=rows[name])
        imported.update([name] if answer.ok else [])
        yield name, trouble(image, answer) or good(image, answer)
    if PLUGINS in wanted:
        yield PLUGINS, plugins_outcome(image, list(zip(found, answers, strict=True)))
    if PYTHON in wanted:
        # The worker is that `python`, where it is the venv's.
        proved = path_python(image) == image.python and imported & TORCH_NPU
        yield PYTHON, passed(f"{VENV}/bin/python -c 'import torch_npu'") if proved else python_outcome(image)


def trouble(image: Image, answer: Answer) -> Outcome | None:
    """The failure of a module that did not load or was built for another chip; None without one."""
    if not answer.ok:
        return failed_import(image, answer)
    wrong_soc = next((line.strip() for line in answer.noise.splitlines() if WRONG_SOC.search(line)), "")
    return failed(f"was built for another chip: {wrong_soc}") if wrong_soc else None


def _task(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worker's task for the entries of one module; without any it is the pair's."""
    if not items:
        return {"do": "pair"}
    attributes = [item["attribute"] for item in items if item.get("attribute")]
    # Of a module that a patch changes its own process counts.
    alone = any("after" in item for item in items)
    return {"do": "import", "module": items[0]["module"], "attributes": attributes, "alone": alone}


def import_outcome(image: Image, answer: Answer, items: Sequence[Mapping[str, Any]]) -> Outcome:
    """Judges an import that went through: the attributes that the manifest expects, and the file that is patched."""
    faults = []
    for item in items:
        if "after" in item and os.path.realpath(answer.result["file"]) != os.path.realpath(image.path(item["path"])):
            found = image.shown(answer.result["file"]) or "a folder without code"
            faults.append(f"{item['module']} comes from {found}, not from {item['path']}, which is patched")
        if item.get("attribute") and item.get("equals") is not None:
            found = answer.result["values"][item["attribute"]]
            if found != item["equals"] and not same_version(item["equals"], found):
                faults.append(f"{item['module']}.{item['attribute']} is {found}, the manifest says {item['equals']}")
    version, file = answer.result["version"], answer.result["file"]
    trees = {item["component"] for item in image.manifest["sources"]}
    # Without __init__.py a folder imports as a namespace package. Some trees have such on purpose; elsewhere it is
    # left of a removed package.
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
    if release(found["torch"]) != release(found["torch_npu"]):
        faults.append(f"torch_npu {found['torch_npu']} is not made for torch {found['torch']}")
    if not found["extension"].endswith(".so"):
        faults.append(f"torch_npu's C extension is not loaded (torch_npu._C: {found['extension'] or 'absent'})")
    abi = image.manifest["base"]["atb_abi"]
    if found["abi"] != abi:
        faults.append(f"torch has the C++ ABI {found['abi']}, ATB of this image {abi}")
    notes = f"NPU available: {found['available']}"
    return judged(faults, f"torch {found['torch']} and torch_npu {found['torch_npu']}, C++ ABI {found['abi']}; {notes}")


def plugins_outcome(image: Image, answers: Sequence[tuple[EntryPoint, Answer]]) -> Outcome:
    """Judges the plugins as loaded; vLLM without a platform plugin would not know the NPU."""
    faults: list[str] = []
    details: list[str] = []
    good = []
    if not any(point.group == PLATFORM for point, _ in answers):
        faults.append(f"no distribution of the manifest is a platform plugin of vLLM (entry points {PLATFORM})")
    for point, answer in answers:
        bad = trouble(image, answer)
        if bad:
            faults.append(f"{shown(point)}: {bad.message}")
            details += bad.details
        elif not answer.result["file"]:
            where = " and ".join(map(image.shown, answer.result["places"])) or "nowhere"
            faults.append(f"{shown(point)}: {plugin_task(point)['module']} is a folder without code: {where}")
        else:  # static.shadow looks where its module comes from
            file, gone = image.shown(answer.result["file"]), answer.result["lacks"]
            faults += [f"{shown(point)}: {file} has no {gone}"] if gone else []
            faults += [] if answer.result["seen"] else [f"{shown(point)}: Python does not find this entry point"]
        gives = answer.result["gives"] if answer.ok else ""
        good.append(f"{shown(point)} gives {gives}" if gives else shown(point))
    outcome = judged(faults, "; ".join(good))
    return replace(outcome, details=(*outcome.details, *details))


def old_nnal(image: Image, symbol: str) -> str:
    """The message about a symbol of ATB that torch_npu needs and NNAL does not define."""
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
