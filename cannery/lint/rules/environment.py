"""Variables: which cards the container sees, and new values that replace what the image has.

ASCEND_VISIBLE_DEVICES counts the host's cards and is read by the ascend runtime alone, before the container starts.
ASCEND_RT_VISIBLE_DEVICES counts the container's own cards, from 0, and is read by CANN in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.facts import card_text, parse_cards
from cannery.lint.container import RUNTIME_DEVICES, VISIBLE, Remark
from cannery.lint.shell import is_open
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.container import Case

# "" and `void`: no card (Ascend Docker Runtime, usage on the client); its other forms name cards by other means.
NO_CARD = frozenset({"", "void"})
CARD_NUMBER = re.compile(r"[0-9]{1,4}")
OTHER_FORMS = re.compile(r"(?:npu|Ascend)[\w-]*\d", re.IGNORECASE)
# Lists of paths that CANN's images and Cannery's set in their ENV, and what is lost with them.
LISTS = {
    "LD_LIBRARY_PATH": "the folders of CANN's and the driver's libraries",
    "PATH": "the folders of the image's Python and of CANN's tools",
    "PYTHONPATH": "CANN's own Python packages and the trees of the image",
}
# A value with one of these was written with the image's own in mind.
KEPT = re.compile(r"/usr/local/Ascend/(?!driver)|/opt/venv")


def runtime_cards(case: Case) -> tuple[int, ...] | None:
    """Return the host's cards that ASCEND_VISIBLE_DEVICES names; None where it names none that can be read."""
    text = case.env(RUNTIME_DEVICES)
    if text in NO_CARD or is_open(text):
        return None
    try:
        return parse_cards(text)
    except UsageError:
        return None


def runtime_variable(case: Case) -> Iterator[Remark]:
    """Compare ASCEND_VISIBLE_DEVICES with the nodes that are mapped, and with the runtime that has to read it."""
    variable, runtime = case.container.env.get(RUNTIME_DEVICES), case.container.last("runtime")
    if variable is None and runtime and case.names_runtime:
        what = f"{runtime.word} without {RUNTIME_DEVICES}: the runtime gives no card, unless the image's ENV names it"
        why = "it maps the cards that the variable names, and no other (Ascend Docker Runtime, usage)"
        yield Remark(Severity.WARNING, "visible.none", runtime.word, what, why, f"-e {RUNTIME_DEVICES}=0,1")
    if variable is None or variable.value in {None, *NO_CARD} or is_open(variable.value or ""):
        return
    named, cards, word = runtime_cards(case), case.container.cards, variable.word
    if named is None and not OTHER_FORMS.match(variable.value or ""):
        what, fix = f"{word}: {variable.value!r} names no cards", "written like 0,1,4-7"
        yield Remark(Severity.ERROR, "visible.text", word, what, "numbers of the host's cards", fix)
    elif named is None or case.names_runtime:
        return  # which gives its cards on top of the nodes: `mixed` reports it
    elif cards and not case.has_open_card and set(named) != set(cards):
        what = f"{word} names cards {card_text(named)}, and the nodes are those of {card_text(cards)}"
        why = "the ascend runtime alone reads the variable; without it the nodes decide"
        fix = f"leave {RUNTIME_DEVICES} out, or name the same cards"
        yield Remark(Severity.ERROR, "visible.nodes", word, what, why, fix)
    elif runtime is None:
        what = f"{word} is read by the ascend runtime alone, and the command does not name it"
        fix = f"leave {RUNTIME_DEVICES} out" if cards else "--runtime ascend, unless it is the engine's default runtime"
        yield Remark(Severity.NOTE, "visible.unread", word, what, "the nodes that are mapped are what counts", fix)


def own_variable(case: Case) -> Iterator[Remark]:
    """Judge ASCEND_RT_VISIBLE_DEVICES: a list of numbers below the count of the container's cards."""
    variable = case.container.env.get(VISIBLE)
    if variable is None or not variable.value or is_open(variable.value):
        return
    word, parts = variable.word, [part.strip() for part in variable.value.split(",")]
    if not all(CARD_NUMBER.fullmatch(part) for part in parts):
        what = f"{word}: not a list of cards' numbers"
        why = "CANN reads numbers with commas between them, and no ranges"
        yield Remark(Severity.ERROR, "visible.text", word, what, why, f"-e {VISIBLE}=0,1")
        return
    yield from _index(case, word, [int(part) for part in parts])


def _index(case: Case, word: str, numbers: list[int]) -> Iterator[Remark]:
    """Report a number that the container has no card for."""
    nodes, named = case.container.cards, runtime_cards(case)
    cards = sorted({*nodes, *(named or ())}) if case.names_runtime else list(nodes or named or ())
    # What the image's ENV, a file or a shell may name.
    is_unknown = (case.names_runtime and named is None) or case.has_open_card
    beyond = [number for number in numbers if number >= len(cards)]
    if not cards or is_unknown or case.container.opaque or not beyond:
        return
    what = f"{word}: index {beyond[0]} is outside 0..{len(cards) - 1}"
    why = "it counts the container's cards, from 0, not the host's (Project-HAMi/HAMi issue 1894)"
    meant = [cards.index(number) for number in numbers] if set(numbers) <= set(cards) else []
    fix = f"-e {VISIBLE}={','.join(map(str, meant))}" if meant else f"numbers of 0..{len(cards) - 1}, or leave it out"
    # A privileged container sees the host's cards.
    severity = Severity.WARNING if case.container.switch("privileged") else Severity.ERROR
    yield Remark(severity, "visible.index", word, what, why, fix)


def lists(case: Case) -> Iterator[Remark]:
    """Warn where a list of paths loses what the image has in it."""
    for name, lost in LISTS.items():
        variable = case.container.env.get(name)
        if variable is None or not (case.image.ascend or case.uses_npu):
            continue
        word = variable.word
        if variable.value and re.search(r"/devlib(/|:|$)", variable.value):
            what = f"{word}: devlib has a stub of the driver's library"
            why = "it is for builds on machines without a driver; at run time no NPU is found (vllm-ascend pull 661)"
            yield Remark(Severity.ERROR, "env.devlib", word, what, why, "leave it out")
        elif not KEPT.search(variable.value or ""):
            what = f"{word} replaces the image's {name}: {lost} are gone"
            why = "docker does not join it with the ENV of the image"
            fix = f"set it in the container, where the image's own is known: sh -c 'export {name}=DIR:${name}; exec …'"
            # Cannery's images have all in ENV; others' may set it again in their entry point or a shell's files.
            is_sure = name == "PATH" or (name == "LD_LIBRARY_PATH" and case.image.ours)
            yield Remark(Severity.ERROR if is_sure else Severity.WARNING, "env.lost", word, what, why, fix)
