"""What a wheel becomes in an image, and the byte code of its modules."""

from __future__ import annotations

import csv
import hashlib
import sys
import zipfile
from base64 import urlsafe_b64encode
from importlib.util import MAGIC_NUMBER, source_hash
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.io.bytecode import BATCH, compiled
from cannery.assemble.io.wheel_files import SMALL, WheelError, install, opened, wheel_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SITE = "/opt/venv/lib/python3.11/site-packages"
INFO = {
    "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def hashed(data: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make(folder: Path, files: Mapping[str, str], name: str = "demo", *, record: bool = True) -> Path:
    """A wheel with `files`, of which those with `!` in front of their path are executable."""
    info = {path.replace("demo", name): text.replace("demo", name) for path, text in INFO.items()}
    path = folder / f"{name}-1.0-py3-none-any.whl"
    rows = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in {**files, **info}.items():
            entry = zipfile.ZipInfo(member.removeprefix("!"))
            entry.external_attr = (0o100755 if member.startswith("!") else 0o100664) << 16
            archive.writestr(entry, text)
            rows += f"{entry.filename},{hashed(text.encode()) if record else ''},{len(text) if record else ''}\n"
        archive.writestr(f"{name}-1.0.dist-info/RECORD", rows + f"{name}-1.0.dist-info/RECORD,,\n")
    return path


def laid_out(wheel: Path) -> dict[str, tuple[int, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        files = wheel_files(archive, "/opt/venv", "3.11")
        assert [file.path for file in files] == sorted(file.path for file in files)
        return {
            file.path: (file.mode, file.content if isinstance(file.content, bytes) else archive.read(file.content))
            for file in files
        }


def test_each_part_of_a_wheel_has_its_place(tmp_path: Path) -> None:
    data = "demo-1.0.data"
    files = laid_out(
        make(
            tmp_path,
            {
                "demo/__init__.py": "",
                "!demo/tool.sh": "#!/bin/sh\n",
                f"!{data}/scripts/run": "#!python\nprint()\n",
                f"{data}/data/share/demo.txt": "d",
                f"{data}/headers/demo.h": "h",
                f"{data}/platlib/demo/native.so": "s",
                f"{data}/purelib/demo/pure.py": "p",
            },
        )
    )
    assert {path: mode for path, (mode, _) in files.items() if ".dist-info" not in path} == {
        "/opt/venv/bin/run": 0o755,
        "/opt/venv/include/site/python3.11/demo/demo.h": 0o644,
        "/opt/venv/share/demo.txt": 0o644,
        f"{SITE}/demo/__init__.py": 0o644,
        f"{SITE}/demo/native.so": 0o644,
        f"{SITE}/demo/pure.py": 0o644,
        f"{SITE}/demo/tool.sh": 0o755,
    }
    assert files["/opt/venv/bin/run"][1] == b"#!/opt/venv/bin/python\nprint()\n"


def test_the_record_names_what_was_installed(tmp_path: Path) -> None:
    points = "[console_scripts]\ndemo = demo.cli:main.run\n[gui_scripts]\nshown = demo:gui\n"
    files = laid_out(make(tmp_path, {"demo/a.py": "a = 1\n", "demo-1.0.dist-info/entry_points.txt": points}))
    script = files["/opt/venv/bin/demo"]
    assert script[0] == 0o755
    assert script[1].startswith(b"#!/opt/venv/bin/python\n")
    assert b"from demo.cli import main\n" in script[1]
    assert b"sys.exit(main.run())" in script[1]
    rows = list(csv.reader(files[f"{SITE}/demo-1.0.dist-info/RECORD"][1].decode().splitlines()))
    names = {row[0] for row in rows}
    assert names == {
        "../../../bin/demo",
        "../../../bin/shown",
        "demo/a.py",
        *(f"demo-1.0.dist-info/{name}" for name in ("INSTALLER", "METADATA", "RECORD", "REQUESTED", "WHEEL")),
        "demo-1.0.dist-info/entry_points.txt",
    }
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["demo/a.py"] == [hashed(b"a = 1\n"), "6"]
    assert by_name["../../../bin/demo"] == [hashed(script[1]), str(len(script[1]))]
    assert files[f"{SITE}/demo-1.0.dist-info/INSTALLER"][1] == b"cannery\n"


def test_a_record_without_hashes_gets_them(tmp_path: Path) -> None:
    files = laid_out(make(tmp_path, {"demo/a.py": "a = 1\n"}, record=False))
    assert f"demo/a.py,{hashed(b'a = 1' + bytes([10]))},6" in files[f"{SITE}/demo-1.0.dist-info/RECORD"][1].decode()


def test_byte_code_that_a_wheel_brings_is_left_out(tmp_path: Path) -> None:
    files = laid_out(make(tmp_path, {"demo/__pycache__/a.cpython-311.pyc": "x", "demo/a.py": ""}))
    assert not [path for path in files if path.endswith(".pyc")]


@pytest.mark.parametrize(
    "path",
    [
        "../outside.py",
        "/etc/passwd",
        "demo/../../x.py",
        "demo//x.py",
        "demo/./x.py",
        "demo\\x.py",
        "demo-1.0.data/scripts/../../x",
    ],
)
def test_a_path_outside_its_folder_is_refused_by_name(tmp_path: Path, path: str) -> None:
    wheel = make(tmp_path, {path: "x"})
    with zipfile.ZipFile(wheel) as archive, pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl: "):
        wheel_files(archive, "/opt/venv", "3.11")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("path", ["demo/a.py", "demo-1.0.dist-info/METADATA"])
def test_a_path_that_is_there_twice_is_refused(tmp_path: Path, path: str) -> None:
    wheel = make(tmp_path, {"demo/a.py": "a = 1\n"})
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(path, "other")
    with zipfile.ZipFile(wheel) as archive, pytest.raises(WheelError, match="twice"):
        wheel_files(archive, "/opt/venv", "3.11")


def test_two_parts_of_one_wheel_with_one_place_are_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": "1", "demo-1.0.data/purelib/demo/a.py": "2"})
    with zipfile.ZipFile(wheel) as archive, pytest.raises(WheelError, match="twice"):
        wheel_files(archive, "/opt/venv", "3.11")


@pytest.mark.parametrize("broken", ["WHEEL", "RECORD"])
def test_what_is_no_wheel_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    whole, cut = make(tmp_path, {"demo/a.py": ""}), tmp_path / "cut"
    cut.mkdir()
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(cut / whole.name, "w") as other:
        for info in archive.infolist():
            if not info.filename.endswith(broken):
                other.writestr(info, archive.read(info))
    with zipfile.ZipFile(cut / whole.name) as archive, pytest.raises(WheelError, match="cannot be installed"):
        wheel_files(archive, "/opt/venv", "3.11")


def test_what_is_no_zip_file_is_refused_by_name(tmp_path: Path) -> None:
    page = tmp_path / "demo-1.0-py3-none-any.whl"
    page.write_text("<html>")
    with pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl: it is no wheel"):
        install([page], tmp_path / "out", "/opt/venv", "3.11")


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": ""})
    with zipfile.ZipFile(wheel, "a") as archive:
        link = zipfile.ZipInfo("demo/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with zipfile.ZipFile(wheel) as archive, pytest.raises(WheelError, match="demo/link is a symbolic link"):
        wheel_files(archive, "/opt/venv", "3.11")


def test_a_wheel_that_grows_as_no_package_does_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("demo/zeros", "w") as stream:
        for _ in range(SMALL // 1_000_000 + 1):
            stream.write(bytes(1_000_000))
    with zipfile.ZipFile(wheel) as archive, pytest.raises(WheelError, match=r"0\.1 MB unpack to 0\.1 GB"):
        wheel_files(archive, "/opt/venv", "3.11")


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": ""})
    with zipfile.ZipFile(wheel) as archive:
        archive.getinfo("demo/a.py").flag_bits |= 1
        with pytest.raises(WheelError, match=r"demo/a\.py is encrypted"):
            wheel_files(archive, "/opt/venv", "3.11")


@pytest.mark.parametrize("where", ["checksum", "content", "size"])
def test_damaged_content_is_refused_by_name(tmp_path: Path, where: str) -> None:
    wheel = make(tmp_path, {"demo/a.py": "a = 1\n" * 50})
    data = bytearray(wheel.read_bytes())
    at = data.index(b"demo/a.py", data.index(b"PK\x01\x02"))  # of the central directory, whose fields count
    if where == "content":
        start = data.index(b"demo/a.py") + len("demo/a.py")
        data[start : start + 4] = b"\xff\xff\xff\xff"
    else:
        data[at - 30 if where == "checksum" else at - 22] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl: demo/a\.py is damaged"):
        install([wheel], tmp_path / "out", "/opt/venv", "3.11")


def test_a_file_of_two_wheels_is_refused_with_both_names(tmp_path: Path) -> None:
    wheels = [make(tmp_path, {"shared/x.py": name}, name) for name in ("demo", "other")]
    with pytest.raises(WheelError, match=r"demo-1\.0.* and other-1\.0.* both have .*/shared/x\.py"):
        install(wheels, tmp_path / "out", "/opt/venv", "3.11")


def test_of_a_script_of_two_wheels_the_later_stays(tmp_path: Path) -> None:
    wheels = [
        make(tmp_path, {f"{name}-1.0.data/scripts/tool": f"#!python\n{name}\n"}, name) for name in ("demo", "other")
    ]
    install(wheels, tmp_path / "out", "/opt/venv", "3.11")
    assert "other" in (tmp_path / "out/opt/venv/bin/tool").read_text()


def test_two_wheels_may_have_the_same_file_of_a_namespace(tmp_path: Path) -> None:
    wheels = [make(tmp_path, {"shared/__init__.py": "same"}, name) for name in ("demo", "other")]
    modules = install(wheels, tmp_path / "out", "/opt/venv", "3.11")
    assert [[path for path, _ in one] for one in modules] == [[f"{SITE}/shared/__init__.py"]] * 2


def test_install_writes_the_files_and_returns_the_modules(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": "a = 1\n", "!demo/t.sh": "t", "!demo-1.0.data/scripts/s.py": "#!python\n"})
    modules = install([wheel], tmp_path / "out", "/opt/venv", "3.11")
    assert modules == [[(f"{SITE}/demo/a.py", b"a = 1\n")]]
    assert (tmp_path / f"out{SITE}/demo/t.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / f"out{SITE}/demo/a.py").stat().st_mode & 0o777 == 0o644


def test_a_line_break_in_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl: it cannot be installed"):
        laid_out(make(tmp_path, {"demo/a\nb.py": ""}))


def test_a_later_format_of_zip_files_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": ""})
    data = bytearray(wheel.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 84  # the version that is needed, times ten
    wheel.write_bytes(data)
    with pytest.raises(WheelError, match="it is no wheel"):
        opened(wheel)


def test_a_package_s_own_tests_are_installed_and_not_compiled(tmp_path: Path) -> None:
    wheel = make(
        tmp_path, {"demo/a.py": "a", "demo/tests/b.py": "b", "demo/core/tests/c.py": "c", "demo/mytests/d.py": "d"}
    )
    modules = install([wheel], tmp_path / "out", "/opt/venv", "3.11")
    assert [path.removeprefix(f"{SITE}/demo/") for path, _ in modules[0]] == ["a.py", "mytests/d.py"]
    assert (tmp_path / f"out{SITE}/demo/core/tests/c.py").read_text() == "c"


def module(number: int) -> tuple[str, bytes]:
    lines = [
        f"'''doc {number % 7}'''",
        f"NAMES = {{'a{number}', 'b', 'c'}}",
        f"def f(x): return x in {{'k', {number}}}",
    ]
    return f"{SITE}/demo/m{number:04}.py", "\n".join(lines).encode()


def test_byte_code_is_checked_against_its_source_at_each_import() -> None:
    path, source = module(1)
    (made,) = compiled([[(path, source)]], sys.executable, 1).items()
    assert made[0] == f"{SITE}/demo/__pycache__/m0001.{sys.implementation.cache_tag}.pyc"
    assert made[1][:16] == MAGIC_NUMBER + (3).to_bytes(4, "little") + source_hash(source)


def test_byte_code_does_not_depend_on_what_is_compiled_beside_it() -> None:
    modules = [module(number) for number in range(2 * BATCH + 3)]
    together = compiled([modules], sys.executable, 2)
    assert len(together) == len(modules)
    assert compiled([modules[::-1]], sys.executable, 1) == together
    assert compiled([modules[-3:], []], sys.executable, 1).items() <= together.items()


# Each leaves something in its process that another one has as a constant: an identifier of one letter beyond ASCII, the
# braces of an annotation that is written out, a module that is imported, a codec.
LEFT = (
    "é = 1\n",
    "from __future__ import annotations\na: f'{{{b}}}'\n",
    "a = '\\N{BULLET}'\n",
    "# coding: cp1252\na = 1\n",
)
HELD = "A = ['é', '{', '}', 'normalize', 'q', '.', ' ']\ndef f(a='é'): return {'{': a.normalize}, 1.5, b'x', ''\n"


@pytest.mark.parametrize("left", LEFT)
def test_byte_code_does_not_depend_on_what_other_modules_leave_in_the_process(left: str) -> None:
    modules = [(f"{SITE}/left.py", left.encode()), (f"{SITE}/held.py", HELD.encode())]
    together = compiled([modules], sys.executable, 1)
    assert len(together) == 2
    assert compiled([modules[1:]], sys.executable, 1).items() <= together.items()
    assert compiled([modules[::-1]], sys.executable, 1) == together


def test_a_process_that_ends_before_its_answer_is_an_error() -> None:
    with pytest.raises(OSError, match=r"compiles|pipe"):
        compiled([[module(1)]], "/bin/true", 1)


@pytest.mark.parametrize("source", [b"print 'x'\n", b"a = 1\0", b"# coding: none-such\n", b"(" * 300])
def test_what_does_not_compile_has_no_byte_code(source: bytes) -> None:
    assert [path[-12:] for path in compiled([[(f"{SITE}/x.py", source), module(2)]], sys.executable, 1)] == [
        "cpython-311.pyc"[-12:]
    ]
