"""Stubs of the CANN libraries that a torch_npu wheel needs: small ELF libraries whose functions return 0.

Only symbols of the families in images/standin/recipe.yaml are stubbed, and never one of torch, Python or the C++
runtime: an ABI mismatch must show at import, on the stand-in as on a real base.

The ELF files are written here and not by a linker. So they have the same bytes on every machine (the output of a linker
depends on its version), for every architecture, without a download. Layout: one read-only segment (headers, hash,
symbols, strings), one with code, one writable (dynamic section, then data). Sources: System V gABI (ELF-64), and its
psABI supplements for x86-64 and AArch64.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.catalog.catalog import StubLibrary

# 64 KiB, the largest page size of AArch64 Linux. Segments with this alignment load with every kernel.
PAGE = 0x10000
# Bytes of each data symbol. The vtables and type infos of CANN are smaller, and nothing reads them without an NPU.
OBJECT_SIZE = 256
EHDR_SIZE, PHDR_SIZE, SHDR_SIZE, SYM_SIZE = 64, 56, 64, 24
STT_OBJECT, STT_FUNC = 1, 2
SEGMENTS = 5
# e_machine and the code of a function: `xor eax, eax; ret` and `mov x0, #0; ret`, padded to 8 bytes.
MACHINE = {Arch.AMD64: 62, Arch.ARM64: 183}
CODE = {
    Arch.AMD64: bytes.fromhex("31c0c3") + b"\x90" * 5,
    Arch.ARM64: bytes.fromhex("000080d2c0035fd6"),
}
# sh_type of the sections, in the order in which they are written after the empty one.
SECTIONS = {".hash": 5, ".dynsym": 11, ".dynstr": 3, ".text": 1, ".dynamic": 6, ".bss": 8, ".shstrtab": 3}
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 1, 4, 5, 6, 10, 11, 14


@dataclass(frozen=True)
class _Section:
    """One section: its place in the file and in memory. The `size` of .bss is only in memory."""

    name: str
    flags: int
    offset: int
    address: int
    size: int
    link: int = 0
    info: int = 0
    align: int = 8
    entry: int = 0


class _Strings:
    """A string table. Equal strings are stored once."""

    def __init__(self) -> None:
        self.data = b"\0"
        self.places = {"": 0}

    def add(self, text: str) -> int:
        if text not in self.places:
            self.places[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self.places[text]


def shared_library(
    arch: Arch, soname: str, *, functions: Iterable[str], objects: Iterable[str] = (), needed: Sequence[str] = ()
) -> bytes:
    """Return a shared library named `soname` that defines `functions` (each returns 0) and `objects` (zeroed).

    `needed` are its NEEDED entries in the given order. Names are sorted, so the same sets give the same bytes.
    """
    codes, zeroes = sorted(set(functions)), sorted(set(objects))
    strings = _Strings()
    soname_at = strings.add(soname)
    needed_at = [strings.add(name) for name in needed]
    places = [strings.add(name) for name in (*codes, *zeroes)]
    hash_table = _hash_table((*codes, *zeroes))

    hash_at = EHDR_SIZE + SEGMENTS * PHDR_SIZE
    symbols_at = _round_up(hash_at + len(hash_table), 8)
    symbols_size = (1 + len(places)) * SYM_SIZE
    strings_at = symbols_at + symbols_size
    text_at = _round_up(strings_at + len(strings.data), 16)
    text = CODE[arch] * len(codes)
    dynamic_at = _round_up(text_at + len(text), 16)
    text_address, dynamic_address = text_at + PAGE, dynamic_at + 2 * PAGE
    dynamic = _dynamic(soname_at, needed_at, (hash_at, strings_at, symbols_at), len(strings.data))
    bss_address = _round_up(dynamic_address + len(dynamic), 32)
    bss_size = OBJECT_SIZE * len(zeroes)

    step = len(CODE[arch])
    defined = [(STT_FUNC, 4, text_address + number * step, step) for number in range(len(codes))]
    defined += [(STT_OBJECT, 6, bss_address + n * OBJECT_SIZE, OBJECT_SIZE) for n in range(len(zeroes))]
    symbols = bytes(SYM_SIZE) + b"".join(
        struct.pack("<IBBHQQ", place, 0x10 | kind, 0, section, value, size)  # 0x10: global
        for place, (kind, section, value, size) in zip(places, defined, strict=True)
    )

    sections = (
        _Section(".hash", 2, hash_at, hash_at, len(hash_table), link=2, entry=4),
        _Section(".dynsym", 2, symbols_at, symbols_at, symbols_size, link=3, info=1, entry=SYM_SIZE),
        _Section(".dynstr", 2, strings_at, strings_at, len(strings.data), align=1),
        _Section(".text", 6, text_at, text_address, len(text), align=16),
        _Section(".dynamic", 3, dynamic_at, dynamic_address, len(dynamic), link=3, entry=16),
        _Section(".bss", 3, dynamic_at + len(dynamic), bss_address, bss_size, align=32),
    )
    image = bytearray(_round_up(dynamic_at + len(dynamic), 8))
    parts = ((hash_at, hash_table), (symbols_at, symbols), (strings_at, strings.data))
    for at, data in (*parts, (text_at, text), (dynamic_at, dynamic)):
        image[at : at + len(data)] = data
    read_only = strings_at + len(strings.data)
    in_memory = bss_address + bss_size - dynamic_address
    headers = (
        struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, read_only, read_only, PAGE),
        struct.pack("<IIQQQQQQ", 1, 5, text_at, text_address, text_address, len(text), len(text), PAGE),
        struct.pack("<IIQQQQQQ", 1, 6, dynamic_at, dynamic_address, dynamic_address, len(dynamic), in_memory, PAGE),
        struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_address, dynamic_address, len(dynamic), len(dynamic), 8),
        struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16),  # PT_GNU_STACK: no executable stack
    )
    tables = _section_headers(sections, len(image))
    image[:EHDR_SIZE] = _file_header(arch, len(image) + tables[0], len(SECTIONS) + 1)
    image[EHDR_SIZE:hash_at] = b"".join(headers)
    return bytes(image) + tables[1]


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _file_header(arch: Arch, sections_at: int, count: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return ident + struct.pack(
        "<HHIQQQIHHHHHH",
        *(3, MACHINE[arch], 1, 0, EHDR_SIZE, sections_at, 0, EHDR_SIZE, PHDR_SIZE, SEGMENTS),
        *(SHDR_SIZE, count, count - 1),
    )


def _dynamic(soname: int, needed: Iterable[int], addresses: tuple[int, int, int], strings_size: int) -> bytes:
    entries = [(DT_NEEDED, place) for place in needed]
    entries += [(DT_SONAME, soname), *zip((DT_HASH, DT_STRTAB, DT_SYMTAB), addresses, strict=True)]
    entries += [(DT_STRSZ, strings_size), (DT_SYMENT, SYM_SIZE), (0, 0)]
    return b"".join(struct.pack("<QQ", *entry) for entry in entries)


def _hash_table(names: Sequence[str]) -> bytes:
    """Return DT_HASH of symbols 1…n (0 is the empty one): bucket and chain words."""
    count = max(1, len(names))
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        value = 0
        for byte in name.encode():  # the hash of the System V ABI
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        bucket = value % count
        chains[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(f"<{2 + count + len(chains)}I", count, len(chains), *buckets, *chains)


def _section_headers(sections: Sequence[_Section], end: int) -> tuple[int, bytes]:
    """Return (offset of the headers after `end`, string table and headers). `ld` and `nm` need them, ld.so does not."""
    names = _Strings()
    places = [names.add(name) for name in SECTIONS]
    table = _Section(".shstrtab", 0, end, 0, len(names.data), align=1)
    headers = [bytes(SHDR_SIZE)]
    for place, item in zip(places, (*sections, table), strict=True):
        where = (item.flags, item.address, item.offset, item.size, item.link, item.info, item.align, item.entry)
        headers.append(struct.pack("<IIQQQQIIQQ", place, SECTIONS[item.name], *where))
    gap = _round_up(len(names.data), 8)
    return gap, names.data.ljust(gap, b"\0") + b"".join(headers)


# Outermost C++ namespaces and C prefixes that never belong to CANN, whatever the recipe has.
FOREIGN_NAMESPACES = frozenset(
    {"__cxxabiv1", "__gnu_cxx", "at", "c10", "c10_npu", "c10d", "caffe2", "libkineto", "pybind11", "std", "torch"}
    | {"at_npu", "tensorpipe", "torch_npu"}
)
FOREIGN_PREFIXES = ("Py", "_Py", "THP", "__", "_Unwind", "_ITM", "aoti_torch", "_ZN10__cxxabiv1")
# The part of a mangled name before its first source name (Itanium C++ ABI, 5.1).
OUTERMOST = re.compile(
    r"_Z(?:T[VTISHW]|GV|GR|Th?n?\d+_)?(?:L)?(?P<nested>N[rVK]*[RO]?)?(?:(?P<std>S[tabsiod])|(?P<length>\d+))"
)
OBJECT = re.compile(r"_Z(?:T[VTIS]|GV)")


@dataclass(frozen=True)
class Library:
    """The dynamic symbols of one shared library.

    `undefined` are the names that it needs (without weak ones), `opened` the strings in it that look like the name of a
    library.
    """

    needed: tuple[str, ...]
    undefined: frozenset[str]
    defined: frozenset[str]
    opened: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stub:
    """A stub to make: its soname, symbols and NEEDED entries. `home` is its folder (toolkit or atb)."""

    soname: str
    home: str
    functions: tuple[str, ...]
    objects: tuple[str, ...]
    needed: tuple[str, ...]


def outermost(symbol: str) -> str | None:
    """Return the outermost namespace (or the plain name) of a mangled C++ symbol; None for a C name."""
    match = OUTERMOST.match(symbol)
    if match is None:
        return None
    if match["std"]:
        return "std"
    start = match.end()
    return symbol[start : start + int(match["length"])]


def is_foreign(symbol: str) -> bool:
    """Whether a symbol belongs to torch, Python or the C or C++ runtime, by its name."""
    namespace = outermost(symbol)
    if namespace is not None:
        return namespace in FOREIGN_NAMESPACES
    return symbol.startswith(FOREIGN_PREFIXES)


def owner(symbol: str, libraries: Mapping[str, StubLibrary]) -> str | None:
    """Return the soname of the CANN library that has `symbol`, or None."""
    if is_foreign(symbol):
        return None
    namespace = outermost(symbol)
    if namespace is not None:
        return next((name for name, library in libraries.items() if namespace in library.namespaces), None)
    matches = [
        (len(prefix), name)
        for name, library in libraries.items()
        for prefix in library.prefixes
        if symbol.startswith(prefix)
    ]
    return max(matches)[1] if matches else None


def plan_stubs(wheel: Iterable[Library], libraries: Mapping[str, StubLibrary]) -> tuple[Stub, ...]:
    """Return the stubs that the libraries of a torch_npu wheel need, sorted by soname; empty for an empty wheel.

    A stub is made for each known library that is NEEDED, that is opened by name, or that has an undefined symbol. If no
    wheel library NEEDs a stub, the first stub NEEDs it, as the real libascendcl.so NEEDs libruntime.so.
    """
    wheel = tuple(wheel)
    defined = frozenset[str]().union(*(library.defined for library in wheel))
    wanted = frozenset[str]().union(*(library.undefined for library in wheel)) - defined
    symbols: dict[str, list[str]] = {}
    for symbol in sorted(wanted):
        name = owner(symbol, libraries)
        if name is not None:
            symbols.setdefault(name, []).append(symbol)
    needed = {name for library in wheel for name in library.needed if name in libraries}
    strings = frozenset[str]().union(*(library.opened for library in wheel))
    opened = {
        name
        for name, library in libraries.items()
        if library.opened and not strings.isdisjoint({name, name.removesuffix(".so")})
    }
    pulled = tuple(sorted(symbols.keys() - needed))
    root = min(needed, default="")
    return tuple(
        Stub(
            soname=name,
            home=libraries[name].home,
            functions=tuple(s for s in symbols.get(name, ()) if not OBJECT.match(s)),
            objects=tuple(s for s in symbols.get(name, ()) if OBJECT.match(s)),
            needed=pulled if name == root else (),
        )
        for name in sorted(needed | opened | symbols.keys())
    )


def stub_library(stub: Stub, arch: Arch) -> bytes:
    """Return the shared library of one stub for `arch`."""
    return shared_library(arch, stub.soname, functions=stub.functions, objects=stub.objects, needed=stub.needed)
