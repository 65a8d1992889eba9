"""The parts of the verify script that take and give values: the manifest's form, versions, ELF, the report's words."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from data.verify_tree import REPOSITORY, Tree, elf

import verify
from verifying.image import Image, Options
from verifying.libraries import MACHINES, cached_libraries, read_elf
from verifying.manifest import cann_version, same_version
from verifying.outcome import Outcome, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = json.loads((REPOSITORY / "docs/manifest.schema.json").read_text())
REPORT_SCHEMA = json.loads((REPOSITORY / "docs/verify-report.schema.json").read_text())
STRICT = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "image").mkdir()
    return Tree(tmp_path / "image")


def full_manifest(tree: Tree) -> dict[str, Any]:
    """A manifest with every list filled, so that each place of the form can be broken."""
    manifest = copy.deepcopy(tree.manifest)
    digest = "sha256:" + "a" * 64
    manifest["sources"] = [
        {
            "name": "verl",
            "component": "verl-src",
            "version": "1.0",
            "install": "editable",
            "path": "/opt/src/verl",
            "repository": "r",
            "commit": "b" * 40,
            "release": None,
            "dirty": False,
            "without": "",
            "chips": ["910b"],
        }
    ]
    more = {"module": "verl.a", "standin": "why"}
    files = [{"path": "/a", "before": digest, "after": None, **more}]
    patch = {"name": "p", "digest": digest, "component": "verl", "from": "verl-npu", "rev": "796871d7d", "files": files}
    manifest["patches"] = [patch]
    manifest["patches_left_out"] = [{"name": "q", "component": "verl", "reason": "why"}]
    manifest["checks"] |= {
        "imports": [{"module": "verl.a", "component": "verl", "attribute": "b.c", "equals": "1"}],
        "libraries": ["/usr/local/lib/x.so"],
        "files": [{"path": "/a", "sha256": digest}],
        "native": [{"path": "/a/*.so", "component": "k"}],
        "pip_check_allow": ["^a"],
        "library_allow": ["b$"],
    }
    return manifest | {
        "labels": {"a": "b"},
        "user": {"uid": 1, "name": "u"},
        "forced": ["pair"],
        "overrides": [{"requirement": "torch", "reason": "why"}],
    }


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*path, key))  # type: ignore[index]


def altered(manifest: dict[str, Any], path: tuple[Any, ...], value: object) -> object:
    if not path:
        return value
    result = copy.deepcopy(manifest)
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result


def test_a_manifest_of_any_other_form_ends_in_one_line(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value of another kind, or a missing key, at every place: listed, or refused, and no traceback."""
    manifest = full_manifest(tree)
    assert STRICT.is_valid(manifest)
    path, codes = tmp_path / "manifest.json", set()
    for place in places(manifest):
        for value in (None, True, 7, "", [], ["x"], {"strange": 1}):
            path.write_text(json.dumps(altered(manifest, place, value)))
            codes.add(verify.main(["--manifest", str(path), "--list"]))
            assert "Traceback" not in capsys.readouterr().err
    assert codes == {0, 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory"),
        ("", "no JSON text: Expecting value: line 1 column 1"),
        ('{"schema": 1,\n "x"}', "line 2 column 5"),
        ("\xff", "expected an object"),
        (b"\xff\xfe", "no JSON text: "),
        ("[]", "expected an object, found []"),
        ('{"schema": 2}', "schema 2; this script reads schema 1"),
        ("{}", "of another form (KeyError"),
        ("[" * 100_000, "no JSON text: "),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_broken_manifest_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes | None, says: str, *, as_json: bool
) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else b'"\xc3\xbf"' if text == "\xff" else text.encode())
    assert verify.main(["--manifest", str(path), *(["--json"] if as_json else [])]) == 1
    out = capsys.readouterr().out
    if as_json:
        report = json.loads(out)
        jsonschema.validate(report, REPORT_SCHEMA)
        assert report["result"] == "failed"
        assert says in report["checks"][0]["message"]
    else:
        assert out.startswith(f"❌ static.manifest: {path}: ")
        assert says in out
        assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("1.0", "1.0.0", True),
        ("1.0", "1.0.1", False),
        ("0.13.0", "0.13.0+empty", True),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cpu", "2.13.0+cu126", False),
        ("2.7.1.post2", "2.7.1", False),
        ("2.7.1-2", "2.7.1.post2", True),
        ("1.0rc1", "1.0c1", True),
        ("1.0.RC1", "1.0rc1", True),
        ("1.0a", "1.0alpha0", True),
        ("1.0.dev3", "1.0", False),
        ("1!1.0", "1.0", False),
        ("v1.0", "1", True),
        ("1.0+ubuntu-1", "1.0+ubuntu.1", True),
        ("2024.1.1", "2024.01.1", True),
        ("0!1.0", "1.0", True),
        ("1.0+cpu.01", "1.0+cpu.1", True),
        ("strange", "strange", True),
        ("strange", "1.0", False),
    ],
)
def test_versions(wanted: str, found: str, same: bool) -> None:
    assert same_version(wanted, found) is same


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100R001C21SPC001B238\n", "8.1.rc1"),
        ("Version=7.6.0.1.220\nversion_dir=8.5.0\ntimestamp=20260117_000012345\n", "8.5.0"),
        ("# version: 1.0\nruntime_running_version=[7.6.0.1.220:8.3.RC2]\n", "8.3.rc2"),
        ("Ascend-cann-atb : 8.2.RC1\nAscend-cann-atb Version : 8.2.RC1.B080\nPlatform : x86_64\n", "8.2.rc1"),
        ("version=9.1.0-beta\nversion_dir=8.5.0.alpha001\n", "8.5.0.alpha001"),
        ("Ascend-cann-atb : 8.5.0.B160\n", "8.5.0"),
        ("version=8.3.RC1.B5\n", "8.3.rc1"),
        ("nothing 1.0\n", ""),
        ("", ""),
    ],
)
def test_cann_version_files(text: str, version: str) -> None:
    assert cann_version(text) == version


def test_elf_made_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(elf(("liba.so.1", "libb.so"), runpath="$ORIGIN/../lib:/opt/x", soname="x.so.3", machine=183))
    found = read_elf(str(file))
    assert found == (183, ("liba.so.1", "libb.so"), "x.so.3", ("$ORIGIN/../lib", "/opt/x"))
    file.write_bytes(elf(("liba.so.1",), machine=183, wide=False))
    assert read_elf(str(file)) == (0, (), "", ()), "of no machine that an image is for"


def test_elf_of_every_length_is_read_or_refused(tmp_path: Path) -> None:
    whole, file = elf(("liba.so.1",), soname="x.so"), tmp_path / "x.so"
    refused = []
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        try:
            found = read_elf(str(file))
        except ValueError as error:
            refused.append(str(error))
        else:
            assert found is None or found.needed in {(), ("liba.so.1",)}
    assert len(refused) > len(whole) // 2
    assert all(text.startswith("broken ELF file") for text in refused)


def test_elf_of_this_hosts_extensions() -> None:
    import _ctypes  # noqa: PLC0415

    path = getattr(_ctypes, "__file__", sys.executable)
    found = read_elf(path)
    assert any(name.startswith("libc.so") for name in found.needed)
    assert found.machine in MACHINES.values()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: test_elf_made_by_hand covers the reader")
@pytest.mark.parametrize(("flag", "path"), [("--enable-new-dtags", "/opt/run"), ("--disable-new-dtags", "/opt/r")])
def test_elf_made_by_gcc(tmp_path: Path, flag: str, path: str) -> None:
    file = tmp_path / "libt.so"
    options = ["-shared", "-o", str(file), "-x", "c", "/dev/null", f"-Wl,-soname,libt.so.7,-rpath,{path},{flag}"]
    subprocess.run(["gcc", *options, "-Wl,--no-as-needed", "-lm"], check=True)
    found = read_elf(str(file))
    assert (found.soname, found.runpath) == ("libt.so.7", (path,))
    assert "libm.so.6" in found.needed


def test_the_loaders_cache(tree: Tree) -> None:
    tree.write(
        "/sbin/ldconfig", "#!/bin/sh\nprintf '1 libs\\n\\tliba.so.1 (libc6,x86-64) => /usr/lib/liba.so.1\\n'\n", 0o755
    )
    assert cached_libraries(tree.image()) == [("liba.so.1", "/usr/lib/liba.so.1")]
    (tree.root / "sbin/ldconfig").unlink()
    assert cached_libraries(tree.image()) == []


def test_the_cache_of_this_host_names_libc() -> None:
    assert Path(dict(cached_libraries(Image({}, options=Options())))["libc.so.6"]).exists()


def outcome(level: str, status: str, message: str = "m") -> object:
    return Outcome(status, message, (), False, f"{level}.x", level)


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([outcome("static", "passed"), outcome("npu", "skipped", "no NPU")], "passed"),
        ([outcome("static", "failed"), outcome("npu", "skipped", "stand-in: no NPU")], "failed"),
        ([outcome("static", "passed")], "passed"),
    ],
)
def test_the_summary_never_praises_an_untested_npu(outcomes: list[object], result: str) -> None:
    line = summary(outcomes, result)
    assert "the NPU was not tested" in line
    assert "NPU ok" not in line
    assert "not tested" not in summary([outcome("npu", "passed")], "passed")


def test_numbers_of_the_summary() -> None:
    line = summary([outcome("static", "passed"), outcome("static", "warning"), outcome("npu", "passed")], "passed")
    assert line == "✅ passed: 2 passed, 1 warning"
