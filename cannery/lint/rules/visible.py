"""Which cards the container sees, as several words may say it: nodes, the ascend runtime's variable, the program's own.

ASCEND_VISIBLE_DEVICES counts the host's cards and is read by the ascend runtime alone, before the container starts.
ASCEND_RT_VISIBLE_DEVICES counts the container's own cards, from 0, and is read by CANN in it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.npus import parse_cards
from cannery.lint.case import RUNTIME_DEVICES, VISIBLE, remark, remove, replace
from cannery.lint.shell_words import is_open
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.lint.case import Case, Remark

# "" and `void`: no card (Ascend Docker Runtime, usage on the client); its other forms name cards by other means.
NO_CARD = frozenset({"", "void"})
CARD_NUMBER = re.compile(r"[0-9]{1,4}")
OTHER_FORMS = re.compile(r"(?:npu|Ascend)[\w-]*\d", re.IGNORECASE)


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
    variable = case.container.env.get(RUNTIME_DEVICES)
    named, cards = runtime_cards(case), case.container.cards
    if variable is None or variable.value is None or is_open(variable.value):
        runtime = case.container.last("runtime")
        elsewhere = case.container.opaque or case.container.all("env-file")  # whence it may come
        if variable is None and not elsewhere and runtime and case.names_runtime:
            what = (
                f"{runtime.word} without {RUNTIME_DEVICES}: the runtime gives no card, unless the image's ENV names it"
            )
            why = "it maps the cards that the variable names, and no other (Ascend Docker Runtime, usage)"
            severity = Severity.ERROR if case.told.ours else Severity.WARNING
            yield remark(severity, "visible.none", runtime.word, what, why, f"-e {RUNTIME_DEVICES}=0,1")
        return
    word = variable.setting.word
    if named is None:
        if variable.value not in NO_CARD and not OTHER_FORMS.match(variable.value):
            what = f"{word}: {variable.value!r} names no cards"
            yield remark(
                Severity.ERROR, "visible.text", word, what, "numbers of the host's cards", "written like 0,1,4-7"
            )
    elif case.names_runtime:
        return  # which gives its cards on top of the nodes: `mixed` says so
    elif cards and set(named) != set(cards):
        what = f"{word} names cards {_listed(named)}, and the nodes are those of {_listed(cards)}"
        why = "the ascend runtime alone reads the variable; without it the nodes decide"
        edits = () if case.container.value("runtime") else (remove(variable.setting),)
        fix = f"leave {RUNTIME_DEVICES} out, or name the same cards"
        yield remark(Severity.ERROR, "visible.nodes", word, what, why, fix, *edits)
    elif not case.container.value("runtime"):
        what = f"{word} is read by the ascend runtime alone, and the command does not name it"
        fix = f"leave {RUNTIME_DEVICES} out" if cards else "--runtime ascend, unless it is the engine's default runtime"
        yield remark(Severity.NOTE, "visible.unread", word, what, "the nodes that are mapped are what counts", fix)


def own_variable(case: Case) -> Iterator[Remark]:
    """Judge ASCEND_RT_VISIBLE_DEVICES: a list of numbers below the count of the container's cards."""
    variable = case.container.env.get(VISIBLE)
    if variable is None or not variable.value or is_open(variable.value):
        return
    word, parts = variable.setting.word, [part.strip() for part in variable.value.split(",")]
    if not all(CARD_NUMBER.fullmatch(part) for part in parts):
        what = f"{word}: not a list of cards' numbers"
        why = "CANN reads numbers with commas between them, and no ranges"
        yield remark(Severity.ERROR, "visible.text", word, what, why, f"-e {VISIBLE}=0,1")
        return
    numbers = [int(part) for part in parts]
    double = next((number for number, count in Counter(numbers).items() if count > 1), None)
    if double is not None:
        what = f"{word} names card {double} twice"
        value = ",".join(map(str, dict.fromkeys(numbers)))
        fix, edit = f"-e {VISIBLE}={value}", replace(variable.setting, "-e", f"{VISIBLE}={value}")
        why = "a card counts once: a program that starts a process for each finds too few"
        yield remark(Severity.WARNING, "visible.twice", word, what, why, fix, edit)
    nodes, named = case.container.cards, runtime_cards(case)
    cards = tuple(sorted({*nodes, *(named or ())})) if case.names_runtime else nodes or named or ()
    unknown = case.names_runtime and named is None  # what the image's ENV, or a file, may name
    if not cards or unknown or case.container.opaque:
        return
    beyond = [number for number in numbers if number >= len(cards)]
    if beyond:
        what = f"{word}: index {beyond[0]} is outside 0..{len(cards) - 1}"
        why = "it counts the container's cards, from 0, not the host's (Project-HAMi/HAMi issue 1894)"
        meant = [sorted(cards).index(n) for n in numbers if n in cards] if set(numbers) <= set(cards) else []
        value = ",".join(map(str, meant))
        fix = f"-e {VISIBLE}={value}" if meant else f"numbers of 0..{len(cards) - 1}, or leave it out"
        edits = [replace(variable.setting, "-e", f"{VISIBLE}={value}")] if meant else []
        # A privileged container sees the host's cards, until it is none.
        severity = Severity.WARNING if case.privileged else Severity.ERROR
        yield remark(severity, "visible.index", word, what, why, fix, *edits)


def other_makers(case: Case) -> Iterator[Remark]:
    """Note a variable that chooses GPUs, where somebody may believe that it chooses NPUs."""
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        variable = case.container.env.get(name)
        if variable is not None and case.uses_npu:
            what = f"{variable.setting.word} chooses no NPU"
            fix = f"--device of the cards that are wanted, or {VISIBLE} in the container"
            yield remark(Severity.NOTE, "visible.gpu", variable.setting.word, what, "CANN does not read it", fix)


def _listed(cards: Sequence[int]) -> str:
    return ",".join(map(str, cards))
