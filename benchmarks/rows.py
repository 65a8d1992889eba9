"""The results of images.py as a table and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS = "Cannery"
COLORS = {True: "#1a7f37", False: "#8c959f"}


@dataclass(frozen=True)
class Row:
    """The result of one case: seconds, CPU seconds, bytes written to the disk, and bytes of new blobs."""

    case: str
    who: str
    wall: float | None = None
    cpu: float | None = None
    written: int | None = None
    shipped: int | None = None
    note: str = ""


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, with the ratios of the other ways to Cannery in the same case."""
    ours = {row.case: row for row in rows if row.who == OURS}
    lines = [f"{'':<17} {'':<26} {'wall s':>8} {'CPU s':>8} {'written MB':>11} {'to push MB':>11}  beside Cannery"]
    for row in rows:
        numbers = (
            f"{number(row.wall):>8} {number(row.cpu):>8} {number(row.written, 1e6):>11} {number(row.shipped, 1e6):>11}"
        )
        one, ratios = ours.get(row.case), row.note
        if one and row is not one and row.wall and one.wall:
            cpu = f", CPU {row.cpu / one.cpu:.1f}" if row.cpu and one.cpu else ""
            ratios = f"wall {row.wall / one.wall:.1f}{cpu}"
        lines.append(f"{row.case:<17} {row.who:<26} {numbers}  {ratios}".rstrip())
    return "\n".join(lines)


def number(value: float | None, unit: float = 1.0) -> str:
    """Return a number for the table."""
    return "-" if value is None else f"{value / unit:.2f}"


def chart(rows: Sequence[Row]) -> str:
    """Return a bar chart of the CPU seconds as SVG."""
    shown = [(row, row.cpu) for row in rows if row.cpu is not None]
    longest = max(cpu for _, cpu in shown)
    lines = []
    for at, (row, cpu) in enumerate(shown):
        width, top = 480 * cpu / longest, 20 * at + 30
        lines.append(f'<text x="310" y="{top + 12}" text-anchor="end">{row.case}: {row.who}</text>')
        lines.append(f'<rect x="320" y="{top}" width="{width:.1f}" height="15" fill="{COLORS[row.who == OURS]}"/>')
        lines.append(f'<text x="{326 + width:.0f}" y="{top + 12}">{cpu:.1f}</text>')
    size = f'width="880" height="{20 * len(shown) + 40}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<text x="320" y="18">CPU seconds</text>', *lines, "</svg>"]) + "\n"
