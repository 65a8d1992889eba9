"""What is wrong in a file of the catalog: what validators raise and pydantic finds, as errors with file and line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from cannery.errors import UsageError
from cannery.vocab import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError

MASK = "***"
# The user part of a URL, and what looks like one without its scheme (`user:password@host`): up to the last @ of the
# line, since passwords hold every character that ends a host.
_USERINFO = re.compile(r"(?<=://).*@|(?<![\w.+%-])[\w.+%-]+:(?![\s/]).*@")
# A longer message quotes something that is not a word.
LONGEST = 1200
FALLBACK = "docs/reference/fields.md explains the fields; the other entries show the form"
KEY = "[key]"  # how pydantic marks that a mapping's key is wrong, not its value
# Kinds of components that are no more, and what to take instead.
GONE_KINDS = {"archive": "take a component of kind system, native or source, or make a wheel of it and name WHEELHOUSE"}
# Keys that are no more, and what to write instead.
GONE_KEYS = {
    "fuzz": "name patches whose files are cut off in `truncated`, and make others again: build.py patches port",
    "documented": "leave it out; PIN=NAME==VERSION takes the version that a guide names",
}
# Pydantic's words for what YAML calls a list and a mapping.
YAML_WORDS = {
    "tuple_type": "a list is expected here",
    "dict_type": "a mapping is expected here",
    "model_type": "a mapping is expected here",
    "model_attributes_type": "a mapping is expected here",
    "too_short": "at least {min_length} is needed here",
}


class FaultError(ValueError):
    """What a validator finds wrong: `what`, `hint` (what to do; may be ""), `path`: where below the validated value.

    Pydantic collects ValueErrors, and keeps them for `faults`.
    """

    def __init__(self, what: str, hint: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.path = path


class CatalogError(UsageError):
    """A broken catalog; `parts` are all its problems, in the order in which the files are read.

    A single problem is the error itself; of several, `what` lists them, a line each with its file and line.
    """

    def __init__(self, parts: Sequence[UsageError]) -> None:
        if len(parts) == 1:
            super().__init__(parts[0].what, where=parts[0].where, hint=parts[0].hint or FALLBACK)
        else:
            lines = "\n".join(as_line(part) for part in parts)
            hint = "fix them from the top: one may be the cause of others"
            super().__init__(f"{len(parts)} problems\n{lines}", where="images/", hint=hint)
        self.parts = tuple(parts)


def problem(where: str, what: str, hint: str = "") -> UsageError:
    """Return one part of a `CatalogError`: without user names and passwords, and short enough to read."""
    return UsageError(_shown(what), where=where, hint=_shown(hint))


def as_line(part: UsageError) -> str:
    """Return a problem as one line."""
    return f"{part.where}: {part.what}" + (f"; {part.hint}" if part.hint else "")


def without_secrets(text: str) -> str:
    """Return `text` with the user parts of URLs masked. Too much may go, never too little."""
    return _USERINFO.sub(f"{MASK}@", text) if "@" in text else text


def _shown(text: str) -> str:
    shown = without_secrets(text)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def faults(error: ValidationError, annotation: object) -> Iterator[FaultError]:
    """Give everything that pydantic found wrong in a value; `annotation` is the type that it was validated as."""
    is_of_kind = get_origin(annotation) is Annotated  # one of several models: each path begins with its tag
    for detail in error.errors(include_url=False):
        kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
        if kind == "too_short" and len(value) >= context["min_length"]:
            continue  # there are enough, but wrong ones: each of them is a fault of its own
        path = tuple(part for part in detail["loc"] if part != KEY)[is_of_kind:]
        found = context.get("error")
        if isinstance(found, FaultError):
            yield FaultError(found.what, found.hint, path + found.path)
        elif kind == "extra_forbidden":
            near = nearest(str(path[-1]), sorted(_keys(annotation)))
            what = f"kind {detail['loc'][0]} has no such key" if is_of_kind and len(path) == 1 else "unknown key"
            hint = GONE_KEYS.get(str(path[-1])) or (f"did you mean {' or '.join(near)}?" if near else FALLBACK)
            yield FaultError(what, hint, path)
        elif kind == "missing":
            yield FaultError("missing", "this key has to be given", path)
        elif kind in {"union_tag_invalid", "union_tag_not_found"}:
            tags = re.findall(r"'([^']*)'", context.get("expected_tags", ""))
            what = f"{context['tag']!r} is not known" if "tag" in context else "missing"
            hint = GONE_KINDS.get(context.get("tag", "")) or did_you_mean(str(context.get("tag")), tags)
            yield FaultError(what, hint, (*path, context["discriminator"].strip("'")))
        else:
            words = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            what = YAML_WORDS.get(kind, "").format(**context) or detail["msg"]
            yield FaultError(what, did_you_mean(str(value), words) if words else "", path)


def _keys(annotation: Any) -> set[str]:  # noqa: ANN401 - a type, or a form of several
    """Return the keys of the models in a type, and of all models below them."""
    if not hasattr(annotation, "model_fields"):
        return set().union(*map(_keys, get_args(annotation)))
    fields = annotation.model_fields.items()
    return {field.alias or name for name, field in fields}.union(*(_keys(field.annotation) for _, field in fields))
