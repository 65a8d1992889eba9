"""Stub libraries: which symbols, and the ELF files themselves."""

from __future__ import annotations

import ctypes
import io
import os
import struct
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from cannery.catalog.catalog import StubLibrary
from cannery.standin.stubs import (
    PAGE,
    Library,
    Stub,
    is_foreign,
    outermost,
    owner,
    plan_stubs,
    shared_library,
    stub_library,
)
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES = {
    "libascendcl.so": StubLibrary(prefixes=("acl",)),
    "libacl_op_compiler.so": StubLibrary(prefixes=("aclop",)),
    "libatb.so": StubLibrary(namespaces=("atb",), home="atb"),
    "libgraph.so": StubLibrary(namespaces=("ge",)),
    "libopapi.so": StubLibrary(prefixes=("aclnn",), opened=True),
    "libruntime.so": StubLibrary(prefixes=("rtGet",)),
}


def library(needed: tuple[str, ...], undefined: set[str], **more: frozenset[str]) -> Library:
    return Library(needed, frozenset(undefined), more.pop("defined", frozenset()), **more)


@pytest.mark.parametrize(
    ("symbol", "namespace"),
    [
        ("_ZN2ge5Graph8CopyFromERKS0_", "ge"),
        ("_ZNK2ge6Tensor7GetDataEv", "ge"),
        ("_ZNKR2ge6Tensor7GetDataEv", "ge"),
        ("_ZN3atb15CreateOperationINS_5infer11LinearParamEEEiRKT_PPNS_9OperationE", "atb"),
        ("_ZTIN2ge5GraphE", "ge"),
        ("_ZTVN3c105ErrorE", "c10"),
        ("_ZGVN2ge1xE", "ge"),
        ("_ZTHN3c104impl26raw_local_dispatch_key_setE", "c10"),
        ("_ZNSt6vectorIiE4sizeEv", "std"),
        ("_ZStlsISt11char_traitsIcEE", "std"),
        ("_ZNSs4sizeEv", "std"),
        ("_Z14THPStream_WrapP7_object", "THPStream_Wrap"),
        ("_ZThn16_N4c10d7BackendD1Ev", "c10d"),
        ("aclInit", None),
        ("_Znwm", None),
    ],
)
def test_outermost_namespace(symbol: str, namespace: str | None) -> None:
    assert outermost(symbol) == namespace


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZN3c105ErrorC1Ev",
        "_ZN2at6Tensor3addEv",
        "_ZN5torch3jit4loadEv",
        "_ZN6caffe28TypeMetaEv",
        "_ZNK4c10d7Backend15incref_pyobjectEv",
        "_ZTVN3c105ErrorE",
        "_ZNSt6vectorIiE4sizeEv",
        "PyTuple_New",
        "_Py_NoneStruct",
        "THPVariableClass",
        "__cxa_throw",
        "aoti_torch_device_type_cpu",
    ],
)
def test_nothing_of_torch_python_or_the_runtime_is_ever_stubbed(symbol: str) -> None:
    greedy = {
        "libascendcl.so": StubLibrary(prefixes=("", "_", "P", "T", "a"), namespaces=("c10", "at", "std", "torch"))
    }
    assert is_foreign(symbol)
    assert owner(symbol, greedy) is None
    assert plan_stubs([library(("libascendcl.so",), {symbol})], greedy)[0].functions == ()


def test_owner_is_the_longest_prefix_or_the_namespace() -> None:
    names = {
        symbol: owner(symbol, FAMILIES) for symbol in ("aclInit", "aclopCreateAttr", "aclnnAdd", "rtGetX", "dlopen")
    }
    assert names == {
        "aclInit": "libascendcl.so",
        "aclopCreateAttr": "libacl_op_compiler.so",
        "aclnnAdd": "libopapi.so",
        "rtGetX": "libruntime.so",
        "dlopen": None,
    }
    assert owner("_ZN3atb13CreateContextEPPNS_7ContextE", FAMILIES) == "libatb.so"


def test_symbols_of_the_wheel_itself_and_of_the_system_are_left_alone() -> None:
    wheel = [
        library(("libascendcl.so", "libc.so.6"), {"aclInit", "aclHelper", "dlopen"}),
        library((), set(), defined=frozenset({"aclHelper"})),
    ]
    assert plan_stubs(wheel, FAMILIES) == (Stub("libascendcl.so", "toolkit", ("aclInit",), (), ()),)


def test_an_owner_that_nothing_needs_is_pulled_in_by_one_that_is() -> None:
    stubs = plan_stubs([library(("libascendcl.so",), {"aclInit", "rtGetX"})], FAMILIES)
    assert [(s.soname, s.needed) for s in stubs] == [("libascendcl.so", ("libruntime.so",)), ("libruntime.so", ())]


def test_libraries_opened_by_name_are_made_only_when_named() -> None:
    wheel = library(("libatb.so",), set(), opened=frozenset({"libopapi"}))
    assert [(s.soname, s.home) for s in plan_stubs([wheel], FAMILIES)] == [
        ("libatb.so", "atb"),
        ("libopapi.so", "toolkit"),
    ]
    assert [s.soname for s in plan_stubs([library(("libatb.so",), set())], FAMILIES)] == ["libatb.so"]


def test_type_information_becomes_data() -> None:
    stub = plan_stubs([library(("libgraph.so",), {"_ZTIN2ge5GraphE", "_ZN2ge5GraphC1Ev"})], FAMILIES)[0]
    assert (stub.functions, stub.objects) == (("_ZN2ge5GraphC1Ev",), ("_ZTIN2ge5GraphE",))


def test_no_wheel_no_stubs() -> None:
    assert plan_stubs([], FAMILIES) == ()


@pytest.mark.parametrize("arch", list(Arch))
def test_file_is_a_shared_library_that_readers_understand(arch: Arch) -> None:
    content = shared_library(arch, "libx.so", functions=["b", "a"], objects=["o"], needed=["liby.so", "libz.so"])
    elf = ELFFile(io.BytesIO(content))
    assert (elf.header.e_type, elf["e_machine"]) == ("ET_DYN", {"amd64": "EM_X86_64", "arm64": "EM_AARCH64"}[arch])
    tags = [
        (t.entry.d_tag, getattr(t, "needed", getattr(t, "soname", None)))
        for t in elf.get_section_by_name(".dynamic").iter_tags()
    ]
    assert tags[:3] == [("DT_NEEDED", "liby.so"), ("DT_NEEDED", "libz.so"), ("DT_SONAME", "libx.so")]
    symbols = {s.name: s for s in elf.get_section_by_name(".dynsym").iter_symbols() if s.name}
    assert list(symbols) == ["a", "b", "o"]
    assert {n: s.entry.st_info.type for n, s in symbols.items()} == {
        "a": "STT_FUNC",
        "b": "STT_FUNC",
        "o": "STT_OBJECT",
    }
    text = elf.get_section_by_name(".text")
    for name in "ab":
        at = symbols[name].entry.st_value - text["sh_addr"]
        assert text.data()[at:].startswith(bytes.fromhex({"amd64": "31c0c3", "arm64": "000080d2c0035fd6"}[arch]))


@pytest.mark.parametrize("arch", list(Arch))
def test_segments_keep_the_loaders_rules(arch: Arch) -> None:
    elf = ELFFile(io.BytesIO(shared_library(arch, "libx.so", functions=[f"f{n}" for n in range(9000)], objects=["o"])))
    loads = [s.header for s in elf.iter_segments("PT_LOAD")]
    assert [s.p_flags for s in loads] == [4, 5, 6]
    ends = [s.p_vaddr + s.p_memsz for s in loads]
    for segment in loads:
        assert segment.p_offset % PAGE == segment.p_vaddr % PAGE
    for end, following in zip(ends, loads[1:], strict=False):
        assert end // PAGE < following.p_vaddr // PAGE or end <= following.p_vaddr // PAGE * PAGE
    assert next(elf.iter_segments("PT_GNU_STACK")).header.p_flags == 6


def test_hash_table_finds_every_symbol() -> None:
    names = [f"_ZN2ge{n}xE" for n in range(50)]
    elf = ELFFile(io.BytesIO(shared_library(Arch.AMD64, "libx.so", functions=names)))
    table = elf.get_section_by_name(".hash")
    words = struct.unpack(f"<{table['sh_size'] // 4}I", table.data())
    assert words[:2] == (50, 51)
    reached = set()
    for bucket in words[2:52]:
        at = bucket
        while at:
            reached.add(at)
            at = words[52 + at]
    assert reached == set(range(1, 51))


def test_same_names_same_bytes_whatever_their_order() -> None:
    first = shared_library(Arch.ARM64, "libx.so", functions=["a", "b"], objects=["o", "p"])
    assert first == shared_library(Arch.ARM64, "libx.so", functions={"b", "a"}, objects={"p", "o"})


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="loads an x86-64 file into this process")
def test_the_systems_loader_takes_it_and_functions_return_0(tmp_path: Path) -> None:
    path = tmp_path / "libcannery_probe.so"
    stub = Stub("libcannery_probe.so", "toolkit", ("aclInit", "aclFinalize"), ("data",), ())
    path.write_bytes(stub_library(stub, Arch.AMD64))
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOW)
    assert (loaded.aclInit(7), loaded.aclFinalize()) == (0, 0)
    assert bytes((ctypes.c_char * 256).in_dll(loaded, "data")) == bytes(256)
    assert not hasattr(loaded, "aclOther")
