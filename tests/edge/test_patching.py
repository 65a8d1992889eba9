"""Patches from a plugin's tree, from images/patches and from a user's folder, on a small checkout with real git."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from checkouts import incomplete
from git_trees import Repo
from small_checkout import Done, Small, make_small
from stub_index import StubIndex, make_sdist

from cannery.cli.arguments import parse
from cannery.commands import options_of
from cannery.commands import registry as publish
from cannery.context import read_context
from cannery.errors import ExitCode, FindingsError
from cannery.lock.lock import format_lock, parse_lock
from cannery.pipeline import manifest_digest, patched, planned
from cannery.util.io.files import write_atomic
from cannery.verify.io.run import ASKED, FILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINE_FILE = """\
import os


class Engine:
    depth = 1

    def start(self):
        return self.depth

    def stop(self):
        return None


def serve(engine):
    return engine.start()
"""
PATCHED_FILE = ENGINE_FILE.replace("return self.depth", "return self.depth + 1")
INIT = "is_npu_available = True\n"
PLUGIN = "import subprocess\n\n\ndef apply_patch():\n    subprocess.run(['patch'])\n\n\napply_patch()\n"
LOCKED: dict[tuple[str, bool], bytes] = {}
COMPONENTS = {
    "engine": """\
kind: source
summary: serves models
hosts: {{github: made-up/engine}}
install: {install}
revisions:
  {engine}: {{version: "1.0", release: "0.9", source: its list}}
  {other}: {{version: "1.1", source: its list}}
releases:
  "0.9": {{sdist: true, source: its list}}
imports: [{{module: engine}}]
""",
    "plugin": """\
kind: source
summary: patches the engine
hosts: {{github: made-up/plugin}}
install: editable
after: [engine]
patch_sets: {{folder: plugin/patch, summary: plugin/summary.yaml, repos: {{engine: engine}}, truncated: {{cut: 1}}}}
edits:
  - name: import-of-plugin
    component: engine
    file: engine/__init__.py
    imports: plugin
    when: is_npu_available
    reason: it does nothing without
  - {{name: taken-over, component: plugin, file: plugin/hook.py, takes_over: [apply_patch], reason: done at build}}
revisions:
  {plugin}:
    version: "0.1"
    patches: {{engine: [{engine}]}}
    source: its summary
imports: [{{module: plugin}}]
""",
}
PROFILE = """\
summary: with a plugin
target: {{cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [amd64]}}
exclude_newer: "2026-06-01"
components:
  - {{name: torch, version: "2.8.0"}}
  - {{name: torch-npu, version: "2.8.0"}}
  - {{name: engine, commit: {pinned}}}
  - {{name: plugin, commit: {plugin}}}
"""


@dataclass
class Stack:
    """A checkout with a plugin that patches an engine; `mirror` has both repositories."""

    small: Small
    engine: Repo
    plugin: Repo
    commit: str
    other: str
    mirror: Path

    def write(self, plugin: str, *, pinned: str | None = None, install: str = "editable") -> None:
        images = self.small.root / "images"
        names = {"engine": self.commit, "other": self.other, "plugin": plugin, "install": install}
        for name, text in COMPONENTS.items():
            (images / f"components/{name}.yaml").write_text(text.format(**names))
        self.small.profile("patched").write_text(PROFILE.format(pinned=pinned or self.commit, plugin=plugin))
        # Of a source without requirements a lock has no word but its version: one is enough for all tests of that.
        lock, key = self.small.root / "images/locks/patched/py3.11-amd64.txt", (install, pinned == self.other)
        if key in LOCKED:
            lock.parent.mkdir(exist_ok=True)
            lock.write_bytes(LOCKED[key])
        else:
            assert self.small("lock", "patched").code == 0
            LOCKED[key] = lock.read_bytes()

    def __call__(self, *words: str) -> Done:
        return self.small(*words, "--base", "standin", "--git-mirror", str(self.mirror))

    def render(self, *words: str) -> Done:
        return self("render", "patched", *words)

    @property
    def out(self) -> Path:
        (found,) = (path for path in (self.small.root / "out").iterdir() if path.is_dir())
        return found

    def manifest(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.out / "rootfs/opt/cannery/manifest.json").read_text())
        return value

    def patches(self) -> dict[str, dict[str, Any]]:
        return {patch["name"]: patch for patch in self.manifest()["patches"]}

    def laid(self, component: str) -> dict[str, str]:
        """{path: content} of what is laid over a source's tree."""
        step = json.loads((self.out / f"steps/{component}.json").read_text())
        folder = self.out / "patched" / component
        return {file["path"]: (folder / file["after"]).read_text() for file in step.get("patched", ()) if file["after"]}


def diff(repo: Repo, path: str, text: str) -> str:
    """What `git diff` says of one file with another text; the tree stays as it was."""
    before = (repo.path / path).read_text() if (repo.path / path).exists() else None
    repo.write({path: text})
    repo.git("add", "--intent-to-add", path)
    found = repo.git("diff", "--", path) + "\n"
    if before is None:
        repo.git("rm", "--quiet", "--cached", path)
        (repo.path / path).unlink()
    else:
        repo.write({path: before})
    return found


@contextmanager
def made_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with StubIndex() as index:
        small = make_small(tmp_path, index, capsys, monkeypatch)
        mirror = tmp_path / "mirror"
        engine, plugin = Repo(mirror / "made-up/engine"), Repo(mirror / "made-up/plugin")
        other = engine.commit({"engine/__init__.py": INIT, "engine/core.py": ENGINE_FILE.replace("depth", "width")})
        commit = engine.commit({"engine/core.py": ENGINE_FILE})
        index.add(make_sdist("engine", "0.9"))
        yield Stack(small, engine, plugin, commit, other, mirror)


@pytest.fixture
def stack(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with made_stack(tmp_path, capsys, monkeypatch) as made:
        yield made


def plugin_files(stack: Stack, **patches: str) -> str:
    """Commit the plugin with these patches for the engine's commit; return its commit."""
    folder = f"plugin/patch/engine/{stack.commit[:9]}"
    texts = {f"{folder}/{name}.patch": text for name, text in patches.items()}
    summary = f"patches:\n  - repo: engine\n    current_rev: {stack.commit}\n    versions:\n"
    summary += f"      - {{rev: {stack.commit}, dir: {stack.commit[:9]}, files: []}}\n"
    return stack.plugin.commit(
        {**texts, "plugin/__init__.py": "", "plugin/hook.py": PLUGIN, "plugin/summary.yaml": summary, "setup.py": ""}
    )


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_patches_and_edits_are_laid_over_the_trees_and_recorded(stack: Stack) -> None:
    new = "def helper():\n    return 1\n"
    plugin = plugin_files(
        stack,
        core=diff(stack.engine, "engine/core.py", PATCHED_FILE),
        helper=diff(stack.engine, "engine/helper.py", new),
    )
    stack.write(plugin)
    done = stack.render()
    assert done.code == 0, done.err
    laid = stack.laid("engine")
    assert laid["engine/core.py"] == PATCHED_FILE
    assert laid["engine/helper.py"] == new
    assert laid["engine/__init__.py"].endswith("if is_npu_available:\n    import plugin\n")
    hook = stack.laid("plugin")
    assert "from .cannery_patches import apply_patch" in hook["plugin/hook.py"]
    assert "subprocess.run" not in hook["plugin/hook.py"]
    assert {
        node.name for node in ast.parse(hook["plugin/cannery_patches.py"]).body if isinstance(node, ast.FunctionDef)
    } >= {
        "apply_patch",
        "after_patch_check",
    }
    patches = stack.patches()
    assert list(patches) == ["core", "helper", "import-of-plugin", "taken-over"]
    core = patches["core"]
    assert (core["component"], core["from"], core["rev"]) == ("engine", "plugin", stack.commit[:9])
    (file,) = core["files"]
    assert file["path"] == "/opt/src/engine/engine/core.py"
    assert (file["before"], file["after"]) == (sha(ENGINE_FILE), sha(PATCHED_FILE))
    assert file["module"] == "engine.core"
    assert patches["helper"]["files"][0]["before"] is None
    assert stack.manifest()["patches_left_out"] == []
    dockerfile = (stack.out / "Dockerfile").read_text()
    assert "source=patched/engine,target=/run/cannery/patched" in dockerfile


def test_push_and_verify_hold_an_image_to_the_manifest_with_its_patches(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    assert stack.render().code == 0
    built = hashlib.sha256((stack.out / "rootfs/opt/cannery/manifest.json").read_bytes()).hexdigest()
    mirror = str(stack.mirror)
    arguments = parse(["plan", "patched", "--base", "standin", "--git-mirror", mirror])
    context = read_context(stack.small.root, {"git_mirror": mirror})
    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    assert manifest_digest(context, catalog, plan) == built
    again = patched(context, catalog, plan)
    assert patched(context, catalog, again) is again
    image = SimpleNamespace(id=f"sha256:{'a' * 64}", labels={})
    dock: Any = SimpleNamespace(context=context, plan=plan)
    monkeypatch.setattr(publish, "content_faults", lambda *_: ())
    monkeypatch.setattr(publish, "on_labelled_base", lambda plan, _labels: plan)
    with pytest.raises(FindingsError, match="verify has not passed for this image"):
        publish._proof(context, dock, catalog, image, "partial")  # type: ignore[arg-type] # what it looks at
    assert publish._proof(context, dock, catalog, image, "unverified") == "unverified"  # type: ignore[arg-type]
    notes = context.cache / "verified"
    report = {"result": "partial", "counts": {}, ASKED: {"levels": [FILES], "manifest_sha256": built}}
    write_atomic(notes / f"{'a' * 24}-0.json", json.dumps(report))
    for allowed in ("", "unverified"):
        with pytest.raises(FindingsError, match="verify has passed in part"):
            publish._proof(context, dock, catalog, image, allowed)  # type: ignore[arg-type]
    assert publish._proof(context, dock, catalog, image, "partial") == "partial"  # type: ignore[arg-type]
    report = {"result": "passed", "counts": {}, ASKED: {"levels": [], "manifest_sha256": built}}
    write_atomic(notes / f"{'a' * 24}-1.json", json.dumps(report))
    for allowed in ("", "partial", "unverified"):
        assert publish._proof(context, dock, catalog, image, allowed) == ""  # type: ignore[arg-type]


def test_same_set_is_the_same_step_and_another_one_is_another(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    assert stack.render().code == 0
    first = (stack.out / "steps/engine.json").read_bytes()
    plan = json.loads(stack("plan", "patched", "--json").out)
    engine = next(layer for layer in plan["layers"] if layer["name"] == "engine")
    assert engine["summary"].endswith("patched by plugin")
    shutil.rmtree(stack.small.root / "out")
    again = PATCHED_FILE.replace("+ 1", "+ 2")
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", again)))
    assert stack.render().code == 0
    assert (stack.out / "steps/engine.json").read_bytes() != first


def test_hunk_that_does_not_fit_is_exit_5_and_named(stack: Stack) -> None:
    broken = diff(stack.engine, "engine/core.py", PATCHED_FILE).replace(
        "-        return self.depth", "-        return self.deep"
    )
    stack.write(plugin_files(stack, core=broken))
    done = stack.render()
    assert done.code == 5, done.err
    assert "core.patch: engine/core.py: the hunk for line 5 does not fit" in done.err
    assert "return self.deep" in done.err
    assert f"patches port engine {stack.commit[:9]} {stack.commit}" in done.err
    assert not (stack.small.root / "out").exists() or not any((stack.small.root / "out").glob("*/Dockerfile"))


def test_a_patch_that_is_cut_off_is_for_the_set_that_names_it(stack: Stack) -> None:
    text = diff(stack.engine, "engine/core.py", PATCHED_FILE).removesuffix("\n")
    stack.write(plugin_files(stack, cut=text))
    assert stack.render().code == 0
    assert stack.laid("engine")["engine/core.py"] == PATCHED_FILE
    (stack.plugin.path / f"plugin/patch/engine/{stack.commit[:9]}/cut.patch").unlink()
    stack.write(plugin_files(stack, plain=text))
    done = stack.render()
    assert (done.code, "plain.patch:" in done.err, "`truncated`" in done.err) == (3, True, True), done.err


def test_context_that_differs_is_no_fit_and_port_is_the_next_step(stack: Stack) -> None:
    text = diff(stack.engine, "engine/core.py", PATCHED_FILE).replace("     depth = 1\n", "     depth = 9\n")
    stack.write(plugin_files(stack, core=text))
    done = stack.render()
    assert done.code == 5
    assert "core.patch: engine/core.py: the hunk for line 5 does not fit" in done.err
    assert f"patches port engine {stack.commit[:9]} {stack.commit}" in done.err


def test_fuzz_in_a_component_names_what_takes_its_place(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    path = stack.small.root / "images/components/plugin.yaml"
    path.write_text(path.read_text().replace("truncated: {cut: 1}", "fuzz: {core: 1}"))
    done = stack.small("check", "patched")
    assert (done.code, "fuzz: unknown key" in done.err, "`truncated`" in done.err) == (2, True, True), done.err


def test_another_commit_is_exit_3_before_anything_is_fetched(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)), pinned=stack.other)
    done = stack.small("render", "patched", "--base", "standin", "--git-mirror", str(tmp_path))
    assert done.code == 3
    assert f"engine is at commit {stack.other}" in done.err
    assert stack.commit in done.err


def test_release_in_the_place_of_a_commit_sets_patches_aside_by_name(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    done = stack.render("--sources", "release:engine")
    assert done.code == 5, "the release has no engine/__init__.py to edit"
    assert "edit import-of-plugin: there is no engine/__init__.py" in done.err


def test_wheel_has_its_patched_files_in_site_packages(stack: Stack) -> None:
    tests = diff(stack.engine, "tests/test_core.py", "x = 1\n")
    plugin = plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE), tests=tests)
    stack.write(plugin, install="wheel")
    assert stack.render().code == 0
    patches = stack.patches()
    assert patches["core"]["files"][0]["path"] == "/opt/venv/lib/python3.11/site-packages/engine/core.py"
    assert patches["tests"]["files"] == [], "a wheel does not bring it"


def test_tree_of_ones_own_is_patched_where_its_commit_fits(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/own.py").write_text("mine = 1\n")
    assert stack.render("--src", f"engine={mine}").code == 0
    assert stack.laid("engine")["engine/core.py"] == PATCHED_FILE
    (mine / "engine/core.py").write_text(PATCHED_FILE)
    shutil.rmtree(stack.small.root / "out")
    done = stack.render("--src", f"engine={mine}")
    assert done.code == 0, done.err
    assert "core.patch is in your tree already" in done.err
    (file,) = stack.patches()["core"]["files"]
    assert file["before"] == file["after"] == sha(PATCHED_FILE)
    shutil.rmtree(stack.small.root / "out")
    stack.engine.git("clone", "--quiet", str(stack.engine.path), str(tmp_path / "moved"))
    moved = Repo.__new__(Repo)
    moved.path, moved.env = tmp_path / "moved", stack.engine.env
    head = moved.commit({"engine/later.py": "y = 1\n"})
    done = stack.render("--src", f"engine={moved.path}")
    assert done.code == 0, done.err
    (left,) = stack.manifest()["patches_left_out"]
    assert (left["name"], left["component"]) == ("core", "engine")
    assert f"your tree is at {head}" in left["reason"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ndef f(:\n", "helper.patch: engine/helper.py:2: with the patch, the file is not Python"),
        (f"x = 1{' + 1' * 3000}\n", "helper.patch: engine/helper.py"),
    ],
)
def test_patch_that_makes_no_python_is_named_with_its_file(stack: Stack, text: str, words: str) -> None:
    stack.write(plugin_files(stack, helper=diff(stack.engine, "engine/helper.py", text)))
    done = stack.render()
    assert (done.code, words in done.err) == (3, True), done.err
    assert "the patched file" not in done.err


def own_folder(tmp_path: Path, rev: str, text: str) -> Path:
    folder = tmp_path / "sets/engine" / rev
    folder.mkdir(parents=True)
    (folder / "mine.patch").write_text(text)
    return tmp_path / "sets"


def test_folder_of_ones_own_comes_after_the_plugin(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    text = PATCHED_FILE.replace("engine.start()", "engine")
    mine = own_folder(
        tmp_path,
        stack.commit[:7],
        diff(stack.engine, "engine/core.py", ENGINE_FILE.replace("engine.start()", "engine")),
    )
    done = stack.render("--patches", str(mine))
    assert done.code == 0, done.err
    assert stack.laid("engine")["engine/core.py"] == text
    patches = stack.patches()
    assert list(patches)[:2] == ["core", "mine"]
    assert patches["mine"]["from"] == f"PATCHES/engine/{stack.commit[:7]}"
    assert {patch["files"][0]["after"] for patch in (patches["core"], patches["mine"])} == {sha(text)}
    plan = json.loads(stack("plan", "patched", "--json", "--patches", str(mine)).out)
    assert plan["digest"] != json.loads(stack("plan", "patched", "--json").out)["digest"]


@pytest.mark.parametrize(
    ("rev", "repo", "code", "words"),
    [
        ("0123456789", "engine", 3, "PATCHES: the patches for engine are for 0123456789, engine is at "),
        ("abcdefabc", "enginee", 2, "PATCHES: 'enginee' is not a source of patched"),
        ("branch", "engine", 3, "is not named by a commit"),
    ],
)
def test_folder_that_does_not_fit_is_refused(
    stack: Stack, tmp_path: Path, rev: str, repo: str, code: int, words: str
) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = own_folder(tmp_path, rev, diff(stack.engine, "engine/core.py", PATCHED_FILE))
    (mine / "engine").rename(mine / repo)
    done = stack.render("--patches", str(mine))
    assert done.code == code, done.err
    assert words in done.err


def test_folder_without_a_set_is_refused(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    (tmp_path / "empty").mkdir()
    done = stack.render("--patches", str(tmp_path / "empty"))
    assert (done.code, "<repo>/<commit>/<name>.patch" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "engine/{rev}/deeper/core.patch",
            "engine/{rev}/deeper/core.patch in PATCHES: not a patch that would be applied",
        ),
        ("engine/{rev}/core.diff", "engine/{rev}/core.diff in PATCHES"),
        ("engine/core.patch", "engine/core.patch in PATCHES"),
        ("engine/{rev}/two\nlines.patch", "is not a name for a patch"),
        ("engine/{rev}/.patch", ""),
        ("engine/.{rev}.cannery/core.patch", ""),
        ("engine/{rev}/README.md", ""),
        ("__init__.py", ""),
    ],
)
def test_nothing_in_a_folder_of_ones_own_is_ignored(stack: Stack, tmp_path: Path, path: str, words: str) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    rev = stack.commit[:9]
    mine = own_folder(tmp_path, rev, diff(stack.engine, "engine/mine.py", "x = 1\n"))
    more = mine / path.format(rev=rev)
    more.parent.mkdir(parents=True, exist_ok=True)
    more.write_text(diff(stack.engine, "engine/more.py", "x = 1\n"))
    done = stack.render("--patches", str(mine))
    assert done.code == (2 if words else 0), done.err
    assert words.format(rev=rev) in done.err
    if not words:
        assert "mine" in stack.patches()


def test_nothing_is_written_through_a_symlink_or_over_a_folder(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/link.py").symlink_to("core.py")
    (mine / "linked").symlink_to("engine")
    (mine / "engine/folder").mkdir()
    (mine / "engine/folder/x.py").write_text("")
    for path, words in (
        ("engine/link.py", "engine/link.py is a symlink in the tree"),
        ("linked/new.py", "linked is a symlink in the tree"),
        ("engine/folder", "engine/folder is a folder in the tree"),
        ("engine/__init__.py/x.py", "engine/__init__.py is a file in the tree, and no folder"),
    ):
        text = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x = 1\n"
        sets = own_folder(tmp_path / path.replace("/", "-"), stack.commit[:9], text)
        done = stack.render("--src", f"engine={mine}", "--patches", str(sets))
        assert done.code == 5, done.err
        assert words in done.err


def test_renamed_program_can_be_executed_still(stack: Stack, tmp_path: Path) -> None:
    stack.engine.write({"run.sh": "#!/bin/sh\n"})
    (stack.engine.path / "run.sh").chmod(0o755)
    stack.commit = stack.engine.commit()
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    text = "diff --git a/run.sh b/start.sh\nsimilarity index 100%\nrename from run.sh\nrename to start.sh\n"
    sets = own_folder(tmp_path, stack.commit[:9], text)
    assert stack.render("--patches", str(sets)).code == 0
    step = json.loads((stack.out / "steps/engine.json").read_text())
    files = {file["path"]: file for file in step["patched"]}
    assert files["start.sh"]["executable"] is True
    assert files["run.sh"]["after"] is None


NOT_LISTED = "  engine/core: the summary lists nothing of this patch for {rev}; it is in the set\n"
MODE = "diff --git a/engine/core.py b/engine/core.py\nold mode 100644\nnew mode 100755\n"


def test_a_patch_of_modes_alone_is_laid_over_and_recorded(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    sets = own_folder(tmp_path, stack.commit[:9], MODE)
    done = stack.render("--patches", str(sets))
    assert done.code == 0, done.err
    step = json.loads((stack.out / "steps/engine.json").read_text())
    (file,) = (one for one in step["patched"] if one["path"] == "engine/core.py")
    assert (file["executable"], file["after"]) == (True, sha(PATCHED_FILE))
    patches = stack.patches()
    (told,) = patches["mine"]["files"]
    assert (told["path"], told["after"]) == ("/opt/src/engine/engine/core.py", sha(PATCHED_FILE))
    done = stack("patches", "summary", "patched", "--patches", str(sets))
    assert "Left out" not in done.out
    assert done.out.endswith(
        "  mine: engine/core.py (updated)\n\nThe plugin's own summary differs:\n"
        + NOT_LISTED.format(rev=stack.commit[:9])
    )


def test_a_mode_that_is_there_or_gets_lost_is_refused(stack: Stack, tmp_path: Path) -> None:
    fits = plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE))
    stack.write(fits, install="wheel")
    sets = str(own_folder(tmp_path, stack.commit[:9], MODE))
    done = stack.render("--patches", sets)
    assert (done.code, "changes nothing but modes, which a wheel does not keep" in done.err) == (5, True), done.err
    stack.write(fits)
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/core.py").chmod(0o755)
    done = stack.render("--patches", sets, "--src", f"engine={mine}")
    assert (done.code, "mine.patch is in your tree already" in done.err) == (0, True), done.err
    (stack.engine.path / "engine/core.py").chmod(0o755)
    stack.commit = stack.engine.commit()
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    done = stack.render("--patches", str(own_folder(tmp_path / "new", stack.commit[:9], MODE)))
    assert (done.code, "changes nothing" in done.err) == (5, True), done.err


def test_a_mode_is_kept_by_new_and_port(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/core.py").chmod(0o755)
    done = stack.small("patches", "new", "engine", "--tree", str(mine), "--output", str(tmp_path / "sets"))
    assert done.code == 0, done.err
    made = tmp_path / "sets/engine" / stack.commit[:9] / "core.patch"
    assert made.read_text() == MODE
    made.rename(made.with_name("mode.patch"))
    assert stack.render("--patches", str(tmp_path / "sets")).code == 0
    moved = stack.engine.commit({"engine/core.py": "# more\n" + ENGINE_FILE})
    words = ("patches", "port", "engine", stack.commit[:9], moved, "--git-mirror", str(stack.mirror))
    done = stack.small(*words, "--patches", str(tmp_path / "sets"), "--output", str(tmp_path / "ported"))
    assert (done.code, "mode: applies" in done.out) == (0, True), done.err
    assert (tmp_path / "ported/PATCHES/engine" / moved[:9] / "mode.patch").read_text() == MODE


def test_tree_at_another_commit_is_built_and_its_patches_are_named(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    (mine / "engine").mkdir(parents=True)
    (mine / "engine/__init__.py").write_text("other = 1\n")
    words = ("--src", f"engine={mine}")
    done = stack.render(*words)
    assert done.code == 0, done.err
    assert "engine without patches core: the patches are for commit" in done.err
    assert "engine without patches import-of-plugin: your tree is another one" in done.err
    left = {one["name"]: one["component"] for one in stack.manifest()["patches_left_out"]}
    assert left == {"core": "engine", "import-of-plugin": "engine"}


def test_sets_of_the_checkout_are_for_the_commits_that_they_name(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    text = diff(stack.engine, "engine/core.py", ENGINE_FILE.replace("engine.start()", "engine"))
    for rev in (stack.commit, stack.other):
        folder = stack.small.root / "images/patches/engine" / rev[:12]
        folder.mkdir(parents=True)
        (folder / "ours.patch").write_text(text)
    assert stack.render().code == 0
    assert stack.patches()["ours"]["from"] == f"images/patches/engine/{stack.commit[:12]}"
    listed = stack.small("patches", "list").out
    assert f"{stack.other[:12]}  images/patches/engine/{stack.other[:12]}; used by no profile" in listed
    assert f"{stack.commit[:12]}  plugin at " in listed


def test_summary_lists_what_patches_change_and_how_the_plugin_differs(stack: Stack, tmp_path: Path) -> None:
    """Each set is on what those before it left, and the plugin's table is about the plugin's own sets."""
    first = PATCHED_FILE.replace("return None", "return 1")
    core = diff(stack.engine, "engine/core.py", first)
    stack.write(plugin_files(stack, core=core))
    stack.engine.commit({"engine/core.py": first})
    over = diff(stack.engine, "engine/core.py", first.replace("engine.start()", "engine.start() + 1"))
    mine = own_folder(tmp_path, stack.commit[:9], over)
    done = stack("patches", "summary", "patched", "--patches", str(mine))
    assert done.code == 0, done.err
    rev = stack.commit[:9]
    assert done.out.splitlines() == [
        f"engine {rev} (plugin)",
        "  core: engine/core.py (updated)",
        "    updated  class Engine",
        "    replaced Engine.start",
        "    replaced Engine.stop",
        f"engine {rev} (PATCHES)",
        "  mine: engine/core.py (updated)",
        "    replaced serve",
        "",
        "The plugin's own summary differs:",
        NOT_LISTED.format(rev=rev).rstrip(),
    ]
    value = json.loads(stack("patches", "summary", "patched", "--patches", str(mine), "--json").out)
    assert [(one["keeper"], one["name"], len(one["files"][0]["names"])) for one in value["patches"]] == [
        ("plugin", "core", 3),
        ("PATCHES", "mine", 1),
    ]
    assert value["patches"][1]["files"][0]["names"] == [{"name": "serve", "kind": "method", "action": "replaced"}]
    assert ([one["file"] for one in value["differences"]], value["left_out"]) == (["core"], [])
    assert stack("patches", "summary", "patched", "nothing").code == 3


def test_summary_names_patches_that_are_left_out(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    (mine / "engine").mkdir(parents=True)
    (mine / "engine/__init__.py").write_text(INIT)
    for repo in ((), ("engine",)):
        done = stack("patches", "summary", "patched", *repo, "--src", f"engine={mine}")
        assert done.code == 0, done.err
        assert "Left out:\n  engine without patches core: the patches are for commit" in done.out


def test_summary_needs_no_hash(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    profile = stack.small.profile("patched")
    profile.write_text(profile.read_text().replace("arch: [amd64]", "arch: [amd64, arm64]"))
    assert stack.small("lock", "patched").code == 0
    path = stack.small.root / "images/locks/patched/py3.11-amd64.txt"
    lock = parse_lock(path.read_text(), path.name)
    path.write_text(format_lock(replace(lock, packages=incomplete(lock.packages, "torch"))))
    done = stack("patches", "summary", "patched")
    assert done.code == 0, done.err
    assert "  core: engine/core.py (updated)" in done.out


def test_port_reports_each_patch_and_writes_what_applies(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    done = stack.small("patches", "port", "engine", stack.commit[:9], stack.other, "--git-mirror", str(stack.mirror))
    assert done.code == 3
    assert "return self.width" in done.out
    assert "return self.depth + 1" in done.out
    moved = stack.engine.commit({"engine/core.py": "# more\n# lines\n" + ENGINE_FILE})
    words = ("patches", "port", "engine", stack.commit[:9], moved, "--git-mirror", str(stack.mirror))
    done = stack.small(*words, "--output", str(tmp_path / "sets"))
    assert done.code == 0, done.err
    assert "hunk 1 applies at line 7, +2 from" in done.out
    made = tmp_path / "sets/engine" / moved[:9] / "core.patch"
    stack.engine.git("apply", "--check", str(made))
    assert stack.small(*words, "--output", str(tmp_path / "sets")).code == 2, "it is there already"
    upstream = stack.engine.commit({"engine/core.py": "# more\n# lines\n" + PATCHED_FILE})
    done = stack.small("patches", "port", "engine", stack.commit[:9], upstream, "--git-mirror", str(stack.mirror))
    assert (done.code, "core: is there already" in done.out) == (0, True)


def two_sets(stack: Stack, tmp_path: Path, core: str, mine: str) -> Path:
    """Write the profile with the plugin's patch `core`; return a folder with a set `mine` for the same commit."""
    stack.write(plugin_files(stack, core=core))
    return own_folder(tmp_path, stack.commit[:9], mine)


def test_a_short_hash_of_several_commits_that_have_sets_is_refused(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack))
    for rev in ("0123456aa", "0123456AA1", "0123456bb"):
        sets = own_folder(tmp_path, rev, diff(stack.engine, "engine/core.py", PATCHED_FILE))
    words = (stack.commit, "--git-mirror", str(stack.mirror), "--patches", str(sets))
    done = stack.small("patches", "port", "engine", "0123456", *words)
    assert done.code == ExitCode.FINDINGS
    assert "several commits that have sets: 0123456aa, 0123456aa1, 0123456bb" in done.err
    assert "give more digits" in done.err
    done = stack.small("patches", "port", "engine", "0123456aa", *words)
    assert (done.code, done.out.count("mine: applies")) == (ExitCode.DONE, 1), "both are of one commit"


def test_a_short_commit_is_that_of_a_known_revision(stack: Stack) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    moved = stack.engine.commit({"engine/core.py": "# more\n" + ENGINE_FILE})
    words = ("patches", "port", "engine", stack.commit[:9])
    mirror = ("--git-mirror", str(stack.mirror))
    assert stack.small(*words, stack.commit[:9], *mirror).code == 0
    assert stack.small(*words, moved, *mirror).code == 0
    for wrong in (moved[:9], stack.commit[:6], "main"):
        done = stack.small(*words, wrong, *mirror)
        assert (done.code, f"{wrong!r} is not a known revision of engine" in done.err) == (2, True)


def test_a_misfit_of_ones_own_tree_is_merged_there_by_git(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "my tree"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/core.py").write_text(ENGINE_FILE.replace("return self.depth", "return 7"))
    done = stack.render("--src", f"engine={mine}")
    assert (done.code, f"`git -C '{mine}' apply -3 FILE.patch` merges it" in done.err) == (5, True), done.err


def test_notes_of_several_sets_name_who_keeps_them(stack: Stack, tmp_path: Path) -> None:
    core = diff(stack.engine, "engine/core.py", PATCHED_FILE)
    far = diff(stack.engine, "engine/core.py", ENGINE_FILE.replace("engine.start()", "engine"))
    core, far = (re.sub(r"@@ -(\d+)(,\d+) \+\d+", r"@@ -1\1\2 +1\1", text) for text in (core, far))
    mine = two_sets(stack, tmp_path, core, far)
    done = stack.render("--patches", str(mine))
    assert done.code == 0, done.err
    assert "engine: plugin: core.patch: engine/core.py: hunk 1 applies at line" in done.err
    assert "engine: PATCHES: mine.patch: engine/core.py: hunk 1 applies at line" in done.err
    shutil.rmtree(stack.small.root / "out")
    assert "engine: core.patch: engine/core.py: hunk 1 applies at line" in stack.render().err


def test_port_tries_every_set_that_fits_each_on_what_those_before_left(stack: Stack, tmp_path: Path) -> None:
    again = PATCHED_FILE.replace("depth + 1", "depth + 2")
    core = diff(stack.engine, "engine/core.py", PATCHED_FILE)
    after_core = core.replace(
        "-        return self.depth\n+        return self.depth + 1",
        ("-        return self.depth + 1\n+        return self.depth + 2"),
    )
    mine = two_sets(stack, tmp_path, core, after_core)
    moved = stack.engine.commit({"engine/core.py": "# more\n" + ENGINE_FILE})
    places = ("--git-mirror", str(stack.mirror), "--patches", str(mine))
    words = ("patches", "port", "engine", stack.commit[:9], moved, *places)
    done = stack.small(*words, "--output", str(tmp_path / "made"))
    assert done.code == 0, done.err
    rev = stack.commit[:9]
    plugin = stack.small("patches", "list", "patched").out.split("plugin at ")[1][:12]
    first, second = (
        done.out.index(f"== engine/{rev} of plugin at {plugin}"),
        done.out.index(f"== engine/{rev} of PATCHES"),
    )
    assert first < done.out.index("core: applies, at other lines") < second < done.out.index("mine: applies, at other")
    made = [tmp_path / "made" / name / "engine" / moved[:9] for name in (f"plugin-at-{plugin}/", "PATCHES")]
    for file in (made[0] / "core.patch", made[1] / "mine.patch"):
        stack.engine.git("apply", str(file))
    assert (stack.engine.path / "engine/core.py").read_text() == "# more\n" + again
    told = json.loads(stack.small(*words, "--json").out)["patches"]
    assert [(one["patch"], one["origin"]) for one in told] == [
        ("core", f"plugin at {plugin}"),
        ("mine", f"PATCHES/engine/{rev}"),
    ]


def test_port_is_exit_3_where_one_of_two_sets_does_not_apply(stack: Stack, tmp_path: Path) -> None:
    core = diff(stack.engine, "engine/core.py", PATCHED_FILE)
    mine = two_sets(stack, tmp_path, core, core.replace("return self.depth", "return self.deep"))
    words = ("patches", "port", "engine", stack.commit[:9], stack.commit, "--git-mirror", str(stack.mirror))
    done = stack.small(*words, "--patches", str(mine), "--output", str(tmp_path / "made"))
    assert (done.code, "mine: does not apply" in done.out, "core: applies" in done.out) == (3, True, True)
    assert done.out.endswith("0 of 1 apply or are there already\n")
    assert f"in a working tree at {stack.commit[:12]} by hand" in done.err
    assert f"`python3 build.py patches new engine --tree DIR --output {tmp_path / 'made'}`" in done.err
    assert not (tmp_path / "made").exists()
    done = stack.render("--patches", str(mine))
    assert done.code == 5
    assert f"patches port engine {stack.commit[:9]} {stack.commit} --patches {mine}`" in done.err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("port", "engine", "0000000000"), 2, "the following arguments are required: TO"),
        (("port", "engine", "0000000000", "1" * 40), 3, "no patch set of engine is for commit 0000000000"),
        (("port", "engin", "a", "b"), 2, "'engin' is not a source component"),
        (("port", "engine"), 2, "the following arguments are required: FROM"),
        (("summary",), 2, "the following arguments are required: PROFILE"),
        (("summary", "patched", "engine", "more"), 2, "build.py patches summary: one word too many: 'more'"),
        (("list", "no-such"), 2, "no profile 'no-such'"),
        (("new", "engine"), 2, "name the working tree with --tree"),
    ],
)
def test_wrong_words_are_an_error(stack: Stack, words: tuple[str, ...], code: int, error: str) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mirror = ("--git-mirror", str(stack.mirror)) if words[0] in {"port", "summary"} else ()
    done = stack.small("patches", *words, *mirror)
    assert done.code == code, done.err
    assert error in done.err


def test_new_set_of_a_working_tree_can_be_built_with(stack: Stack, tmp_path: Path) -> None:
    stack.write(plugin_files(stack, core=diff(stack.engine, "engine/core.py", PATCHED_FILE)))
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    (mine / "engine/core.py").write_text(ENGINE_FILE.replace("engine.start()", "engine"))
    (mine / "engine/new.py").write_text("")
    done = stack.small("patches", "new", "engine", "--tree", str(mine), "--output", str(tmp_path / "sets"))
    assert done.code == 0, done.err
    assert "git does not track engine/new.py" in done.err
    patch = tmp_path / "sets/engine" / stack.commit[:9] / "core.patch"
    assert patch.read_text().startswith("diff --git a/engine/core.py b/engine/core.py\n")
    assert stack.render("--patches", str(tmp_path / "sets")).code == 0
    assert "core" in stack.patches()
    again = stack.small("patches", "new", "engine", "--tree", str(mine), "--output", str(tmp_path / "sets"))
    assert (again.code, "there is a patch set already" in again.err) == (2, True)
    made = stack.small("patches", "new", "engine", "--tree", str(mine), "--output", str(tmp_path / "other"), "--json")
    told = json.loads(made.out)
    assert (told["rev"], told["untracked"]) == (stack.commit, ["engine/new.py"])
    assert [path.rpartition("/")[2] for path in told["patches"]] == ["core.patch"]
    clean = stack.small(
        "patches", "new", "engine", "--tree", str(stack.engine.path), "--output", str(tmp_path / "more")
    )
    assert (clean.code, "nothing differs from HEAD" in clean.err) == (3, True)
    assert not (tmp_path / "more").exists()
