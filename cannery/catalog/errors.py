"""Errors in catalog files: those of our validators and those of pydantic, with file and line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from cannery.errors import UsageError
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel, ValidationError

MASK = "***"
# The user part of a URL, with or without its scheme (`user:password@host`), up to the last @ of the line, because a
# password may contain any character.
_USERINFO = re.compile(r"(?<=://).*@|(?<![\w.+%-])[\w.+%-]+:(?![\s/]).*@")
# Longer messages, which quote a long value, are cut.
LONGEST = 1200
KEY = "[key]"  # pydantic's mark for an error in a mapping's key, not its value
# Kinds of components that no longer exist, and what to use instead.
GONE_KINDS = {"archive": "take a component of kind system, native or source, or make a wheel of it and name WHEELHOUSE"}
# Keys that no longer exist, and what to write instead.
GONE_KEYS = {
    "fuzz": "name patches whose files are cut off in `truncated`, and make others again: build.py patches port",
    "documented": "leave it out; PIN=NAME==VERSION takes the version that a guide names",
}
# Messages in YAML's terms for some of pydantic's error types.
YAML_WORDS = {
    "tuple_type": "a list is expected here",
    "dict_type": "a mapping is expected here",
    "model_type": "a mapping is expected here",
    "model_attributes_type": "a mapping is expected here",
    "too_short": "at least {min_length} is needed here",
}


class FaultError(ValueError):
    """An error of a validator: `what` is wrong, `hint` is what to do (may be ""), `path` is its place in the value.

    It is a `ValueError`, so pydantic collects it, and `faults` returns it.
    """

    def __init__(self, what: str, hint: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.path = path


class CatalogError(UsageError):
    """A broken catalog; `parts` are all its problems, in the order in which the files are read.

    With several problems, `what` lists them, one per line.
    """

    def __init__(self, parts: Sequence[UsageError]) -> None:
        if len(parts) == 1:
            other = "docs/reference/fields.md explains the fields; the other entries show the form"
            super().__init__(parts[0].what, where=parts[0].where, hint=parts[0].hint or other)
        else:
            lines = "\n".join(as_line(part) for part in parts)
            hint = "fix them from the top: one may be the cause of others"
            super().__init__(f"{len(parts)} problems\n{lines}", where="images/", hint=hint)
        self.parts = tuple(parts)


def problem(where: str, what: str, hint: str = "") -> UsageError:
    """Return one part of a `CatalogError`, without credentials, and with long texts cut."""
    return UsageError(_shown(what), where=where, hint=_shown(hint))


def as_line(part: UsageError) -> str:
    """Return a problem as one line."""
    return f"{part.where}: {part.what}" + (f"; {part.hint}" if part.hint else "")


def without_secrets(text: str) -> str:
    """Return `text` with the user parts of URLs masked. It may mask too much, but never too little."""
    return _USERINFO.sub(f"{MASK}@", text) if "@" in text else text


def _shown(text: str) -> str:
    shown = without_secrets(text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def faults(error: ValidationError, annotation: object) -> Iterator[FaultError]:
    """Yield all errors that pydantic found in a value; `annotation` is the type that it was validated as."""
    for detail in error.errors(include_url=False):
        kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
        if kind == "too_short" and len(value) >= context["min_length"]:
            continue  # there are enough items, but some are wrong: each is reported itself
        models = list(_models(annotation))
        path = tuple(part for part in detail["loc"] if part != KEY)
        if len(models) > 1:  # the first part of the path may be the tag of a union
            kinds = ((model, model.model_fields.get("kind")) for model in models)
            if tagged := [model for model, field in kinds if field and path and path[0] in get_args(field.annotation)]:
                models, path = tagged, path[1:]
        found = context.get("error")
        if isinstance(found, FaultError):
            yield FaultError(found.what, found.hint, path + found.path)
        elif kind == "extra_forbidden":
            for part in path[:-1]:  # positions in lists and keys of tables lead to no other model
                named = [model.model_fields[part].annotation for model in models if part in model.model_fields]
                models = [model for one in named for model in _models(one)] if named else models
            known = {field.alias or name for model in models for name, field in model.model_fields.items()}
            is_of_kind = len(path) == 1 and len(detail["loc"]) == 2
            what = f"kind {detail['loc'][0]} has no such key" if is_of_kind else "unknown key"
            hint = GONE_KEYS.get(str(path[-1])) or did_you_mean(str(path[-1]), known)
            yield FaultError(what, hint, path)
        elif kind == "missing":
            yield FaultError("missing", "this key has to be given", path)
        elif kind in {"union_tag_invalid", "union_tag_not_found"}:
            tags = re.findall(r"'([^']*)'", context.get("expected_tags", ""))
            what = f"{context['tag']!r} is not known" if "tag" in context else "missing"
            hint = GONE_KINDS.get(context.get("tag", "")) or _nearest(context.get("tag"), tags)
            yield FaultError(what, hint, (*path, context["discriminator"].strip("'")))
        else:
            words = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            what = YAML_WORDS.get(kind, "").format(**context) or detail["msg"]
            yield FaultError(what, _nearest(value, words), path)


def _nearest(value: object, known: list[str]) -> str:
    """Return a suggestion from the words in `known`; "" if it is empty."""
    return did_you_mean(str(value), known) if known else ""


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in a type such as `Model`, `Model | None`, `tuple[Model, ...]` or `dict[str, Model]`."""
    form: Any = annotation
    if hasattr(form, "model_fields"):
        yield form
    else:
        for part in get_args(form):
            yield from _models(part)
