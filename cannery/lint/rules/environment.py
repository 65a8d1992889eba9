"""Variables whose new value takes the place of what the image has, or is not what it looks like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.case import remark, remove
from cannery.lint.shell_words import is_open
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark
    from cannery.lint.container import Variable

# Lists of paths that CANN's images and Cannery's set in their ENV, and what is lost with them.
LISTS = {
    "LD_LIBRARY_PATH": "the folders of CANN's and the driver's libraries",
    "PATH": "the folders of the image's Python and of CANN's tools",
    "PYTHONPATH": "CANN's own Python packages and the trees of the image",
}
# A value that has one of these was written with the image's own in mind.
KEPT = re.compile(r"/usr/local/Ascend/(?!driver)|/opt/venv")
JEMALLOC = "/usr/local/lib/libjemalloc.so.2"
# Where distributions keep their libraries: a path of one is not there on another.
FOREIGN = ((re.compile(r"/usr/lib/\w+-linux-gnu/"), "openeuler"), (re.compile(r"/usr/lib64/"), "ubuntu"))


def split_value(case: Case) -> Iterator[Remark]:
    """Find `-e LD_PRELOAD=a $LD_PRELOAD`: two words, of which docker takes the second for the image."""
    for name, variable in case.container.env.items():
        loose = [word for word in (*case.container.opaque, case.container.image) if _is_of(word, name, variable)]
        if loose:
            what = f"{loose[0]} behind {variable.setting.word} is a word of its own: docker takes it for the image"
            why = "a value with a blank needs quotes; and a variable there is the host's, not the image's"
            fix = (
                f"one word; to keep the image's value, set it in the container: sh -c 'export {name}=…:${name}; exec …'"
            )
            yield remark(Severity.ERROR, "env.split", loose[0], what, why, fix)


def _is_of(word: str, name: str, variable: Variable) -> bool:
    """Whether a word without an option is the rest of a variable's value: itself, or a library behind a library."""
    return word in {f"${name}", f"${{{name}}}"} or (".so" in word and ".so" in (variable.value or ""))


def lists(case: Case) -> Iterator[Remark]:
    """Warn where a list of paths loses what the image has in it."""
    for name, lost in LISTS.items():
        variable = case.container.env.get(name)
        if variable is None or not (case.told.ascend or case.uses_npu):
            continue
        word = variable.setting.word
        if variable.value and re.search(r"/devlib(/|:|$)", variable.value):
            what = f"{word}: devlib has a stub of the driver's library"
            why = "it is for builds on machines without a driver; at run time no NPU is found (vllm-ascend pull 661)"
            yield remark(Severity.ERROR, "env.devlib", word, what, why, "leave it out", remove(variable.setting))
        elif not KEPT.search(variable.value or ""):
            what = f"{word} takes the place of the image's {name}: {lost} are gone{_host_value(variable)}"
            why = "docker does not join it with the ENV of the image"
            fix = f"set it in the container, where the image's own is known: sh -c 'export {name}=DIR:${name}; exec …'"
            # Cannery's images have all in ENV; others' may set it again in their entry point or a shell's files.
            grave = name == "PATH" or (name == "LD_LIBRARY_PATH" and case.told.ours)
            yield remark(Severity.ERROR if grave else Severity.WARNING, "env.lost", word, what, why, fix)


def _host_value(variable: Variable) -> str:
    if variable.value is None:
        return f" (without a value, {variable.name} is the host's)"
    if f"${variable.name}" in variable.value or f"${{{variable.name}}}" in variable.value:
        return f" (${variable.name} is filled in by the host's shell, or by nobody)"
    return ""


def preload(case: Case) -> Iterator[Remark]:
    """Judge LD_PRELOAD: ld.so only warns about a file that is not there, and goes on without it."""
    variable = case.container.env.get("LD_PRELOAD")
    if variable is None or not variable.value:
        return
    word = variable.setting.word
    entries = [entry for entry in re.split(r"[\s:]+", variable.value) if entry and not is_open(entry)]
    for entry in entries:
        wrong = next((os for pattern, os in FOREIGN if pattern.match(entry) and case.told.os.startswith(os)), "")
        if wrong:
            what = f"{word}: {entry} is not where {case.told.os} has it"
            why = "ld.so warns and goes on without it (gpustack/gpustack issue 5660)"
            fix = f"leave LD_PRELOAD out, the image sets {JEMALLOC}" if case.told.ours else "the path of the image's OS"
            edits = [remove(variable.setting)] if case.told.ours else []
            yield remark(Severity.ERROR, "env.preload", word, what, why, fix, *edits)
        elif case.told.ours and entry != JEMALLOC and "jemalloc" in entry:
            what = f"{word}: the image has jemalloc at {JEMALLOC}, on every OS and CPU"
            why = "and sets LD_PRELOAD itself (gpustack/gpustack issue 5660)"
            yield remark(Severity.WARNING, "env.preload", word, what, why, "leave it out", remove(variable.setting))
    if case.told.ours and not any("jemalloc" in entry for entry in entries):
        what = f"{word} takes the place of the image's LD_PRELOAD, which is jemalloc{_host_value(variable)}"
        yield remark(
            Severity.WARNING, "env.lost", word, what, "docker does not join them", f"-e LD_PRELOAD={JEMALLOC}:…"
        )


def entry_point(case: Case) -> Iterator[Remark]:
    """Note that CANN's images source their scripts in the entry point; Cannery's have it all in ENV."""
    setting = case.container.last("entrypoint")
    if setting is not None and case.told.cann and not case.told.ours:
        what = f"{setting.word} takes the place of the image's entry point, which sources CANN's set_env.sh"
        fix = "source it in your own: . /usr/local/Ascend/ascend-toolkit/set_env.sh"
        why = "what ENV has not is missing then; `docker exec` skips it too"
        yield remark(Severity.NOTE, "entrypoint", setting.word, what, why, fix)


def chip_words(case: Case) -> Iterator[Remark]:
    """Compare what SOC_VERSION says of the chip with what the image is for."""
    variable = case.container.env.get("SOC_VERSION")
    chip = case.told.chip
    if variable is None or chip is None or not variable.value or is_open(variable.value):
        return
    known = {soc.lower(): Chip(name) for name, access in case.ground.chips.items() for soc in access.socs}
    said = known.get(variable.value.lower())
    if said is not None and said is not chip:
        what = f"{variable.setting.word} is chip {said}, and {case.container.image} is for {chip}"
        fix = f"-e SOC_VERSION={next(iter(case.ground.chips[chip].socs), '')}, or the image for {said}"
        why = "kernels that are compiled for another chip do not load"
        yield remark(Severity.ERROR, "chip", variable.setting.word, what, why, fix)
