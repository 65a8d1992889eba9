"""Symbolic links, followed as the kernel follows them."""

from __future__ import annotations

import pytest

from cannery.util.links import MOST_LINKS, followed

LINKS = {"/a/link": "b/c", "/a/up": "../d/..", "/abs": "/a/link", "/a/b/c/out": "../../../../../x", "/loop": "loop"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/plain/file", "/plain/file"),
        ("/a/./link/x", "/a/b/c/x"),
        ("/a/link/../x", "/a/b/x"),  # the parent of where the link leads, as the kernel has it
        ("/a/up", "/"),
        ("/abs/x", "/a/b/c/x"),
        ("/abs/out", "/x"),
        ("/../..", "/"),
        ("/loop/x", None),
    ],
)
def test_a_path_leads_where_the_kernel_leads(path: str, expected: str | None) -> None:
    assert followed(path, LINKS.get) == expected


def test_as_many_links_as_the_kernel_follows() -> None:
    chain = {f"/{number}": str(number + 1) for number in range(MOST_LINKS)}
    assert followed("/0", chain.get) == f"/{MOST_LINKS}"
    assert followed("/0", {**chain, f"/{MOST_LINKS}": "end"}.get) is None
