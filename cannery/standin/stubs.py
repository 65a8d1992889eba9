"""Which CANN libraries a torch_npu wheel wants, and stubs of them: small libraries whose functions return 0.

Only symbols of the families in images/standin/recipe.yaml are stubbed, and never one of torch, of Python or of the
C++ runtime: an ABI that does not match must show at import, on the stand-in as on a real base.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.standin.elf import shared_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cannery.catalog.catalog import StubLibrary
    from cannery.vocab import Arch

# Outermost C++ namespaces and C prefixes that are never CANN's, whatever the recipe says.
FOREIGN_NAMESPACES = frozenset(
    {"__cxxabiv1", "__gnu_cxx", "at", "c10", "c10_npu", "c10d", "caffe2", "libkineto", "pybind11", "std", "torch"}
    | {"at_npu", "tensorpipe", "torch_npu"}
)
FOREIGN_PREFIXES = ("Py", "_Py", "THP", "__", "_Unwind", "_ITM", "aoti_torch", "_ZN10__cxxabiv1")
# Mangled names (Itanium C++ ABI, 5.1): what is before the first source name of a nested or plain name.
OUTERMOST = re.compile(
    r"_Z(?:T[VTISHW]|GV|GR|Th?n?\d+_)?(?:L)?(?P<nested>N[rVK]*[RO]?)?(?:(?P<std>S[tabsiod])|(?P<length>\d+))"
)
OBJECT = re.compile(r"_Z(?:T[VTIS]|GV)")


@dataclass(frozen=True)
class Library:
    """The dynamic symbols of one shared library, as in its file.

    `undefined` are the names it cannot do without (weak ones are left out), `opened` the whole strings in it that
    look like a library's name.
    """

    file: str
    soname: str
    needed: tuple[str, ...]
    undefined: frozenset[str]
    defined: frozenset[str]
    opened: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stub:
    """A stub to make: its soname, names and own NEEDED entries; `home` is where it lives (toolkit or atb)."""

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
    """Whether the symbol belongs to torch, Python or the C and C++ runtime by its name."""
    namespace = outermost(symbol)
    if namespace is not None:
        return namespace in FOREIGN_NAMESPACES
    return symbol.startswith(FOREIGN_PREFIXES)


def owner(symbol: str, libraries: Mapping[str, StubLibrary]) -> str | None:
    """Return the soname of the CANN library that has `symbol`, or None when it is not CANN's."""
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

    A stub is made for each known library that is NEEDED, or opened by name, or owns an undefined symbol. Owners that
    nothing NEEDs are pulled in by the first stub that is, as the real libascendcl.so pulls in libruntime.so.
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
    opened = {name for name, library in libraries.items() if library.opened and _is_named(name, strings)}
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


def _is_named(soname: str, strings: frozenset[str]) -> bool:
    return soname in strings or soname.removesuffix(".so") in strings
