"""What pydantic finds wrong in a catalog file, said in the catalog's own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from cannery.catalog.component import Closed
from cannery.catalog.fault import FaultError
from cannery.catalog.fields import TEXT_WANTED, yaml_kind
from cannery.vocab import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_core import ErrorDetails

KEY = "[key]"  # how pydantic marks that a mapping's key is meant, not its value


def key_path(detail: ErrorDetails) -> tuple[str | int, ...]:
    """Return where the fault stands, below the model that was validated."""
    fault = _fault(detail)
    return tuple(part for part in detail["loc"] if part != KEY) + (fault.path if fault is not None else ())


def _fault(detail: ErrorDetails) -> FaultError | None:
    error = _context(detail).get("error")
    return error if isinstance(error, FaultError) else None


class Said(NamedTuple):
    """What is wrong, and what to do about it where that is not plain; without `what` another fault says it already."""

    what: str
    hint: str = ""


def sentence(detail: ErrorDetails, model: type[Closed]) -> Said:
    """Say what is wrong, and what to do. `model` is the one that was validated.

    A kind of fault that has no words here keeps pydantic's.
    """
    fault = _fault(detail)
    if fault is not None:
        return Said(_wanted("a text", detail["input"]) if fault.what == TEXT_WANTED else fault.what, fault.hint)
    say = SENTENCES.get(detail["type"])
    said = say(detail, model) if say else detail["msg"].removeprefix("Value error, ")
    return said if isinstance(said, Said) else Said(said)


def _wanted(what: str, value: object) -> str:
    """Say what is wanted, and what was given in its place."""
    if value is None:
        return f"{what} is wanted here, and nothing is given"
    return f"{what} is wanted here, not {_given(value)}"


def _given(value: object) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else yaml_kind(value) or "that"


def _list(detail: ErrorDetails, model: type[Closed]) -> Said:
    path, value = key_path(detail), detail["input"]
    below = _model_of(_annotation(model, path))
    if below is not None:
        return Said(_wanted(f"a list of mappings like {_example(below)}", value))
    return Said(_wanted("a list", value), f"in brackets it is one: [{value}]" if isinstance(value, str) else "")


def _mapping(detail: ErrorDetails, model: type[Closed]) -> str:
    if detail["type"] == "dict_type":
        return _wanted("a mapping of names to values", detail["input"])
    return _wanted(f"a mapping like {_example(_model_at(model, key_path(detail)))}", detail["input"])


def _example(model: type[Closed]) -> str:
    fields = model.model_fields.items()
    needed = [field.alias or name for name, field in fields if field.is_required()]
    keys = needed or list(_keys(model))[:1]
    return "{" + ", ".join(f"{key}: …" for key in keys) + "}"


def _closed_word(detail: ErrorDetails, _model: type[Closed]) -> Said:
    """A word that is none of a few: all of them, and the nearest."""
    expected = str(_context(detail)["expected"])
    known = re.findall(r"'([^']*)'", expected)
    value = detail["input"]
    if not known or not isinstance(value, str):
        return Said(_wanted(" or ".join(known) or expected, value))
    near = nearest(value, known, count=1)
    hint = f"known: {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")
    return Said(f"{value!r} is not known", hint)


def _too_few(detail: ErrorDetails, _model: type[Closed]) -> str:
    least = _context(detail)["min_length"]
    if len(detail["input"]) >= least:
        return ""  # there are enough, but wrong ones: each of them is a fault of its own
    return f"at least {least} {'entry is' if least == 1 else 'entries are'} wanted here"


def _too_short(detail: ErrorDetails, _model: type[Closed]) -> str:
    return f"{detail['input']!r} is too short: at least {_context(detail)['min_length']} characters are wanted here"


def _unknown_key(detail: ErrorDetails, model: type[Closed]) -> Said:
    path = key_path(detail)
    return Said("unknown key", did_you_mean(str(path[-1]), _keys(_model_at(model, path[:-1]))))


def not_a_text(key: object) -> Said:
    """Say that a key of a mapping is none, and what to write in its place."""
    return Said(f"the key {key} is no text", f'quote it: "{key}"')


def _number(detail: ErrorDetails, _model: type[Closed]) -> str:
    least = _context(detail).get("ge")
    return _wanted("a whole number", detail["input"]) if least is None else f"at least {least} is wanted here"


def _context(detail: ErrorDetails) -> Mapping[str, Any]:
    return detail.get("ctx", {})


# By pydantic's error types (its documentation, "Validation Errors").
SENTENCES: Mapping[str, Callable[[ErrorDetails, type[Closed]], Said | str]] = {
    "missing": lambda _detail, _model: Said("missing", "this key has to be given"),
    "extra_forbidden": _unknown_key,
    "invalid_key": lambda detail, _model: not_a_text(detail["input"]),
    "tuple_type": _list,
    "list_type": _list,
    "dict_type": _mapping,
    "model_type": _mapping,
    "string_type": lambda detail, _model: _wanted("a text", detail["input"]),
    "string_too_short": _too_short,
    "too_short": _too_few,
    "literal_error": _closed_word,
    "enum": _closed_word,
    "int_type": _number,
    "int_parsing": _number,
    "int_from_float": _number,
    "greater_than_equal": _number,
    "bool_type": lambda detail, _model: _wanted("true or false", detail["input"]),
    "bool_parsing": lambda detail, _model: _wanted("true or false", detail["input"]),
}


def _keys(model: type[Closed]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _annotation(model: type[Closed], path: tuple[str | int, ...]) -> object:
    """Return the annotation of the field at `path`; None where `path` does not end in a field."""
    field = _model_at(model, path[:-1]).model_fields.get(str(path[-1])) if path else None
    return field.annotation if field is not None else None


def _model_at(model: type[Closed], path: tuple[str | int, ...]) -> type[Closed]:
    """Return the model at `path` below `model` (best effort, for a hint)."""
    current: type[Closed] = model
    for part in path:
        # Positions in lists and names in tables of models are not fields: the model below them is already at hand.
        field = current.model_fields.get(str(part))
        current = (_model_of(field.annotation) if field is not None else None) or current
    return current


def _model_of(annotation: object) -> type[Closed] | None:
    """Return the model in `tuple[Model, ...]`, `dict[str, Model]`, `Model | None` or `Model`."""
    if isinstance(annotation, type) and issubclass(annotation, Closed):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_of(part))), None)
