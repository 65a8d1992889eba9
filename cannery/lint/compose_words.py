"""What a remark says to write, in a compose file's words: `shm_size: 16g` for `--shm-size 16g`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cannery.lint.case import Remark

# Docker's options and the keys of a service that stand for them: of one value, of a list.
_ONE = {
    "--shm-size": "shm_size",
    "--runtime": "runtime",
    "--platform": "platform",
    "--entrypoint": "entrypoint",
    "--user": "user",
    "--ipc": "ipc",
    "--pid": "pid",
    "--network": "network_mode",
    "--net": "network_mode",
}
_MANY = {
    "--device": "devices",
    "--volume": "volumes",
    "-v": "volumes",
    "--env": "environment",
    "-e": "environment",
    "--group-add": "group_add",
    "--cap-add": "cap_add",
}
_NAMES = _ONE | _MANY | {"--privileged": "privileged: true"}
# A value is one of its kind, for the prose has words behind an option's name too: `--device for each node`.
_VALUE = r'"[^"]*"|(?:\$\([^)]*\)|,(?=\S)|[^\s,;])+'
_KINDS = r'--device (?=[/"$])|(?:-v|--volume) (?=\$\(|\S+:)|(?:-e|--env) (?=\w+=)|--(?:group|cap)-add '
_LISTED = rf"(?:{_KINDS})(?:{_VALUE})"
_NAME = re.compile(rf"(?<![\w-])(?P<name>{'|'.join(_NAMES)})(?![\w-])")
# In one go: the output of `command -v` has a `-v` in it that is none of docker's.
_OPTION = re.compile(
    rf"(?<![\w-])(?:(?P<list>{_LISTED}(?: {_LISTED})*(?: …)?)"
    rf"|(?P<one>{'|'.join(_ONE)})[ =](?P<value>{_VALUE}))|{_NAME.pattern}"
)
_FIELD = re.compile(r"\b(type|source|target)=")
_OUTPUT = re.compile(r"\$\(([^)]*)\)")
# Those whose text shows words of the container's command.
_OF_COMMAND = frozenset({"run.image.behind", "run.entrypoint.words"})


def of_compose(one: Remark) -> Remark:
    """Return a remark on a service with what it names of docker's options as the keys of a compose file."""
    finding = one.finding
    fix = in_compose(finding.fix).replace(" before the image", ", as a key of the service")
    fix = _FIELD.sub(r"\1: ", fix)  # a field of --mount, which is a key of a mount's long form
    # The place that it names is the file's own, and stays.
    what = finding.what if finding.code in _OF_COMMAND else _but(one.word, finding.what)
    return replace(one, finding=replace(finding, what=what, fix=fix))


def in_compose(text: str) -> str:
    """Return a text with each option of docker's, and its value, as a key of a compose file's service."""
    return _OPTION.sub(_key, text)


def _key(match: re.Match[str]) -> str:
    if match["list"]:
        return _lists(match["list"])
    return f"{_ONE[match['one']]}: {_OUTPUT.sub(_told, match['value'])}" if match["one"] else _NAMES[match["name"]]


def _but(word: str, text: str) -> str:
    """Return `text` with the names of options as keys, but for those in `word`."""
    parts = text.split(word) if word else [text]
    return word.join(_NAME.sub(lambda match: _NAMES[match["name"]], part) for part in parts)


def _lists(text: str) -> str:
    found: dict[str, list[str]] = {}
    for option in re.finditer(_LISTED, text):
        name, value = option[0].split(" ", 1)
        found.setdefault(_MANY[name], []).append(_item(value.strip('"')))
    if text.endswith("…"):
        found[next(reversed(found))].append("…")
    return ", ".join(f"{key}: [{', '.join(items)}]" for key, items in found.items())


def _item(value: str) -> str:
    """Write an item of a list in brackets; no shell fills in the output of a command there."""
    text = _OUTPUT.sub(_told, value)
    return json.dumps(text, ensure_ascii=False) if re.search(r"[,\[\]{}#]|: ", text) else text


def _told(match: re.Match[str]) -> str:
    return f"<output of {match[1]}>"
