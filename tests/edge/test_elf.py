"""Reading shared libraries out of wheels. The libraries are made here; undefined symbols by changing table entries."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from cannery.errors import UnableError
from cannery.standin.io.wheel_symbols import read_library, wheel_libraries
from cannery.standin.stubs import SYM_SIZE, shared_library
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path

WEAK = 2


def with_undefined(content: bytes, strong: set[str], weak: set[str]) -> bytes:
    """The library with the named symbols made undefined."""
    table = ELFFile(io.BytesIO(content)).get_section_by_name(".dynsym")
    changed = bytearray(content)
    for index, symbol in enumerate(table.iter_symbols()):
        at = table["sh_offset"] + index * SYM_SIZE
        if symbol.name in strong | weak:
            binding = WEAK if symbol.name in weak else 1
            struct.pack_into("<BBH", changed, at + 4, binding << 4, 0, 0)
    return bytes(changed)


@pytest.mark.parametrize("arch", list(Arch))
def test_dynamic_symbols_are_told_apart(arch: Arch) -> None:
    made = shared_library(
        arch, "libx.so", functions=["own", "aclInit", "maybe"], needed=["libascendcl.so", "libc.so.6"]
    )
    found = read_library(with_undefined(made, {"aclInit"}, {"maybe"}))
    assert found.needed == ("libascendcl.so", "libc.so.6")
    assert (found.undefined, found.defined) == ({"aclInit"}, {"own"})


def test_whole_strings_that_look_like_libraries_are_kept() -> None:
    made = shared_library(Arch.AMD64, "libx.so", functions=["f"]) + b"\0libopapi.so\0 libno.so \0libhccl\0nolib.so\0"
    assert {"libopapi.so", "libhccl"} <= read_library(made).opened
    assert not {"libno.so", "nolib.so"} & read_library(made).opened


def test_only_libraries_of_a_wheel_are_read(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, function in (("x/lib/libb.so.1", "b"), ("x/a.so", "a")):
            archive.writestr(name, shared_library(Arch.AMD64, name.rpartition("/")[2], functions=[function]))
        archive.writestr("x/a.sources.py", "not a library")
    assert [library.defined for library in wheel_libraries(wheel)] == [{"a"}, {"b"}]


@pytest.mark.parametrize("content", [b"no zip", None])
def test_what_cannot_be_read_names_the_file(tmp_path: Path, content: bytes | None) -> None:
    wheel = tmp_path / "x.whl"
    if content is None:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("x/a.so", "no ELF")
    else:
        wheel.write_bytes(content)
    with pytest.raises(UnableError, match=r"x\.whl"):
        wheel_libraries(wheel)
