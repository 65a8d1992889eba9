"""A tried set as one layer on the locked image: what it brings, what it removes, and the image that it makes."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.content import Content, Place, Wheel
from cannery.assemble.io.layer import write_layer
from cannery.assemble.io.trial import Changes, trial_content
from cannery.assemble.io.wheel_files import WheelError
from cannery.assemble.trial import MOST_BYTES, Trial, removals, trial_of, whiteout
from cannery.recipe.recipe import Options
from tests.unit.factories import inputs, package, plan, recipe
from tests.unit.test_assemble import WORKER, code_of, compile_all, hashed
from tests.unit.test_wheel_files import make

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.lock.lock import LockedPackage
    from cannery.plan import Plan

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


PLACE = Place(PYTHON, EPOCH)


def changes(tmp_path: Path, **more: object) -> Changes:
    kept = tmp_path / "kept"
    kept.mkdir(exist_ok=True)
    before = Changes(
        added=(hashed(make(tmp_path, {"demo/a.py": "a = 2\n", "demo/new.py": "", "demo/bad.py": "print 'x'"})),),
        removed=[],
        kept=[hashed(make(kept, {"other/b.py": ""}, "other"))],
        texts={"/opt/cannery/manifest.json": "{}\n"},
    )
    return replace(before, **more)


def members(tmp_path: Path, found: Changes) -> tuple[dict[str, tarfile.TarInfo], dict[str, bytes]]:
    content = trial_content(found, PYTHON)
    compile_all(content, WORKER, tmp_path)
    stream = io.BytesIO()
    write_layer(content, PLACE, code_of(content, tmp_path), stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        entries = {entry.name: entry for entry in tar}
        read = {name: tar.extractfile(entry) for name, entry in entries.items() if entry.isfile()}
        return entries, {name: stream.read() for name, stream in read.items() if stream}


def test_a_trial_has_the_files_their_byte_code_and_the_manifest(tmp_path: Path) -> None:
    entries, texts = members(tmp_path, changes(tmp_path))
    site = f"opt/venv/lib/python{PYTHON}/site-packages"
    tag = sys.implementation.cache_tag
    assert {name for name in texts if ".dist-info" not in name} == {
        "opt/cannery/manifest.json",
        *(f"{site}/demo/{name}.py" for name in ("a", "bad", "new")),
        *(f"{site}/demo/__pycache__/{name}.{tag}.pyc" for name in ("a", "new")),
    }
    assert texts["opt/cannery/manifest.json"] == b"{}\n"
    assert entries["opt/venv"].isdir()


def test_a_trial_is_without_what_the_layers_below_have(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    same = {"demo/same.py": "s = 1\n", "demo/data.txt": "d", "demo-1.0.data/scripts/run": "#!python\nsame"}
    before = make(
        old, {**same, "demo/a.py": "a = 1\n", "demo/as_long.py": "b = 1\n", "!demo/mode.sh": "m", "demo/gone.py": ""}
    )
    new = {
        **same,
        "demo/a.py": "a = 23\n",
        "demo/as_long.py": "b = 2\n",
        "demo/mode.sh": "m",
        "demo/moved/same.py": "s = 1\n",
    }
    found = Changes(added=(hashed(make(tmp_path, new)),), removed=[hashed(before)], kept=[], texts={})
    texts = members(tmp_path, found)[1]
    names = [name.rpartition("/demo/")[2] for name in texts if "/demo/" in name]
    tag = f"{sys.implementation.cache_tag}.pyc"
    assert sorted(names) == sorted([
        "a.py", "as_long.py", "mode.sh", "moved/same.py", f"__pycache__/a.{tag}", f"__pycache__/as_long.{tag}",
        f"moved/__pycache__/same.{tag}", ".wh.gone.py", f"__pycache__/.wh.gone.{tag}",
    ])  # fmt: skip
    assert "opt/venv/bin/run" in texts


def test_a_trial_on_the_locked_image_has_the_files_of_the_whole_one(tmp_path: Path) -> None:
    """A trial's layer on that of the old wheel: what is to be seen there is what the new wheel alone installs."""
    old = tmp_path / "old"
    old.mkdir()
    before = hashed(
        make(old, {"demo/same.py": "s = 1\n", "demo/a.py": "a = 1\n", "demo/old/x.py": "", "demo/bad.py": "print 1"})
    )
    after = hashed(
        make(tmp_path, {"demo/same.py": "s = 1\n", "demo/a.py": "a = 2\n", "demo/bad.py": "a = 1\n", "demo/n.txt": "n"})
    )

    def layer(content: Content) -> dict[str, bytes]:
        compile_all(content, WORKER, tmp_path)
        stream = io.BytesIO()
        write_layer(content, PLACE, code_of(content, tmp_path), stream)
        with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as tar:
            return {one.name: file.read() for one in tar if one.isfile() and (file := tar.extractfile(one))}

    tried = layer(trial_content(Changes(added=(after,), removed=[before], kept=[], texts={}), PYTHON))
    hidden = [name.replace(".wh.", "") for name in tried if "/.wh." in name]
    seen = {
        n: d for n, d in layer(Content((before,))).items() if not any(n == h or n.startswith(f"{h}/") for h in hidden)
    }
    seen |= {name: data for name, data in tried.items() if "/.wh." not in name}
    assert seen == layer(Content((after,)))


def test_a_layer_removes_what_only_the_old_wheel_had(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    removed = make(old, {"demo/a.py": "a = 1\n", "demo/gone.py": "", "left/x.py": "", "other/extra.py": ""})
    entries, texts = members(tmp_path, changes(tmp_path, removed=[hashed(removed)]))
    site = f"opt/venv/lib/python{PYTHON}/site-packages"
    tag = sys.implementation.cache_tag
    assert {name.removeprefix(f"{site}/") for name in entries if ".wh." in name} == {
        "demo/.wh.gone.py",
        f"demo/__pycache__/.wh.gone.{tag}.pyc",
        ".wh.left",
        "other/.wh.extra.py",
        f"other/__pycache__/.wh.extra.{tag}.pyc",
    }
    assert texts[f"{site}/.wh.left"] == b""


def test_other_wheels_are_read_only_where_more_goes_than_metadata(tmp_path: Path) -> None:
    """A pin with the same files removes the old .dist-info alone; one file more, and all kept wheels are asked."""
    unread = tmp_path / "unread.whl"
    unread.write_bytes(b"no wheel")
    same, more = tmp_path / "same", tmp_path / "more"
    texts = {"demo/a.py": ""}
    removed = []
    for folder, files in ((same, texts), (more, {**texts, "demo/gone.py": ""})):
        folder.mkdir()
        removed.append(hashed(make(folder, files, "before")))
    kept = [Wheel(unread, "a" * 64)]
    found = trial_content(changes(tmp_path, removed=removed[:1], kept=kept), PYTHON)
    assert found.gone == (f"/opt/venv/lib/python{PYTHON}/site-packages/before-1.0.dist-info",)
    with pytest.raises(WheelError, match=r"unread\.whl"):
        trial_content(changes(tmp_path, removed=removed[1:], kept=kept), PYTHON)


def test_the_last_package_leaves_the_environment_in_place(tmp_path: Path) -> None:
    removed = [hashed(make(tmp_path, {"demo/a.py": ""}))]
    entries, _ = members(tmp_path, changes(tmp_path, added=(), removed=removed, kept=[]))
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
    entries, _ = members(tmp_path, changes(tmp_path, removed=[hashed(removed)], kept=[hashed(other)]))
    assert {name for name in entries if name.startswith("opt/venv/bin/")} == {"opt/venv/bin/.wh.mine"}


@pytest.mark.parametrize("comment", [b"", b"signed"])
def test_a_folder_that_a_kept_wheel_is_in_too_stays(tmp_path: Path, comment: bytes) -> None:
    """Also where the end of its archive is not read, which a comment is behind."""
    removed, other = tmp_path / "removed", tmp_path / "other"
    for folder in (removed, other):
        folder.mkdir()
    old, kept = make(removed, {"demo/gone.py": ""}, "before"), make(other, {"demo/stays.py": ""}, "kept")
    with zipfile.ZipFile(kept, "a") as archive:
        archive.comment = comment
    found = trial_content(changes(tmp_path, added=(), removed=[hashed(old)], kept=[hashed(kept)]), PYTHON)
    site = f"/opt/venv/lib/python{PYTHON}/site-packages"
    assert found.gone == (
        f"{site}/before-1.0.dist-info",
        f"{site}/demo/__pycache__/gone.cpython-{PYTHON.replace('.', '')}.pyc",
        f"{site}/demo/gone.py",
    )


def test_a_wheel_that_cannot_be_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "crooked").mkdir()
    crooked = hashed(make(tmp_path / "crooked", {"../x.py": ""}))
    with pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl"):
        trial_content(changes(tmp_path, added=(crooked,)), PYTHON)
