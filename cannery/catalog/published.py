"""images/hashes.yaml: hashes of files of package indexes that others have published, each list with its source.

A lock takes them where the index is not reached. A wrong hash can only stop a build, since the file that is downloaded
is compared with it; it lets no other file in.
"""

from typing import Annotated

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import Field, field_validator

from cannery.catalog.component import Closed
from cannery.catalog.errors import FaultError
from cannery.catalog.fields import DateText, Sha256Text, Text, parsed


def _wheel(text: str, _option: str) -> str:
    try:
        parse_wheel_filename(text)
    except InvalidWheelFilename as error:
        raise FaultError(
            f"{text!r} is not the name of a wheel: {error}", "written like six-1.0-py3-none-any.whl"
        ) from error
    return text


class PublishedFile(Closed):
    """A wheel, its sha256, its bytes where they are published too, and in how many independent places it was seen."""

    file: Annotated[str, parsed(_wheel)]
    sha256: Sha256Text
    size: int = Field(default=0, ge=0)
    seen: int = Field(default=1, ge=1)
    note: Text = ""


class Published(Closed):
    """What is known of the files of one index: where it was read, and when."""

    source: Text = Field(min_length=8)
    date: DateText
    files: tuple[PublishedFile, ...]

    @field_validator("files")
    @classmethod
    def _once(cls, files: tuple[PublishedFile, ...]) -> tuple[PublishedFile, ...]:
        seen: set[str] = set()
        for position, one in enumerate(files):
            if one.file in seen:
                raise FaultError(f"{one.file} is given twice", "remove one of them", (position,))
            seen.add(one.file)
        return files
