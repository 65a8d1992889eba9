"""What the dynamic loader reads of a shared object, and of its cache."""

import mmap
import struct
from itertools import takewhile
from typing import NamedTuple


class Elf(NamedTuple):
    """The dynamic section of a shared object."""

    machine: int
    bits: int
    needed: tuple[str, ...]
    soname: str
    runpath: tuple[str, ...]


MACHINES = {"amd64": 62, "arm64": 183}
DYNAMIC, LOAD = 2, 1
NEEDED, STRTAB, SONAME, RPATH, RUNPATH = 1, 5, 14, 15, 29


def read_elf(path: str) -> Elf | None:
    """The dynamic section of an ELF file; None when it is not ELF. ValueError when it is broken."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(data)
        except (struct.error, IndexError) as error:
            raise ValueError(f"broken ELF file ({error})") from error


def _parse(data: mmap.mmap) -> Elf:
    if data[4] not in {1, 2} or data[5] not in {1, 2}:
        raise ValueError("broken ELF file (class or byte order)")
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    (machine,) = struct.unpack_from(order + "H", data, 18)
    (headers,) = struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28)
    size, count = struct.unpack_from(order + "HH", data, 54 if wide else 42)
    # (type, file offset, address, bytes in the file) of each program header
    segment = order + ("I4xQQ8xQ" if wide else "III4xI")
    segments = [struct.unpack_from(segment, data, headers + at * size) for at in range(count)]
    dynamic = next((item for item in segments if item[0] == DYNAMIC), None)
    tags = _tags(data, order + ("qQ" if wide else "iI"), dynamic[1], dynamic[3]) if dynamic else []
    table = next((value for tag, value in tags if tag == STRTAB), 0)
    strings = next(
        (off + table - at for kind, off, at, length in segments if kind == LOAD and at <= table < at + length), 0
    )

    def texts(wanted: int) -> tuple[str, ...]:
        return tuple(_string(data, strings + value) for tag, value in tags if tag == wanted)

    paths = texts(RUNPATH) or texts(RPATH)  # ld.so ignores RPATH where there is a RUNPATH
    return Elf(
        machine,
        64 if wide else 32,
        texts(NEEDED),
        next(iter(texts(SONAME)), ""),
        tuple(part for text in paths for part in text.split(":") if part),
    )


def _tags(data: mmap.mmap, form: str, at: int, length: int) -> list[tuple[int, int]]:
    """The entries of the dynamic section up to the one that ends it."""
    one = struct.Struct(form)
    tags = ((*one.unpack_from(data, place),) for place in range(at, at + length - one.size + 1, one.size))
    return list(takewhile(lambda item: item[0] != 0, tags))


def _string(data: mmap.mmap, at: int) -> str:
    stop = data.find(b"\0", at)
    if not 0 < at < len(data) or stop < 0:
        raise ValueError("broken ELF file (string table)")
    return data[at:stop].decode("utf-8", "replace")


def cached_libraries(path: str) -> dict[str, str]:
    """Name → path of /etc/ld.so.cache (glibc's new format, all that ldconfig(8) writes since 2.32); {} without one."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    start = data.find(b"glibc-ld.so.cache1.1")
    if start < 0:
        return {}
    (count,) = struct.unpack_from("<I", data, start + 20)
    found: dict[str, str] = {}
    for at in range(count):
        name, where = struct.unpack_from("<II", data, start + 48 + 24 * at + 4)
        key = data[start + name : data.find(b"\0", start + name)].decode()
        found.setdefault(key, data[start + where : data.find(b"\0", start + where)].decode())
    return found
