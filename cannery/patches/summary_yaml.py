"""The model of a hand-written patch_summary.yaml, with the fields that verl_npu's developer guide names.

Actions and kinds may be words of one's own there, so they are texts. A key that the plugin's printer does not read is
no error: it is kept, so that it can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, ValidationError

from cannery.catalog.component import Closed
from cannery.catalog.errors import as_line, faults, problem
from cannery.catalog.fields import Text
from cannery.catalog.yaml_text import Location, YamlDocument, parse_yaml
from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

GUIDE = "see the fields of patch_summary.yaml in the plugin's quick_start"
MOST_PROBLEMS = 30
# A list of which only the key is written is an empty one to the plugin too.
_listed = BeforeValidator(lambda value: () if value is None else value)


class Part(Closed):
    """A mapping of the file; `unread` are its keys that print nothing, with their values."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @property
    def unread(self) -> Mapping[str, Any]:
        """The keys that are none of the fields."""
        return self.model_extra or {}


class MemberEntry(Part):
    """A change that is listed: of a member of a class, or of the module."""

    action: Text
    name: Text
    kind: Text = ""


class ClassEntry(Part):
    """A class that is listed. `kind` has no place here; where it stands, something else was meant."""

    action: Text
    name: Text
    kind: Text = ""
    changes: Annotated[tuple[MemberEntry, ...], _listed] = ()


class Diff(Part):
    """What is listed of one patch file."""

    class_changes: Annotated[tuple[ClassEntry, ...], _listed] = ()
    module_changes: Annotated[tuple[MemberEntry, ...], _listed] = ()


class FileEntry(Part):
    """One patch file, by its stem."""

    name: Text
    diff: Diff


class Version(Part):
    """A commit and the folder of its patches."""

    rev: Text
    dir: Text
    files: Annotated[tuple[FileEntry, ...], _listed]


class RepoEntry(Part):
    """A repository; the printer takes the version whose `rev` is `current_rev`."""

    repo: Text
    current_rev: Text
    versions: Annotated[tuple[Version, ...], _listed]


class HandWritten(Part):
    """A whole patch_summary.yaml."""

    patches: Annotated[tuple[RepoEntry, ...], _listed]


def read_summary(text: str, where: str) -> HandWritten:
    """Read the text of a patch_summary.yaml; `where` is how messages call the file.

    Raises `UsageError` with file:line for broken YAML, and with all problems at once for fields that are missing or of
    another form. Scalars are read as they are written, so a commit of digits alone needs no quotes.
    """
    document = parse_yaml(text, where)
    try:
        return HandWritten.model_validate(_as_written(document.value, document.texts))
    except ValidationError as error:
        found = list(faults(error, HandWritten))[:MOST_PROBLEMS]
        parts = [_problem(document, one.path, one.what, one.hint) for one in found]
    if len(parts) == 1:
        raise parts[0]
    raise UsageError(f"{len(parts)} problems\n" + "\n".join(map(as_line, parts)), where=where, hint=GUIDE)


def _as_written(value: Any, texts: Mapping[Location, str], path: Location = ()) -> Any:  # noqa: ANN401 - YAML
    """Return a YAML value with the scalars' own texts."""
    if isinstance(value, dict):
        return {str(key): _as_written(one, texts, (*path, str(key))) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_written(one, texts, (*path, at)) for at, one in enumerate(value)]
    return None if value is None else texts.get(path, value)


def _problem(document: YamlDocument, path: Location, what: str, hint: str) -> UsageError:
    field = ".".join(map(str, path)) or "the file"
    return problem(document.where(path), f"{field}: {what}", hint or GUIDE)
