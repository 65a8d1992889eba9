"""The form of a JSON value, and every place where a value departs from it.

A form is a dict (an object with these keys; `key?` may be absent, `*` alone stands for any key), a list (of one form),
a tuple (the values allowed), `Maybe`, a pattern that the whole text matches, PATTERN, or str, int (not negative), bool.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

PATTERN = re.compile  # stands for "a text that is a regular expression"
KINDS: dict[object, str] = {dict: "an object", list: "a list", str: "text", int: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Maybe:
    """A value of a form, or null."""

    form: object


def form_faults(value: object, form: object, where: str = "") -> list[str]:
    """Every place where `value` departs from `form`, as "where: what"."""
    if isinstance(form, Maybe):
        return [] if value is None else form_faults(value, form.form, where)
    wrong = _wrong(value, form)
    if wrong:
        return [f"{where or 'manifest'}: {wrong} {shown(value)}"]
    if isinstance(value, list) and isinstance(form, list):
        return [fault for at, item in enumerate(value) for fault in form_faults(item, form[0], f"{where}[{at}]")]
    return _key_faults(value, form, where) if isinstance(value, dict) and isinstance(form, dict) else []


def _wrong(value: object, form: object) -> str:
    """How a value departs from a form, what is inside it left aside; "" when it does not."""
    if form is PATTERN:
        try:
            re.compile(value if isinstance(value, str) else "(")
        except re.error as error:
            return f"not a regular expression ({error}):"
        return ""
    if isinstance(form, tuple):
        good, wanted = value in form and not isinstance(value, bool), " or ".join(map(str, form))
    elif isinstance(form, re.Pattern):
        good, wanted = isinstance(value, str) and form.fullmatch(value) is not None, f"text like {form.pattern}"
    else:
        kind = form if isinstance(form, type) else type(form)
        good, wanted = type(value) is kind and not (isinstance(value, int) and value < 0), KINDS[kind]
    return "" if good else f"expected {wanted}, found"


def _key_faults(value: dict[str, object], form: dict[str, object], where: str) -> list[str]:
    path = f"{where}." if where else ""
    if "*" in form:
        return [fault for key in value for fault in form_faults(value[key], form["*"], f"{path}{key}")]
    known = {key.rstrip("?"): key for key in form}
    faults = [f"{path}{key}: missing" for key, raw in known.items() if key not in value and key == raw]
    faults += [f"{path}{key}: unknown key{nearest(key, known)}" for key in sorted(set(value) - set(known))]
    for key, raw in known.items():
        if key in value:
            faults += form_faults(value[key], form[raw], f"{path}{key}")
    return faults


def nearest(word: str, known: Iterable[str]) -> str:
    """The word that was probably meant, in brackets; "" when none is near."""
    near = get_close_matches(word, list(known), 1)
    return f" (nearest: {near[0]})" if near else ""


def shown(value: object) -> str:
    """A value as JSON, cut to one line of a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
