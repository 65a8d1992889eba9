"""Rendered folders of a small made-up stack, compared file by file with tests/golden/files/<case>.

`make goldens` rewrites them; the diff is the review.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from factories import compatibility, inputs, recipe, source_recipe, user_recipe

from cannery.context import Context, template_digests
from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options
from cannery.render.render import DOCKERFILE, render, stage_name, tool_paths, wheel_paths
from cannery.vocab import Arch
from tests.golden.bake_keys import unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.plan import Plan
    from cannery.recipe.recipe import Recipe

FILES = Path(__file__).parent / "files"
ROOT = Path(__file__).resolve().parent.parent.parent
# What the real templates/ copies into every folder as it is; its text is tested where it is run.
COPIED = ("tools/", *(f"rootfs/opt/cannery/{name}" for name in ("verify", "training/", "patched.py")))
TEMPLATES = Context(ROOT, ROOT, {}, Arch.AMD64, is_terminal=False).templates


@dataclass(frozen=True)
class Case:
    name: str
    options: Options
    build_arch: Arch = Arch.AMD64
    forced: tuple[str, ...] = ()
    bind: Callable[[Options], Recipe] = recipe

    @cached_property
    def plan(self) -> Plan:
        found = self.bind(self.options)
        # A fixed digest of the templates: a changed verify script is no change of these files.
        return make_plan(
            found,
            inputs(
                found,
                build_arch=self.build_arch,
                templates={"tools/common/stage.py": "goldens", "tools/source.py": "goldens"}
                if found.sources
                else {"tools/common/stage.py": "goldens"},
                forced=self.forced,
                socs=("ascend910b1",),
            ),
        )

    @property
    def folder(self) -> Path:
        return FILES / self.name


CASES = [
    Case("real-apt-amd64", Options()),
    Case("real-dnf-arm64-cross", Options(os="openeuler24.03", arch="arm64", python="3.10", cann="8.3.rc1")),
    Case("real-dnf-arm64-native", Options(os="openeuler24.03", arch="arm64", chip="a3"), build_arch=Arch.ARM64),
    Case("standin-amd64", Options(base="standin")),
    Case("standin-arm64-cross", Options(base="standin", arch="arm64")),
    Case("sources-native-amd64", Options(), bind=source_recipe),
    Case("sources-native-arm64-cross", Options(arch="arm64"), bind=source_recipe),
    Case("sources-standin-arm64-cross", Options(base="standin", arch="arm64"), bind=source_recipe),
    Case("user-apt-amd64", Options(), bind=user_recipe),
    Case("custom-forced-amd64", Options(base="me/cann:1", force=True, pins=("torch-npu==2.8.0",)), forced=("fit",)),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cache
def texts(case: Case) -> dict[str, str]:
    return render(case.plan, TEMPLATES, compatibility())


def compare(wanted: dict[str, str], folder: Path) -> None:
    there = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    assert sorted(there) == sorted(wanted), "files that stand in the golden folder, and files that render makes"
    for name, path in there.items():
        assert wanted[name] == path.read_text(encoding="utf-8"), f"{folder.name}/{name}: `make goldens`, read the diff"


@by_name
def test_rendered_text_is_the_golden(case: Case, request: pytest.FixtureRequest) -> None:
    wanted = {name: text for name, text in texts(case).items() if not name.startswith(COPIED)}
    if request.config.getoption("--rewrite-goldens"):
        shutil.rmtree(case.folder, ignore_errors=True)
        for name, text in wanted.items():
            path = case.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    compare(wanted, case.folder)


def test_a_golden_that_render_no_longer_makes_fails_and_so_does_a_changed_or_missing_one(tmp_path: Path) -> None:
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups/a.txt").write_text("a\n")
    compare({"groups/a.txt": "a\n"}, tmp_path)
    for wanted in ({}, {"groups/a.txt": "b\n"}, {"groups/a.txt": "a\n", "Dockerfile": "x\n"}):
        with pytest.raises(AssertionError):
            compare(wanted, tmp_path)


def test_goldens_are_not_rewritten_in_ci(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    monkeypatch.setattr(request.config.option, "rewrite_goldens", True)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match="refused where CI=true"):
        plugin.pytest_configure(request.config)
    monkeypatch.setenv("CI", "false")
    plugin.pytest_configure(request.config)


def test_every_golden_folder_has_its_case() -> None:
    assert sorted(p.name for p in FILES.iterdir()) == sorted(case.name for case in CASES)


@by_name
def test_rendering_is_a_function_of_the_plan(case: Case) -> None:
    assert texts(case) == render(case.plan, TEMPLATES, compatibility())


@by_name
def test_nothing_of_this_machine_stands_in_a_rendered_file(case: Case) -> None:
    for name, text in texts(case).items():
        if name.startswith(COPIED):
            continue
        for word in (str(ROOT), str(Path.home()) + "/", "/tmp/pytest", "127.0.0.1", "localhost"):
            assert word not in text, name
        assert not re.search(r"\b20\d\d-\d\d-\d\d[T ]\d\d:", text), f"{name}: a time"
        assert text == "" or text.endswith("\n"), name


@by_name
def test_the_bake_file_has_only_keys_that_buildx_knows(case: Case) -> None:
    bake = json.loads(texts(case)["docker-bake.json"])
    assert unknown_keys(bake) == []
    target = bake["target"]["image"]
    assert target["tags"] == list(case.plan.references)
    assert target["platforms"] == [case.plan.recipe.target.arch.platform]
    assert target["context"] == "."
    assert not [word for word in json.dumps(target["secret"]).split('"') if word.startswith("/")], "no host path"
    # By hand, `docker buildx bake` in the folder: newer ones refuse to read a file outside of it.
    files = [bake["variable"][name]["default"] for name in ("CANNERY_APT_SOURCES_FILE", "CANNERY_CA_FILE")]
    assert [texts(case)[file] for file in files] == ["", ""]
    assert set(files) < set(texts(case)[".dockerignore"].split()), "no part of the context"


@by_name
def test_every_mount_and_copy_has_its_source(case: Case) -> None:
    made = texts(case)
    paths = {
        *made,
        *tool_paths(case.plan),
        *wheel_paths(case.plan),
        *(f"sources/{step.file}" for step in case.plan.sources),
    }
    for source in re.findall(r"type=bind,source=([^,\s]+)", made[DOCKERFILE]):
        assert any(path == source or path.startswith(f"{source}/") for path in paths), source
    stages = re.findall(r"^FROM .* AS (\S+)$", made[DOCKERFILE], re.MULTILINE)
    copied = re.findall(r"^COPY --link --from=(\S+) /out/ /$", made[DOCKERFILE], re.MULTILINE)
    # What was compiled for the target is no layer: a stage on the build host installs it.
    compiled = {f"made-{step.name}" for step in case.plan.sources if step.native}
    assert compiled <= {*stages}
    parts = {"image", "system", "foundation", "wheels", "native", "sources", *compiled}
    assert copied == [stage_name(layer) for layer in case.plan.layers[1:]], (
        "every stage's layer once, in the plan's order"
    )
    assert {*stages} - parts == {*copied}
    assert len(set(stages)) == len(stages)
    copies = [line for line in made[DOCKERFILE].splitlines() if line.startswith("COPY")]
    assert copies == [f"COPY --link --from={stage} /out/ /" for stage in copied]


@by_name
def test_the_dockerfile_needs_no_network_but_for_system_packages(case: Case) -> None:
    text = texts(case)[DOCKERFILE]
    runs = [step for step in re.split(r"^(?=[A-Z]+ )", text, flags=re.MULTILINE) if step.startswith("RUN ")]
    online = [step for step in runs if "--network=none" not in step]
    assert len(online) == 1
    assert "system.sh" in online[0]
    assert "# syntax" not in text
    assert f"FROM {case.plan.base_reference} AS system\n" in text
    assert f"FROM --platform=$BUILDPLATFORM {case.plan.build_reference} AS venv" in text
    # Nothing is installed on the target's platform: what has to be compiled there is, and no more.
    for stage in re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]:
        if stage.startswith(("FROM native ", "FROM system ")):
            assert not re.search(r"python3 /run/cannery/\S*(install|stage)\.py", stage), stage
            assert ("source.py --epoch" in stage) == ("--compile" in stage), stage


@by_name
def test_groups_hold_the_whole_lock_with_hashes(case: Case) -> None:
    made = texts(case)
    lines = [line for name, text in made.items() if name.startswith("groups/") for line in text.splitlines()]
    packages = case.plan.lock.packages
    assert sorted(lines) == sorted(f"{p.name}=={p.version} --hash=sha256:{p.sha256}" for p in packages)


def test_wheels_stand_in_the_folder_of_their_group() -> None:
    paths = {**tool_paths(CASES[0].plan), **wheel_paths(CASES[0].plan)}
    assert "wheels/built/antlr4-4.9.3.tar.gz" in paths
    assert "wheels/_tools/uv-0.9.0-py3-none-manylinux_2_17_x86_64.whl" in paths
    assert len(paths) == len(CASES[0].plan.lock.packages) + 2


def test_the_real_templates_change_the_tag() -> None:
    found = recipe()
    one = make_plan(found, inputs(found, templates=template_digests(TEMPLATES)))
    other = {**TEMPLATES, "tools/common/stage.py": TEMPLATES["tools/common/stage.py"] + "\n"}
    assert one.tag != make_plan(found, inputs(found, templates=template_digests(other))).tag


def tool(name: str) -> str:
    """A linter that the dev requirements bring: beside this Python."""
    path = Path(sys.executable).parent / name
    assert path.exists(), f"{name} is missing: `make setup-dev`"
    return str(path)


@by_name
def test_hadolint_has_nothing_to_say(case: Case) -> None:
    dockerfile = case.folder / DOCKERFILE
    command = [
        tool("hadolint"),
        "--config",
        str(ROOT / ".hadolint.yaml"),
        "--failure-threshold",
        "style",
        str(dockerfile),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_does_find_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN sudo apt-get install x && cd /\n")
    command = [tool("hadolint"), "--config", str(ROOT / ".hadolint.yaml"), str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DL3004" in done.stdout


def test_every_rule_that_hadolint_ignores_has_its_reason_beside_it() -> None:
    lines = (ROOT / ".hadolint.yaml").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line.strip().startswith("- ")]
    for line in rules:
        assert re.fullmatch(r"\s*- (DL|SC)\d{4} # .{20,}", line), line


def test_shellcheck_has_nothing_to_say() -> None:
    scripts = sorted((ROOT / "templates/tools").glob("*.sh"))
    assert scripts
    done = subprocess.run([tool("shellcheck"), *map(str, scripts)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@by_name
def test_the_login_shells_file_is_shell(case: Case) -> None:
    text = (case.folder / "rootfs/etc/profile.d/cannery.sh").read_text(encoding="utf-8")
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
