"""The checks of the level import: the manifest's modules, torch with torch_npu, and the plugins of vLLM and torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from verifying.image import Image
from verifying.in_force import patch_ids, patch_outcome, patch_skip, patch_tasks
from verifying.loader import advice, missing_library
from verifying.manifest import installed, not_imported
from verifying.outcome import Outcome, failed, judged, skipped
from verifying.plugins import PLATFORM, PLUGINS, Plugin, plugin_faults, plugins
from verifying.versions import normal_name, same_version, version_key
from verifying.worker import Answer, work

PAIR = "import.torch-npu-pair"
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


def import_outcomes(image: Image, wanted: Sequence[str]) -> dict[str, Outcome]:
    """Runs the import checks named by id, together in as few children as possible."""
    standin = image.manifest["base"]["kind"] == "standin"
    left_out = [name for name in wanted if standin and name in image.manifest["may_skip"]]
    reasons = not_imported(image.manifest)
    usual = "the manifest leaves it out on a stand-in base"
    outcomes = {name: skipped(f"stand-in: {reasons.get(name, usual)}") for name in left_out}
    by_patch = patch_ids(image.manifest)
    outcomes |= {name: skip for name in wanted if name in by_patch and (skip := patch_skip(image, name))}
    wanted = [name for name in wanted if name not in outcomes]
    asked = PLUGINS in wanted
    names = [name for name in wanted if name not in by_patch and name != PLUGINS]
    table, found = import_ids(image.manifest), plugins(image) if asked else []
    tasks = [_task(table.get(name, ())) for name in names]
    # Patches last: what the other imports put in the place of a patched function is seen then.
    of_patches = {name: patch_tasks(image, name) for name in wanted if name in by_patch}
    more = [task for tasks in of_patches.values() for task in tasks]
    answers = work(image, [*tasks, *(plugin.task for plugin in found), *more])
    rest = iter(answers[len(answers) - len(more) :])
    for name, mine in of_patches.items():
        outcomes[name] = patch_outcome(image, name, list(islice(rest, len(mine))), failed_import)
    answers = answers[: len(answers) - len(more)]
    for name, answer in zip(names, answers[: len(names)], strict=True):
        good = pair_outcome if name == PAIR else partial(import_outcome, items=table[name])
        outcomes[name] = trouble(image, answer) or good(image, answer)
    if asked:
        outcomes[PLUGINS] = plugins_outcome(image, list(zip(found, answers[len(names) :], strict=True)))
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
    version, file = answer.result["version"], answer.result["file"] or "(no file)"
    return judged(faults, f"{items[0]['module']}{' ' + version if version else ''} from {image.shown(file)}")


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
    told = f"NPU available: {found['available']}"
    return judged(faults, f"torch {found['torch']} and torch_npu {found['torch_npu']}, C++ ABI {found['abi']}; {told}")


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


def failed_import(image: Image, answer: Answer) -> Outcome:
    """A failed import by its first cause: a missing library before the symptoms that follow from it (D02)."""
    noise = [line for line in answer.noise.splitlines() if line.strip()][-8:]
    missing = missing_library(answer.causes)
    if missing:
        return failed(f"{missing} is not found: {advice(image, missing)}", [*answer.causes, *noise])
    first = answer.causes[0]
    short = first if len(first) <= 200 else first[:199] + "…"
    return failed(short, [*answer.causes[short == first :], *noise])
