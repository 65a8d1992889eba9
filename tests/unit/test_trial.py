"""A tried set as one layer on the locked image: what it brings, what it removes, and the image that it makes."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.io.trial import Content, archive, interpreter_of, write_layer
from cannery.assemble.trial import MOST_BYTES, Trial, image_config, removals, trial_of, whiteout
from cannery.errors import FindingsError
from cannery.recipe.recipe import Options
from tests.unit.factories import inputs, package, plan, recipe
from tests.unit.test_wheel_files import make

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.lock.lock import LockedPackage
    from cannery.plan.plan import Plan

SITE = "/opt/venv/lib/python3.11/site-packages"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
EPOCH = 1_700_000_000


def with_package(new: LockedPackage, options: Options | None = None) -> Plan:
    """The plan of the profile `stack` whose lock has `new` in the place of the package of that name."""
    found = recipe(options)
    locks = {
        arch: replace(
            lock, packages=tuple(sorted({p.name: p for p in (*lock.packages, new)}.values(), key=lambda p: p.name))
        )
        for arch, lock in inputs(found).locks.items()
    }
    return plan(options, locks=locks)


def test_a_changed_wheel_is_all_that_a_trial_brings() -> None:
    locked = plan()
    trial = trial_of(with_package(package("sympy", "1.15", sha256="5" * 64)), locked)
    assert trial is not None
    assert (trial.parent, trial.words) == (locked.reference, "sympy 1.15")
    assert [p.version for p in trial.removed] == ["1.14.0"]
    assert [p.name for p in trial.kept] == ["numpy", "ray", "torch", "torch-npu"]


@pytest.mark.parametrize(
    "tried",
    [
        lambda: with_package(package("antlr4", "4.9.4", file="antlr4-4.9.4.tar.gz", sha256="5" * 64)),  # is built
        lambda: plan(Options(chip="a3")),
        lambda: plan(templates={"tools/common/stage.py": "others"}),
        lambda: with_package(package("sympy", "1.15", sha256="5" * 64, size=MOST_BYTES + 1)),
    ],
)
def test_what_is_more_than_some_wheels_is_built_as_a_whole(tried: object) -> None:
    assert trial_of(tried(), plan()) is None  # type: ignore[operator]


def test_what_is_only_left_out_is_named() -> None:
    assert Trial("a:1", (package("sympy", "1.14.0"),), (), ()).words == "no sympy"


@pytest.mark.parametrize(
    ("old", "new", "others", "gone"),
    [
        (["/v/s/a/x.py", "/v/s/a/y.py"], ["/v/s/a/x.py"], [], ["/v/s/a/y.py"]),
        (["/v/s/a/x.py", "/v/s/a-1.info/R"], ["/v/s/a/x.py", "/v/s/a-2.info/R"], [], ["/v/s/a-1.info"]),
        (["/v/s/ns/a/x.py"], [], ["/v/s/ns/b/x.py"], ["/v/s/ns/a"]),
        (["/v/s/ns/i.py"], [], ["/v/s/ns/i.py"], []),
        (["/v/s/a/deep/er/x.py", "/v/s/a/deep/y.py"], [], ["/v/s/b.py"], ["/v/s/a"]),
        ([], ["/v/s/a.py"], [], []),
    ],
)
def test_a_folder_that_nothing_else_has_goes_as_a_whole(
    old: list[str], new: list[str], others: list[str], gone: list[str]
) -> None:
    assert removals(old, new, others) == gone


def test_a_whiteout_is_beside_what_it_removes() -> None:
    assert whiteout("/opt/venv/a") == "/opt/venv/.wh.a"


def content(tmp_path: Path, **changes: object) -> Content:
    kept = tmp_path / "kept"
    kept.mkdir(exist_ok=True)
    before = Content(
        added=[make(tmp_path, {"demo/a.py": "a = 2\n", "demo/new.py": "", "demo/bad.py": "print 'x'"})],
        removed=[],
        kept=[make(kept, {"other/b.py": ""}, "other")],
        texts={"/opt/cannery/manifest.json": "{}\n"},
        python=PYTHON,
        epoch=EPOCH,
        interpreter=sys.executable,
    )
    return replace(before, **changes)


def members(made: Content) -> tuple[str, dict[str, tarfile.TarInfo], dict[str, bytes]]:
    stream = io.BytesIO()
    digest = write_layer(made, stream, 1)
    assert digest == f"sha256:{hashlib.sha256(stream.getvalue()).hexdigest()}"
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        entries = {entry.name: entry for entry in tar}
        read = {name: tar.extractfile(entry) for name, entry in entries.items() if entry.isfile()}
        return digest, entries, {name: stream.read() for name, stream in read.items() if stream}


def test_a_layer_has_the_files_their_byte_code_and_the_manifest(tmp_path: Path) -> None:
    _, entries, texts = members(content(tmp_path))
    site = f"opt/venv/lib/python{PYTHON}/site-packages"
    tag = sys.implementation.cache_tag
    assert {name for name in texts if ".dist-info" not in name} == {
        "opt/cannery/manifest.json",
        *(f"{site}/demo/{name}.py" for name in ("a", "bad", "new")),
        *(f"{site}/demo/__pycache__/{name}.{tag}.pyc" for name in ("a", "new")),
    }
    assert texts["opt/cannery/manifest.json"] == b"{}\n"
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, EPOCH)}
    assert entries["opt/venv"].isdir()
    assert list(entries) == sorted(entries, key=lambda name: name.split("/"))


def test_a_layer_removes_what_only_the_old_wheel_had(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    removed = make(old, {"demo/a.py": "a = 1\n", "demo/gone.py": "", "left/x.py": "", "other/extra.py": ""})
    _, entries, _ = members(content(tmp_path, removed=[removed]))
    site = f"opt/venv/lib/python{PYTHON}/site-packages"
    tag = sys.implementation.cache_tag
    assert {name.removeprefix(f"{site}/") for name in entries if ".wh." in name} == {
        "demo/.wh.gone.py",
        f"demo/__pycache__/.wh.gone.{tag}.pyc",
        ".wh.left",
        "other/.wh.extra.py",
        f"other/__pycache__/.wh.extra.{tag}.pyc",
    }


def test_the_last_package_leaves_the_environment_in_place(tmp_path: Path) -> None:
    _, entries, _ = members(content(tmp_path, added=[], removed=[make(tmp_path, {"demo/a.py": ""})], kept=[]))
    site = f"opt/venv/lib/python{PYTHON}/site-packages"
    assert {name for name in entries if ".wh." in name} == {f"{site}/.wh.demo", f"{site}/.wh.demo-1.0.dist-info"}


def test_a_script_that_a_kept_wheel_also_has_stays(tmp_path: Path) -> None:
    points = "[console_scripts]\nrun = demo:run\nmine = demo:run\n"
    old, kept = tmp_path / "old", tmp_path / "too"
    old.mkdir()
    kept.mkdir()
    removed = make(old, {"demo/a.py": "", "demo-1.0.dist-info/entry_points.txt": points})
    other = make(
        kept,
        {"other/b.py": "", "other-1.0.dist-info/entry_points.txt": points.splitlines()[0] + "\nrun = o:r\n"},
        "other",
    )
    _, entries, _ = members(content(tmp_path, removed=[removed], kept=[other]))
    assert {name for name in entries if name.startswith("opt/venv/bin/")} == {"opt/venv/bin/.wh.mine"}


def test_the_same_layer_has_the_same_digest(tmp_path: Path) -> None:
    one = content(tmp_path)
    assert members(one)[0] == members(one)[0]


def test_a_wheel_that_cannot_be_installed_is_named(tmp_path: Path) -> None:
    whole = content(tmp_path)
    with pytest.raises(FindingsError, match=r"demo-1\.0-py3-none-any\.whl"):
        members(replace(whole, added=[make(tmp_path, {"../x.py": ""})]))


PARENT = {
    "Architecture": "arm64",
    "Variant": "v8",
    "Os": "linux",
    "Config": {"Env": ["A=1"], "Cmd": ["/bin/bash"], "Hostname": "x", "User": "", "Labels": {"a": "1", "b": "2"}},
    "RootFS": {"Layers": ["sha256:" + "1" * 64, "sha256:" + "2" * 64]},
}


def test_an_image_is_its_parent_with_a_layer_and_labels_of_its_own() -> None:
    config = image_config(PARENT, "sha256:" + "3" * 64, {"b": "3"}, 0)
    assert config["config"] == {"Env": ["A=1"], "Cmd": ["/bin/bash"], "Labels": {"a": "1", "b": "3"}}
    assert config["rootfs"]["diff_ids"] == ["sha256:" + digit * 64 for digit in "123"]
    assert (config["architecture"], config["variant"], config["created"]) == ("arm64", "v8", "1970-01-01T00:00:00Z")
    assert len(config["history"]) == 3


def test_an_archive_holds_the_new_layer_alone_and_names_all(tmp_path: Path) -> None:
    layer = io.BytesIO()
    config: Mapping[str, object] = image_config(PARENT, write_layer(content(tmp_path), layer, 1), {}, 0)
    stream = io.BytesIO(b"".join(archive(layer, config, "me:1")))
    with tarfile.open(fileobj=stream) as tar:
        names = tar.getnames()
        (entry,) = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        assert json.load(tar.extractfile(entry["Config"]) or io.BytesIO()) == config
        data = tar.extractfile(entry["Layers"][-1])
        assert data is not None
        assert data.read() == layer.getvalue()
    assert entry["RepoTags"] == ["me:1"]
    assert [layer.rpartition("/")[2][0] for layer in entry["Layers"][:2]] == ["1", "2"]
    assert names == [entry["Layers"][-1], entry["Config"], "manifest.json"]


def test_a_python_of_another_version_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert interpreter_of(PYTHON) == sys.executable
    (tmp_path / "python3.9").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_of("3.9") == str(tmp_path / "python3.9")
    assert interpreter_of("3.8") is None
