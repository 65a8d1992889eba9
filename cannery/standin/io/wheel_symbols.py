"""The layer of a stand-in with the files of a CANN image, and stubs for the libraries of a torch_npu wheel."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from typing import TYPE_CHECKING, Any, cast

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from cannery.errors import UnableError
from cannery.standin.stubs import Library, plan_stubs, stub_library
from cannery.standin.tree import cann_tree, tree_tar
from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cannery.standin.tree import StandInSpec

IS_LIBRARY = re.compile(r"\.so(\.\d+)*$")
# A complete string (between zero bytes) that may be the name of a library to open.
LIBRARY_NAME = re.compile(rb"(?<=\0)lib[A-Za-z0-9_+-]+(?:\.so)?(?=\0)")
SYMBOL = struct.Struct("<IBBHQQ")
STB_GLOBAL, STB_WEAK = 1, 2


def cann_layer(spec: StandInSpec, wheel: Path | None) -> bytes:
    """Return the layer's tar; `wheel` is the locked torch_npu, None for a stack without it.

    Raises `UnableError` if the locked wheel is missing or is another file, and like `wheel_libraries`.
    """
    stubs = {}
    if spec.torch_npu is not None:
        if wheel is None or not wheel.is_file():
            where = str(wheel) if wheel else spec.torch_npu.file
            raise UnableError(f"the wheel of torch-npu {spec.torch_npu.version} is not on this host", where=where)
        if spec.torch_npu.sha256 and sha256_file(wheel) != spec.torch_npu.sha256:
            raise UnableError("not the locked file: its hash differs", where=str(wheel), hint="remove it and run again")
        planned = plan_stubs(wheel_libraries(wheel), spec.data.libraries)
        stubs = {stub: stub_library(stub, spec.target.arch) for stub in planned}
    return tree_tar(cann_tree(spec, stubs), spec.data.epoch)


def wheel_libraries(wheel: Path) -> tuple[Library, ...]:
    """Return the shared libraries of `wheel`, sorted by path. Raises `UnableError` for a broken file."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = sorted(name for name in archive.namelist() if IS_LIBRARY.search(name))
            return tuple(read_library(archive.read(name)) for name in names)
    except (OSError, zipfile.BadZipFile, ELFError, UnicodeDecodeError, struct.error) as error:
        raise UnableError(
            f"its shared libraries cannot be read: {error}", where=str(wheel), hint="remove the file and run again"
        ) from error


def read_library(content: bytes) -> Library:
    """Return the dynamic section and symbols of one ELF file. Raises `ELFError` for another file."""
    elf = ELFFile(io.BytesIO(content))
    dynamic = elf.get_section_by_name(".dynamic")
    tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
    undefined, defined = _symbols(elf)
    opened = frozenset(match.decode() for match in LIBRARY_NAME.findall(content))
    return Library(tuple(tag.needed for tag in cast("Iterable[Any]", tags)), undefined, defined, opened)


def _symbols(elf: ELFFile) -> tuple[frozenset[str], frozenset[str]]:
    """Return (undefined, defined) names. pyelftools would take minutes for the symbols of a large library."""
    table, strings = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".dynstr")
    if table is None or strings is None:
        return frozenset(), frozenset()
    text = strings.data()
    undefined, defined = set(), set()
    for name_at, info, _, section, _, _ in SYMBOL.iter_unpack(table.data()):
        binding = info >> 4
        if not name_at or binding not in {STB_GLOBAL, STB_WEAK, 10}:  # 10: GNU unique
            continue
        name = text[name_at : text.index(b"\0", name_at)].decode()
        if section:
            defined.add(name)
        elif binding != STB_WEAK:
            undefined.add(name)
    return frozenset(undefined), frozenset(defined)
