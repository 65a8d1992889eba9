"""Tables, as Markdown has them; the HTML template has its own way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Table:
    """A titled table whose first column has names. One that is not `open` is folded."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    open: bool = True


def table_lines(table: Table) -> Iterator[str]:
    """Give the lines of a table in Markdown, with its title."""
    title = f"{table.title}: {len(table.rows)}"
    yield from ("", f"### {title}") if table.open else ("", f"<details><summary>{title}</summary>")
    yield from ("", f"| {' | '.join(table.head)} |", "|---" * len(table.head) + "|")
    yield from (f"| {' | '.join(map(prose, row))} |" for row in table.rows)
    yield from () if table.open else ("", "</details>")


def prose(text: str) -> str:
    """Return text that Markdown shows as it is, in a line of its own or a cell."""
    return re.sub(r"([\\`*_~<>|\[\]])", r"\\\1", " ".join(text.split()))
