"""The table of checks, and how they are run: in order, each guarded, with the rule for skips applied."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from queue import SimpleQueue
from threading import Thread
from typing import Any

from verifying import access, base, environment, leftovers, libraries, npu, packages, shadow, train
from verifying.image import Image
from verifying.imports import PAIR, PLUGINS, PYTHON, has_pair, has_plugins, import_ids, import_outcomes
from verifying.manifest import nearest
from verifying.npu import five_points
from verifying.outcome import Outcome, failed, judged, skipped
from verifying.train import tidy

LEVELS = ("static", "import", "npu", "train")
USUAL = LEVELS[:3]  # train takes minutes and writes: it runs when it is asked for by name
# A check is skipped where a check that it needs has failed: it would only repeat that failure.
NEEDS = {**npu.NEEDS, **train.NEEDS, "train.step": (*train.NEEDS["train.step"], *npu.NEEDS["npu.tensor"], "npu.tensor")}


def manifest_check(image: Image) -> Outcome:
    """The manifest was read (else no check runs at all), and names only checks that exist."""
    manifest, known = image.manifest, {*CHECKS, PAIR, PLUGINS, PYTHON, *check_ids(image.manifest)}
    strange = [name for name in manifest["may_skip"] if name not in known]
    faults = [f"may_skip names an unknown check {name}{nearest(name, known)}" for name in strange]
    other = [name for name in import_ids(manifest) if name in {PLUGINS, PYTHON}]
    faults += [f"checks.imports names a module whose check would be {name}, which is another check" for name in other]
    if not manifest["wheels"]:
        faults.append("wheels is empty: nothing to prove")
    about = f"plan {manifest['plan']} of profile {manifest['profile']}"
    more = f", {len(manifest['sources'])} sources" if manifest["sources"] else ""
    return judged(faults, f"{about}, {len(manifest['wheels'])} distributions{more}")


# In the order in which they run; the checks of the level import come from the manifest.
CHECKS: dict[str, Callable[[Image], Outcome]] = {
    "static.manifest": manifest_check,
    "static.python": base.python_check,
    "static.base": base.base_check,
    "static.wheels": packages.wheels_check,
    "static.sources": packages.sources_check,
    "static.files": packages.files_check,
    "static.patches": packages.patches_check,
    "static.env": environment.env_check,
    "static.set-env": environment.set_env_check,
    "static.preload": environment.preload_check,
    "static.libraries": libraries.libraries_check,
    "static.programs": environment.programs_check,
    "static.shadow": shadow.shadow_check,
    "static.device-type": libraries.device_check,
    "static.pip-check": packages.pip_check,
    "static.readable": access.readable_check,
    "static.user": access.user_check,
    "static.writable": access.writable_check,
    "static.leftovers": leftovers.leftovers_check,
    "static.shm": base.shm_check,
    "npu.nodes": npu.nodes_check,
    "npu.driver": npu.driver_check,
    "npu.smi": npu.smi_check,
    "npu.visible": npu.visible_check,
    "npu.network": npu.network_check,
    "npu.count": npu.count_check,
    "npu.tensor": npu.tensor_check,
    **train.CHECKS,
}


def check_ids(manifest: Mapping[str, Any]) -> list[str]:
    """The ids of all checks of an image, in the order in which they run."""
    pair = has_pair(manifest)
    static = [name for name in CHECKS if name.startswith("static.")]
    left = {
        *(() if pair else ("npu.count", "npu.tensor")),
        *(() if manifest.get("several_hosts") else ("npu.network",)),
    }
    npus = [name for name in CHECKS if name.startswith("npu.") and name not in left]
    more = [*([PAIR, PYTHON] if pair else []), *([PLUGINS] if has_plugins(manifest) else [])]
    trains = [*train.CHECKS] if train.trainer(manifest) else []
    return [*static, *import_ids(manifest), *more, *npus, *trains]


def run_checks(
    image: Image, wanted: Sequence[str], tell: Callable[[Outcome], None] = lambda _outcome: None
) -> list[Outcome]:
    """Runs the checks named by id; `tell` gets each outcome when its check ends. The rule for skips is applied."""
    found: dict[str, Outcome] = {}

    def end(name: str, outcome: Outcome) -> None:
        if name not in found:
            found[name] = replace(allowed_skip(image, name, outcome), id=name, level=name.split(".", maxsplit=1)[0])
            tell(found[name])

    imports = begin_imports(image, [name for name in wanted if name.startswith("import.")])
    no_npu = npu.why_no_npu(image)
    try:
        for name in wanted:
            ground = [other for other in NEEDS.get(name, ()) if other in found and found[other].status == "failed"]
            while name.startswith("import.") and name not in found:
                end(*imports.get())
            if no_npu and needs_npu(name):
                end(name, skipped(no_npu, five_points(image) if name == "npu.nodes" and no_npu == npu.NO_NPU else ()))
            elif name not in found:
                end(name, skipped(f"{ground[0]} failed") if ground else guarded(CHECKS[name], image))
    finally:
        tidy(image)
    return [found[name] for name in wanted]


def begin_imports(image: Image, names: Sequence[str]) -> "SimpleQueue[tuple[str, Outcome]]":
    """Starts the import checks, whose work is in other processes, beside the checks before them; gives what ended."""
    ended: SimpleQueue[tuple[str, Outcome]] = SimpleQueue()

    def work() -> None:
        try:
            for item in import_outcomes(image, names):
                ended.put(item)
        except Exception as error:  # should their machinery break, that is the failure of each that has not ended
            for name in names:
                ended.put((name, broken(error)))

    if names:
        image.begin()
        Thread(target=work, daemon=True).start()
    return ended


def needs_npu(name: str) -> bool:
    """Whether a check cannot be looked at without an NPU."""
    return name.startswith("npu.") or name == "train.step"


def guarded(function: Callable[[Image], Outcome], image: Image) -> Outcome:
    """A check that raises is that check's failure."""
    try:
        return function(image)
    except Exception as error:
        return broken(error)


def broken(error: Exception) -> Outcome:
    """A check that raised: the error with function, line and file, in place of a traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        where = f" (in {code.co_name}, line {trace.tb_lineno} of {PurePath(code.co_filename).name})"
    return failed(f"the check itself broke: {type(error).__name__}: {' '.join(str(error).split())[:300]}{where}")


def allowed_skip(image: Image, name: str, outcome: Outcome) -> Outcome:
    """A skip is a failure unless the manifest allows it, the user asked for it, or it follows from another failure."""
    asked = outcome.message == "--no-device" or (image.options.require_npu and needs_npu(name))
    follows = outcome.message.endswith(" failed")
    if outcome.status != "skipped" or asked or follows or name in image.manifest["may_skip"]:
        return outcome
    return failed(f"skipped ({outcome.message}), and the manifest's may_skip does not allow that", outcome.details)
