"""Layers made on the host: their bytes, their byte code, and the image that they become."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import tarfile
import zipfile
from dataclasses import replace
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.content import Content, Made, Place, Wheel
from cannery.assemble.image import (
    Settings,
    common_layers,
    config_text,
    foundation_reference,
    image_config,
    layer_words,
    part_references,
    settings_of,
)
from cannery.assemble.io.bytecode import BATCH, compiled
from cannery.assemble.io.code import PROGRAM, Modules, Worker, code_path, make_code, modules_in, python_worker
from cannery.assemble.io.layer import made_before, remember, write_layer
from cannery.assemble.io.load import archive
from cannery.assemble.io.wheel_files import WheelError
from cannery.errors import UnableError
from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options
from cannery.vocab import Arch
from tests.unit.factories import inputs, plan, recipe, user_recipe
from tests.unit.test_wheel_files import make

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cannery.plan import Plan

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"/opt/venv/lib/python{PYTHON}/site-packages"
TAG = sys.implementation.cache_tag
PLACE = Place(PYTHON, 1_700_000_000)
# This very Python, where a build has the base's in a container.
WORKER = Worker(lambda: (sys.executable, str(PROGRAM), "2"), os.environ, sys.version)


def hashed(path: Path) -> Wheel:
    return Wheel(path, hashlib.sha256(path.read_bytes()).hexdigest())


def compile_all(content: Content, worker: Worker, cache: Path) -> None:
    make_code(modules_in(content, PYTHON), worker, cache)


def code_of(content: Content, cache: Path) -> list[Path]:
    return [code_path(modules, WORKER, cache) for modules in modules_in(content, PYTHON)]


def layer(tmp_path: Path, content: Content) -> tuple[Made, bytes]:
    compile_all(content, WORKER, tmp_path)
    stream = io.BytesIO()
    made = write_layer(content, PLACE, code_of(content, tmp_path), stream)
    return made, stream.getvalue()


def files(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {entry.name: stream.read() for entry in tar if entry.isfile() and (stream := tar.extractfile(entry))}


def test_a_layer_has_wheels_texts_links_and_whiteouts(tmp_path: Path) -> None:
    wheel = hashed(make(tmp_path, {"demo/a.py": "a = 1\n", "demo/bad.py": "print 'x'", "!demo/t.sh": "t"}))
    content = Content(
        (wheel,),
        texts={"/opt/cannery/x": "text"},
        links={"/usr/local/lib/l.so": "/usr/lib/l.so"},
        gone=("/opt/old",),
    )
    made, data = layer(tmp_path, content)
    assert made == Made(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert list(entries) == sorted(entries, key=lambda name: name.split("/"))
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime) for e in entries.values()} == {(0, 0, "", "", PLACE.epoch)}
    assert (entries["usr/local/lib/l.so"].linkname, entries["opt/.wh.old"].size) == ("/usr/lib/l.so", 0)
    site = SITE.lstrip("/")
    assert entries[f"{site}/demo/t.sh"].mode == 0o755
    found = files(data)
    assert found["opt/cannery/x"] == b"text"
    assert {name for name in found if name.endswith(".pyc")} == {f"{site}/demo/__pycache__/a.{TAG}.pyc"}


def test_a_layer_has_the_byte_code_of_a_build_stage(tmp_path: Path) -> None:
    sources = {f"demo/m{number:03}.py": f"N = {{'a{number}', 'b'}}\n" for number in range(BATCH + 3)}
    _, data = layer(tmp_path, Content((hashed(make(tmp_path, sources)),)))
    modules = [(f"{SITE}/{path}", text.encode()) for path, text in sources.items()]
    code = {path: text for path, text in files(data).items() if path.endswith(".pyc")}
    assert {f"/{path}": text for path, text in code.items()} == compiled([modules], sys.executable, 1)


def test_byte_code_is_made_once_for_each_wheel_and_python(tmp_path: Path) -> None:
    wheel, other = hashed(make(tmp_path, {"demo/a.py": ""})), Worker(lambda: ("false",), {}, "another Python")
    compile_all(Content((wheel,)), WORKER, tmp_path)
    compile_all(Content((wheel,)), Worker(lambda: ("false",), {}, sys.version), tmp_path)
    (modules,) = modules_in(Content((wheel,)), PYTHON)
    assert code_path(modules, WORKER, tmp_path) != code_path(modules, other, tmp_path)
    with pytest.raises(UnableError, match="byte code"):
        compile_all(Content((wheel,)), other, tmp_path)
    assert not code_path(modules, other, tmp_path).exists()


# Answers a batch with its sources, backwards.
BACKWARDS = """\
import sys
sys.path.insert(0, sys.argv[1])
from bytecode import framed, packed, read_frame, unpacked
while (batch := read_frame(sys.stdin.buffer)) is not None:
    sys.stdout.buffer.write(framed(packed((path, data[::-1]) for path, data in unpacked(batch))))
    sys.stdout.buffer.flush()
"""


def other_version(folder: Path, files: Mapping[str, str], name: str = "demo") -> list[Modules]:
    folder.mkdir(exist_ok=True)
    return modules_in(Content((hashed(make(folder, files, name)),)), PYTHON)


def compiled_of(modules: list[Modules], cache: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(code_path(modules[0], WORKER, cache)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_byte_code_of_what_another_version_has_too_is_not_made_again(tmp_path: Path) -> None:
    sources = {"demo/a.py": "a = 1\n", "demo/b.py": "b = 1\n", "demo/c.py": "c = 1\n", "demo/bad.py": "print 'x'"}
    make_code(other_version(tmp_path / "1", sources), WORKER, tmp_path)
    new = {"demo/a.py": "a = 1\n", "demo/b.py": "b = 2\n", "demo/moved.py": "c = 1\n", "demo/bad.py": "print 'y'"}
    backwards = Worker(lambda: (sys.executable, "-c", BACKWARDS, str(PROGRAM.parent)), os.environ, sys.version)
    modules = other_version(tmp_path / "2", new)
    make_code(modules, backwards, tmp_path)
    made = compiled_of(modules, tmp_path)
    assert {name.rpartition("/")[2]: data for name, data in made.items() if data[:4] != MAGIC_NUMBER} == {
        "b.py": b"\n2 = b", "moved.py": b"\n1 = c", "bad.py": b"'y' tnirp"
    }  # fmt: skip
    assert [name.rpartition("/")[2] for name, data in made.items() if data[:4] == MAGIC_NUMBER] == [f"a.{TAG}.pyc"]


@pytest.mark.parametrize(
    "before", [{}, {"demo/b.py": "b = 1\n"}, {"demo/a.py": "a = 1\n", "demo/old.py": "", "x.py": ""}]
)
def test_byte_code_is_the_same_whatever_version_was_made_before(tmp_path: Path, before: dict[str, str]) -> None:
    new = {"demo/a.py": "a = 1\n", "demo/b.py": "b = 2\n", "demo/empty.py": "", "demo/bad.py": "print 'x'"}
    make_code(other_version(tmp_path / "1", before), WORKER, tmp_path / "cache")
    make_code(other_version(tmp_path / "1", {"demo/a.py": "other\n"}, "demo_more"), WORKER, tmp_path / "cache")
    modules = other_version(tmp_path / "2", new)
    for cache in ("cache", "empty"):
        make_code(modules, WORKER, tmp_path / cache)
    assert len(compiled_of(modules, tmp_path / "empty")) == 3
    assert compiled_of(modules, tmp_path / "cache") == compiled_of(modules, tmp_path / "empty")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


@pytest.mark.parametrize("damage", [cut, flipped, lambda _: b"", lambda data: data[len(data) // 2 :]])
@pytest.mark.parametrize("version", ["own", "other"])
def test_damaged_byte_code_is_made_again_and_not_taken(
    tmp_path: Path, damage: Callable[[bytes], bytes], version: str
) -> None:
    sources = {"demo/a.py": "a = 1\n", "demo/b.py": "b = 1\n"}
    modules = {
        "own": other_version(tmp_path / "1", sources),
        "other": other_version(tmp_path / "2", {**sources, "c": ""}),
    }
    make_code(modules["own"], WORKER, tmp_path / "empty")
    make_code(modules[version], WORKER, tmp_path)
    path = code_path(modules[version][0], WORKER, tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    make_code(modules["own"], WORKER, tmp_path)
    assert compiled_of(modules["own"], tmp_path) == compiled_of(modules["own"], tmp_path / "empty")


def test_a_module_that_is_nested_too_deep_has_no_byte_code(tmp_path: Path) -> None:
    modules = other_version(tmp_path, {"demo/a.py": "a = 1\n", "demo/deep.py": f"x = {'-' * 100_000}1\n"})
    make_code(modules, WORKER, tmp_path)
    assert [name.rpartition("/")[2] for name, data in compiled_of(modules, tmp_path).items() if data] == [
        f"a.{TAG}.pyc"
    ]


def test_a_worker_that_ends_early_is_reported_with_its_words(tmp_path: Path) -> None:
    wheels = [hashed(make(tmp_path, {f"{name}/a.py": "a = 1\n" * 100_000}, name)) for name in ("demo", "other")]
    worker = Worker(lambda: ("sh", "-c", "echo no such image >&2"), os.environ, "x")
    with pytest.raises(UnableError, match="no such image"):
        compile_all(Content(tuple(wheels)), worker, tmp_path)


class Blind:
    """A place that runs no image."""

    env = os.environ

    def python_command(self, image: str, python: str, *_arguments: str, stdin: bool = False) -> tuple[str, ...]:
        raise UnableError(f"{python} of {image} does not run ({stdin})")


@pytest.mark.parametrize(("release", "is_made"), [(platform.python_version(), True), ("3.11.99", False)])
def test_where_an_image_does_not_run_this_hosts_python_of_the_same_release_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, is_made: bool
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    note = tmp_path / "layers/pythons/abc"
    note.parent.mkdir(parents=True)
    note.write_text(f"{release} (main, of the image) [GCC]")
    worker = python_worker(Blind(), "sha256:abc", "/usr/bin/python3", tmp_path)
    wheel = hashed(make(tmp_path, {"demo/a.py": "a = 1\n"}))
    if not is_made:
        with pytest.raises(UnableError, match="does not run") as caught:
            compile_all(Content((wheel,)), worker, tmp_path)
        assert caught.value.hint.startswith("put Python 3.11.99, the image's own, into PATH")
        return
    compile_all(Content((wheel,)), worker, tmp_path)
    compile_all(Content((wheel,)), WORKER, tmp_path)
    (modules,) = modules_in(Content((wheel,)), PYTHON)
    made, own = (code_path(modules, one, tmp_path).read_bytes() for one in (worker, WORKER))
    assert made == own


def test_an_image_whose_python_is_not_known_compiles_nothing_where_it_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="does not run"):
        python_worker(Blind(), "sha256:abc", "/usr/bin/python3", tmp_path)


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.py": ""})
    with pytest.raises(WheelError, match=r"demo-1\.0.*another hash"):
        compile_all(Content((Wheel(wheel, "0" * 64),)), WORKER, tmp_path)


def test_wheels_that_have_one_file_with_another_content_are_refused(tmp_path: Path) -> None:
    wheels = tuple(hashed(make(tmp_path, {"shared/x.py": name}, name)) for name in ("demo", "other"))
    with pytest.raises(WheelError, match=r"demo.* and other.* both have"):
        layer(tmp_path, Content(wheels))


def test_a_member_that_the_disk_has_damaged_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"demo/a.txt": "a" * 5000})
    found = hashed(wheel)
    compile_all(Content((found,)), WORKER, tmp_path)
    with zipfile.ZipFile(wheel) as archived:
        at = archived.getinfo("demo/a.txt").header_offset + 30 + len("demo/a.txt")
    data = bytearray(wheel.read_bytes())
    data[at] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(WheelError, match=r"demo/a\.txt is damaged"):
        layer(tmp_path, Content((found,)))


def test_what_a_layer_came_to_is_remembered(tmp_path: Path) -> None:
    assert made_before(tmp_path, "a") is None
    remember(tmp_path, "a", Made("sha256:1", 2))
    assert made_before(tmp_path, "a") == Made("sha256:1", 2)
    (tmp_path / "layers/a.json").write_text("half")
    assert made_before(tmp_path, "a") is None


PARENT = {
    "Architecture": "arm64",
    "Variant": "v8",
    "Os": "linux",
    "Config": {
        "Env": ["A=1", "PATH=/bin"], "Cmd": ["/bin/sh"], "Hostname": "x", "User": "", "Entrypoint": ["/start"],
        "Labels": {"a": "1", "b": "2"}, "WorkingDir": "/opt",
    },
    "RootFS": {"Layers": ["sha256:" + "1" * 64, "sha256:" + "2" * 64]},
}  # fmt: skip
THIRD = "sha256:" + "3" * 64


def test_an_image_is_its_parent_with_layers_and_settings_of_its_own() -> None:
    settings = Settings({"PATH": "/opt/bin", "B": "x=y"}, {"b": "3"}, {"Cmd": ["/bin/bash"], "Entrypoint": None})
    config = image_config(PARENT, [THIRD], ["third"], settings, 0)
    assert config["config"] == {
        "Env": ["A=1", "PATH=/opt/bin", "B=x=y"],
        "Cmd": ["/bin/bash"],
        "Labels": {"a": "1", "b": "3"},
        "WorkingDir": "/opt",
    }
    assert config["rootfs"]["diff_ids"] == ["sha256:" + digit * 64 for digit in "123"]
    assert (config["architecture"], config["variant"], config["created"]) == ("arm64", "v8", "1970-01-01T00:00:00Z")
    assert [line["created_by"] for line in config["history"]][2:] == ["third"]
    assert image_config(PARENT, [THIRD], ["third"], Settings({}, {}, {}), 0)["config"]["Entrypoint"] == ["/start"]


def test_an_image_has_the_user_and_the_home_of_its_profile() -> None:
    settings = settings_of(plan())
    assert (settings.env, settings.config) == (plan().env, {"Cmd": ["/bin/bash"], "Entrypoint": None})
    mine = user_recipe()
    own = settings_of(make_plan(mine, inputs(mine)))
    assert own.config["User"].isdigit()
    assert own.env["HOME"].startswith("/home/")


def test_an_archive_holds_the_new_layers_alone_and_names_all() -> None:
    data = {THIRD: io.BytesIO(b"third"), "sha256:" + "4" * 64: io.BytesIO(b"fourth" * 1000)}
    config: Mapping[str, object] = image_config(PARENT, [*data], ["third", "fourth"], Settings({}, {}, {}), 0)
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive(data, config, "me:1")))) as tar:
        (entry,) = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        assert (tar.extractfile(entry["Config"]) or io.BytesIO()).read() == config_text(config)
        assert (tar.extractfile(entry["Layers"][3]) or io.BytesIO()).read() == b"fourth" * 1000
        assert tar.getnames() == [*entry["Layers"][2:], entry["Config"], "manifest.json"]
    assert entry["RepoTags"] == ["me:1"]
    assert [layer.rpartition("/")[2][0] for layer in entry["Layers"]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("images", "count"),
    [([], 0), ([["b"], []], 0), ([["a", "b", "x"], ["a"]], 2), ([["a", "b", "c", "d"]], 3), ([["b", "a", "c"]], 0)],
)
def test_an_engine_has_a_layer_only_on_the_ones_below_it(images: list[list[str]], count: int) -> None:
    assert common_layers(["a", "b", "c"], images) == count


def with_version(name: str) -> Plan:
    """The plan of the profile `stack` with another version of a package."""
    locks = {
        arch: replace(lock, packages=tuple(replace(p, version="9") if p.name == name else p for p in lock.packages))
        for arch, lock in inputs(recipe()).locks.items()
    }
    return plan(locks=locks)


def test_a_foundation_is_known_by_what_needs_a_system() -> None:
    one = foundation_reference(plan())
    assert one.startswith("cannery-foundation:")
    assert foundation_reference(with_version("sympy")) == one
    assert foundation_reference(with_version("antlr4")) != one  # is built of its sources
    assert foundation_reference(plan(templates={"tools/system.sh": "other"})) != one
    assert foundation_reference(plan(Options(arch=Arch.ARM64))) != one
    kinds = [layer.kind for layer in plan().layers]
    assert kinds[: len(plan().foundation)] == [layer.kind for layer in plan().foundation]
    assert part_references(["a"], plan().layers)[0] == part_references(["a"], [])[0]
    assert part_references(["a"], plan().layers)[1] != part_references(["a"], [])[1]
    assert len(layer_words(plan().layers)) == len(plan().layers)
