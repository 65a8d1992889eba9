"""Standard output and error as commands write to them: without secrets, and without signs that a terminal obeys."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cannery.util.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO


class CleanStream:
    """A text stream that passes on what `clean` makes of a text; everything else is the stream's own."""

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        # rich draws with control signs of its own; it writes to what a stream has under this name.
        self.rich_proxied_file = stream
        self._clean = clean

    def write(self, text: str) -> int:
        """Write the cleaned text. As of any stream's, the number is that of the caller's signs."""
        self.rich_proxied_file.write(plain(self._clean(text)))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.rich_proxied_file, name)


@contextmanager
def clean_streams(clean: Callable[[str], str]) -> Iterator[None]:
    """Put `CleanStream`s in the place of the process's two, for as long as the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (CleanStream(stream, clean) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
