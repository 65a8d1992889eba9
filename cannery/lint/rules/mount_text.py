"""Mounts that no engine can read: what is wrong with how they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.case import remark
from cannery.lint.container import colon_parts, mount_fields
from cannery.lint.shell_words import is_open
from cannery.vocab import Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark

# Of docker; podman and nerdctl have some of their own.
MODES = frozenset(
    (
        *("ro", "rw", "rro", "z", "Z", "consistent", "cached", "delegated", "nocopy"),
        *("shared", "rshared", "slave", "rslave", "private", "rprivate", "unbindable", "runbindable"),
        *("U", "O", "copy", "idmap", "exec", "noexec", "dev", "nodev", "suid", "nosuid", "bind", "rbind"),
        *("upperdir", "workdir", "size"),
    )
)
TYPES = frozenset({"bind", "volume", "tmpfs", "npipe", "cluster", "image", "ramfs", "devpts", "glob", "artifact"})
# A path of Windows has a colon of its own.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")


def unread(case: Case) -> Iterator[Remark]:
    """Name each mount that is not written as the engine reads one."""
    for key, wrong_with in (("volume", _volume), ("mount", _mount)):
        for setting in case.container.all(key):
            wrong = wrong_with(setting.value or "")
            if wrong:
                what, fix = wrong
                why = "the engine refuses it, and starts no container"
                yield remark(Severity.ERROR, "mount.text", setting.word, f"{setting.word}: {what}", why, fix)


def _volume(text: str) -> tuple[str, str] | None:
    """Say what is wrong with `SOURCE:TARGET[:MODES]`, and what to write; None for a right one."""
    source, *rest = colon_parts(text)
    if not rest or _WINDOWS.match(text):
        return None
    if not source or not all(rest):
        return "there is nothing before, between or behind its colons", "-v SOURCE:TARGET, or -v SOURCE:TARGET:ro"
    if len(rest) > 2:
        return "more than source, target and mode stand in it", f"-v {source}:{rest[0]}:{rest[-1]}"
    modes = [mode.partition("=")[0] for mode in rest[1].split(",")] if len(rest) == 2 else []
    strange = next((mode for mode in modes if mode not in MODES and not is_open(mode)), None)
    if strange is not None:
        return f"there is no mode {strange!r}", f"-v {source}:{rest[0]}:ro, or without a mode: read and write"
    if {"ro", "rw"} <= {*modes}:
        return "ro and rw stand in it", f"-v {source}:{rest[0]}:ro"
    return None


def _mount(text: str) -> tuple[str, str] | None:
    """Say what is wrong with `type=…,source=…,target=…`, and what to write; None for a right one."""
    fields = mount_fields(text)
    example = "--mount type=bind,source=/DIR,target=/DIR"
    if fields is None:
        return "a quote is not closed, or stands within a field", example
    kind = fields.get("type", "volume")
    if any(map(is_open, (*fields, kind))):
        return None
    if kind not in TYPES:
        near = nearest(kind, sorted(TYPES), count=1)
        return f"there is no type {kind!r}", f"type={near[0] if near else 'bind'}"
    if not fields.get("target"):
        return "it names no target", f"target={fields.get('source') or '/DIR'} beside the rest"
    if kind == "bind" and not fields.get("source"):
        return "a bind mount needs a source", f"source={fields['target']} beside the rest"
    return None
