"""What a hand-written patch_summary.yaml says of patches, held against what they change.

Imports and statements without a name need not be listed. Words of one's own for an action or a kind, which the yaml
allows, are compared with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.patches.py_changes import Action, ClassChange, Kind, Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.patches.py_changes import PatchChanges, RepoChanges
    from cannery.patches.summary_yaml import ClassEntry, FileEntry, HandWritten, MemberEntry, Part, RepoEntry

UNTOUCHED = "the patch does not touch it"
# Of a module: its functions, its variables, its imports.
MODULE_WORDS = {Kind.METHOD: "function", Kind.ATTRIBUTE: "variable", Kind.MODULE_ATTR: "import"}
WORTH_LISTING = frozenset({Kind.METHOD, Kind.ATTRIBUTE})
# A changed class is `updated` in the yaml, a changed method `replaced`: the same thing happened.
CHANGED = frozenset({Action.REPLACED, Action.UPDATED})
_Said = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """What the yaml says (`said`) and what is so (`so`); `file` is a patch's name, or "" for all of a repository."""

    repo: str
    file: str
    said: str
    so: str

    def __str__(self) -> str:
        place = f"{self.repo}/{self.file}" if self.file else self.repo
        return f"{place}: the summary says {self.said}; in truth {self.so}"


def differences(computed: Iterable[RepoChanges], hand_written: HandWritten) -> tuple[Difference, ...]:
    """Return the differences, by repository and patch in the order of `computed`; entries without a patch come last.

    Repositories and versions of the yaml that are not in `computed` are not judged.
    """
    found = [Difference("", "", *one) for one in _unread(hand_written)]
    for repo in computed:
        entries = [one for one in hand_written.patches if one.repo == repo.repo]
        if not entries:
            found.append(Difference(repo.repo, "", "nothing of this repository", f"it has patches for {repo.rev}"))
        for one in entries:
            found += (Difference(repo.repo, file, said, so) for file, said, so in _repo(repo, one))
    return tuple(found)


def _repo(repo: RepoChanges, entry: RepoEntry) -> Iterator[tuple[str, str, str]]:
    """Give (patch name or "", said, so) of one repository."""
    yield from (("", *one) for one in _unread(entry))
    current = [one for one in entry.versions if one.rev == entry.current_rev]
    if len(current) != 1:
        so = f"{len(current)} versions have that rev, so the plugin cannot print it"
        yield "", f"current_rev {entry.current_rev}", so
    versions = [one for one in entry.versions if one.dir == repo.rev or one.rev.startswith(repo.rev)]
    if not versions:
        yield "", f"no version {repo.rev}", "there are patches for it"
        return
    for version in versions:
        yield from (("", *one) for one in _unread(version))
        if not version.rev.startswith(version.dir):
            yield "", f"dir {version.dir} for rev {version.rev}", "the one is not the beginning of the other"
        patches = {one.name: one for one in repo.patches}
        names = [one.name for one in version.files]
        for name, patch in patches.items():
            entries = [one for one in version.files if one.name == name]
            if not entries:
                yield name, "nothing of this patch", f"it is applied: {_all(patch)}"
            elif len(entries) > 1:
                yield name, f"{len(entries)} entries of this name", "the plugin prints the last of them"
            yield from ((name, *one) for one in (_file(entries[-1], patch) if entries else ()))
        for name in dict.fromkeys(names):
            if name not in patches:
                yield name, "that there is a patch of this name", f"{repo.rev} has none"


def _unread(part: Part) -> Iterator[_Said]:
    for key, value in part.unread.items():
        listed = ", ".join(filter(None, map(_item, value if isinstance(value, list) else [])))
        yield f"{listed} below the key `{key}`" if listed else f"the key `{key}`", f"key `{key}` prints nothing"


def _item(item: Any) -> str:  # noqa: ANN401 - an entry of an unknown list
    words = [item.get(key) for key in ("action", "kind", "name")] if isinstance(item, dict) else []
    return " ".join(str(word) for word in words if word)


def _file(entry: FileEntry, patch: PatchChanges) -> Iterator[_Said]:
    """Give the differences of one patch."""
    diff = entry.diff
    yield from (one for part in (entry, diff) for one in _unread(part))
    classes = {one.name: one for file in patch.files for one in file.classes}
    members = [one for file in patch.files for one in file.module_members]
    # What is told of once, in whichever place, is not told of as missing.
    told = {str(item.get("name")) for value in diff.unread.values() for item in _mappings(value)}
    for one in diff.class_changes:
        real = classes.get(one.name)
        told.add(one.name)
        if real is None:
            listed = {other.name for other in diff.class_changes}
            near = _meant(one.name, [name for name in classes if name not in listed])
            told |= {near, *(inner.name for inner in one.changes)}
            yield _no_class(one, members, classes.get(near))
        else:
            yield from _class(one, real)
    for listed_member in diff.module_changes:
        told.add(listed_member.name)
        yield from _member(listed_member, members, classes)
    yield from _missing(members, told, MODULE_WORDS, "")
    for name, change in classes.items():
        outer = name.rpartition(".")[0]
        if name not in told and (outer not in classes or classes[outer].action in CHANGED):
            yield f"nothing of class {name}", f"it is {change.action}"


def _mappings(value: Any) -> Iterable[dict[str, Any]]:  # noqa: ANN401 - an unread key
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _meant(name: str, candidates: Sequence[str]) -> str:
    """Return the class that was meant: the one that is written alike but for case and underscores; "" for none."""
    alike = [one for one in candidates if _squashed(one) == _squashed(name)]
    return alike[0] if alike else ""


def _squashed(name: str) -> str:
    return name.replace("_", "").lower()


def _no_class(entry: ClassEntry, members: Sequence[Member], near: ClassChange | None) -> _Said:
    """Say what a listed class is whose name no changed class has."""
    said = f"class {entry.name} {entry.action}"
    said += f" with {', '.join(one.name for one in entry.changes)}" if entry.changes else ""
    real = next((one for one in members if one.name == entry.name), None)
    if real is not None:
        return said, f"{entry.name} is no class: {_phrase(real, MODULE_WORDS)}"
    names = {one.name for one in members}
    of_module = [one.name for one in entry.changes if one.name in names]
    so = f"class {near.name} is {near.action}" if near is not None else "the patch changes no class of that name"
    return said, so + (f", and {', '.join(of_module)} are names of the module" if of_module else "")


def _class(entry: ClassEntry, real: ClassChange) -> Iterator[_Said]:
    """Give the differences of a class that is listed and does change."""
    yield from _unread(entry)
    if _differs(entry.action, real.action):
        yield f"class {entry.name} {entry.action}", f"it is {real.action}"
    known = [one for one in real.members if one.name != "__doc__"]
    if not entry.changes:
        if real.action in CHANGED and known:
            said = f"class {entry.name} {entry.action}, without a member"
            yield said, ", ".join(_phrase(one, {}) for one in known)
        return
    for one in entry.changes:
        for said, so in _member(one, real.members, {}):
            yield f"{said} in class {entry.name}", so
    if real.action in CHANGED:
        yield from _missing(known, {one.name for one in entry.changes}, {}, f" in class {entry.name}")


def _member(entry: MemberEntry, members: Sequence[Member], classes: Mapping[str, ClassChange]) -> Iterator[_Said]:
    """Give the differences of one listed member of a module or a class."""
    yield from _unread(entry)
    said = " ".join(filter(None, [entry.kind, entry.name, entry.action]))
    found = [one for one in members if one.name == entry.name]
    real = next((one for one in found if one.kind == entry.kind), found[0] if found else None)
    if real is None:
        of_class = classes.get(entry.name)
        if of_class is None:
            yield said, UNTOUCHED
        elif entry.kind != Kind.CLASS:
            yield said, f"it is a class, which is {of_class.action}"
        elif _differs(entry.action, of_class.action):
            yield said, f"it is {of_class.action}"
        return
    if _differs(entry.action, real.action):
        yield said, f"it is {real.action}"
    elif (entry.kind == Kind.METHOD) != (real.kind is Kind.METHOD) and entry.kind in set(Kind):
        yield said, f"its kind is {real.kind}"


def _missing(members: Iterable[Member], told: set[str], words: Mapping[Kind, str], place: str) -> Iterator[_Said]:
    for one in members:
        if one.kind in WORTH_LISTING and one.name not in told | {"__doc__"}:
            yield f"nothing of {words.get(one.kind, one.kind)} {one.name}{place}", f"it is {one.action}"


def _differs(said: str, real: Action) -> bool:
    """Whether two actions differ; a word of the writer's own does not."""
    if said not in set(Action):
        return False
    return said != real and not {Action(said), real} <= CHANGED


def _phrase(member: Member, words: Mapping[Kind, str]) -> str:
    return f"{words.get(member.kind, member.kind)} {member.name} is {member.action}"


def _all(patch: PatchChanges) -> str:
    """The changes of a patch that the yaml does not name, in one line."""
    parts = [
        part
        for file in patch.files
        for part in (
            *(_phrase(one, MODULE_WORDS) for one in file.module_members if one.kind in WORTH_LISTING),
            *(f"class {one.name} is {one.action}" for one in file.classes),
        )
    ]
    return ", ".join(parts) or ", ".join(f"{file.path} is {file.action}" for file in patch.files)
