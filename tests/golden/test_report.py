"""What `diff` and `report` write of two small, made-up images, in tests/golden/report. `make goldens` rewrites them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.report.difference import Contents, Table, difference, markdown_lines, text_lines
from cannery.report.io.page import page_html
from cannery.report.page import Page, page_markdown
from cannery.report.treemap import Box, treemap
from tests.golden.test_render import compare

if TYPE_CHECKING:
    import pytest

GOLDENS = Path(__file__).parent / "report"
OLD = Contents(
    "stack:1",
    {"torch": "2.9.0", "gone": "1.0", "ray": "2.60.0"},
    {"plan": "0a1b", "cann": "8.5.0"},
    files={"same-1.whl": "0" * 64},
    sources={"verl": "0.5 at 0123456789ab"},
    layers={"torch": "aaaa", "ray": "bbbb"},
    env={"PATH": "/a:/b", "X": "a|b"},
)
NEW = Contents(
    "stack:2",
    {"torch": "2.10.0", "new": "0.1", "ray": "2.58.0"},
    {"plan": "2c3d", "cann": "8.5.0"},
    files={"same-1.whl": "1" * 64},
    sources={"verl": "0.6 at ba9876543210, with changes"},
    layers={"torch": "cccc", "ray": "bbbb"},
    sizes={"torch": 191_794_682, "ray": 79_000_000},
    patches={"verl: a-fix": "dddd"},
    env={"PATH": "/a:/c", "X": "c"},
)
PAGE = Page(
    "stack:2",
    (("profile", 'stack: a "made-up" <stack>'), ("verify", "passed on this host: 38 passed"), ("forced", "")),
    (
        Table("Findings", ("finding", "what", "why", "fix"), (("error fit", "a & b", "because", "do *this*"),)),
        Table("Packages", ("name", "version"), (("torch", "2.10.0"), ("ray", "2.58.0")), open=False),
    ),
    tuple(treemap({"torch": {"torch": 190, "sympy": 6}, "ray": {"ray": 79}}, Box(0, 0, 1000, 520))),
    difference(OLD, NEW),
)


def texts() -> dict[str, str]:
    """{file: text}: of the page its body, for its style is looked at in a browser."""
    found = difference(OLD, NEW)
    page = page_html(PAGE, "0.0")
    return {
        "diff.txt": "\n".join(text_lines(found)) + "\n",
        "diff.md": "\n".join(markdown_lines(found)) + "\n",
        "page.md": page_markdown(PAGE),
        "page.html": re.sub(r"(?s).*<body>\n|<script>.*", "", page),
    }


def test_texts_are_the_goldens(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-goldens"):
        shutil.rmtree(GOLDENS, ignore_errors=True)
        GOLDENS.mkdir()
        for name, text in texts().items():
            (GOLDENS / name).write_text(text, encoding="utf-8")
    compare(texts(), GOLDENS)
