"""Which wheel is taken: one for the oldest glibc first, one for a newer glibc before a source distribution."""

from __future__ import annotations

import pytest
from factories import package

from cannery.lock.lock import best_wheel
from cannery.vocab import Arch

OLD, NEW, TOO_NEW = (f"x-1-cp39-abi3-manylinux_2_{minor}_aarch64.whl" for minor in (28, 31, 35))
NEW_OWN = "x-1-cp311-cp311-manylinux_2_34_aarch64.whl"


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ([NEW], NEW),
        ([OLD, NEW], OLD),
        ([NEW_OWN, OLD], OLD),  # an image on manylinux_2_28 runs it
        ([NEW_OWN, NEW], NEW_OWN),
        ([TOO_NEW], None),
        (["x-1-py3-none-any.whl", NEW_OWN], "x-1-py3-none-any.whl"),
        (["x-1-1/../y-py3-none-any.whl", "x-1-1\0-py3-none-any.whl", "x-1-1\n-py3-none-any.whl"], None),
    ],
)
def test_the_oldest_glibc_comes_first(files: list[str], taken: str | None) -> None:
    found = best_wheel([package("x", file=file) for file in files], "3.11", Arch.ARM64)
    assert (found.file if found else None) == taken
