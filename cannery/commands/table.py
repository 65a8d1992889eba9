"""Results of a command as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def row_lines(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line a row, the values below each other; a row without a value is left out."""
    every = tuple(rows)
    width = max(len(name) for name, _ in every)
    yield from (f"{name:<{width}}  {value}" for name, value in every if value)
