"""The main job: `make image PROFILE=quickstart`, its second run, its refusals, its reproducibility."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from docker_engine.daemon import Layout

from cannery.context import read_context
from cannery.plan import parse_tag
from tests.e2e.engine_fixtures import PROFILE, ROOT, Cannery, Image

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

MISFIT = "torch-npu==2.14.0"
TRIED = "tqdm==4.67.1"


def layers(cannery: Cannery, reference: str) -> list[str]:
    """The layer digests (diff ids) of an image, from the lowest up."""
    return list(json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["RootFS"]["Layers"])


@pytest.mark.quick
def test_image_is_real_and_verified(cannery: Cannery, image: Image) -> None:
    assert image.table["report"]["result"] == "passed"
    tag = parse_tag(image.reference.partition(":")[2])
    assert (tag.standin, tag.forced) == (True, False)
    text = cannery.docker(
        "run", "--rm", image.reference, "python", "-c",
        "import torch, torch_npu; print(torch.__version__, torch_npu.__version__, torch.npu.is_available())",
    ).stdout  # fmt: skip
    assert text.split() == ["2.13.0+cpu", "2.13.0", "False"]


@pytest.mark.quick
def test_npu_level_is_skipped_and_never_passed(image: Image) -> None:
    npu = [check for check in image.table["report"]["checks"] if check["level"] == "npu"]
    assert npu
    assert {check["status"] for check in npu} == {"skipped"}
    assert all("no NPU" in check["message"] for check in npu)


@pytest.mark.quick
def test_require_npu_is_exit_4(cannery: Cannery, image: Image) -> None:
    done = cannery.build_py("verify", PROFILE, "--require-npu", check=4)
    assert "no NPU" in done.stdout


@pytest.mark.quick
def test_second_run_builds_nothing(cannery: Cannery, image: Image) -> None:
    again = json.loads(cannery.build_py("image", PROFILE, "--json").stdout)
    assert again["id"] == image.table["id"]
    assert again["cached"] == again["total"]
    assert again["remembered"]


@pytest.mark.quick
def test_a_run_that_changes_nothing_answers_at_once(cannery: Cannery, image: Image) -> None:
    cannery.build_py("image", PROFILE)
    done = cannery.build_py("image", PROFILE)
    assert "nothing has changed" in done.stderr
    assert image.table["id"] in done.stdout
    alias = image.table["references"][1]
    cannery.docker("image", "rm", alias)
    assert "nothing has changed" not in cannery.build_py("image", PROFILE).stderr
    assert json.loads(cannery.docker("image", "inspect", alias).stdout)[0]["Id"] == image.table["id"]


def entries(cannery: Cannery, reference: str, digests: set[str], folder: Path) -> list[list[tuple[object, ...]]]:
    """What some layers of an image hold, each sorted by path."""
    file, found = folder / "saved.tar", []
    cannery.docker("save", "--output", str(file), reference)
    with tarfile.open(file) as archive:
        for name in sorted(f"blobs/{digest.replace(':', '/')}" for digest in digests):
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                fields = ((m.name, m.type, m.mode, m.uid, m.gid, m.mtime, m.size, m.linkname) for m in layer)
                found.append(sorted(fields))
    file.unlink()
    return sorted(found)


def test_this_host_and_buildkit_make_the_same_image(cannery: Cannery, image: Image, tmp_path: Path) -> None:
    def inspected() -> dict[str, Any]:
        return json.loads(cannery.docker("image", "inspect", image.reference).stdout)[0]

    def bake() -> dict[str, Any]:
        table = json.loads(cannery.build_py("image", PROFILE, "--json", "--no-verify", "--with", "bake").stdout)
        assert table["total"] > len(inspected()["RootFS"]["Layers"])
        return inspected()

    before = inspected()
    try:
        mine, baked = set(before["RootFS"]["Layers"]), bake()
        if other := set(baked["RootFS"]["Layers"]) - mine:
            # Docker's classic store at times orders a layer's entries by their whole path (docs: how-it-works).
            theirs = entries(cannery, image.reference, other, tmp_path)
            cannery.build_py("image", PROFILE, "--json", "--no-verify", "--with", "assemble")
            missing = mine - set(baked["RootFS"]["Layers"])
            assert theirs == entries(cannery, image.reference, missing, tmp_path)
            baked = bake()
        assert baked["RootFS"] == before["RootFS"]
        # BuildKit's mark of a command that is a list.
        assert baked["Config"] == {**before["Config"], "ArgsEscaped": True}
    finally:
        again = json.loads(cannery.build_py("image", PROFILE, "--json", "--with", "assemble").stdout)
        assert (again["id"], again["new"]) == (image.table["id"], 0)


def test_same_layers_without_any_cache(cannery: Cannery, image: Image) -> None:
    before = layers(cannery, image.reference)
    again = json.loads(cannery.build_py("image", PROFILE, "--json", "--no-cache", "--no-verify").stdout)
    assert again["cached"] == 0
    assert layers(cannery, image.reference) == before


def test_rendered_folder_builds_by_hand(cannery: Cannery, image: Image, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    cannery.build_py("render", PROFILE, "--output", str(folder))
    command = cannery.engine.buildx_command("bake", "--set", "image.tags=by-hand:1")
    subprocess.run(command, cwd=folder, env=cannery.env, check=True, capture_output=True)
    try:
        assert layers(cannery, "by-hand:1") == layers(cannery, image.reference)
    finally:
        cannery.docker("image", "rm", "by-hand:1")


def test_the_tool_s_settings_lead_a_shell_to_its_engine(cannery: Cannery, image: Image) -> None:
    if cannery.engine.host != Layout.of(read_context(ROOT).cache).host:
        return  # a user's engine; tests/edge/test_engine_real.py starts one of the tool's
    env = f'unset DOCKER_HOST; eval "$({sys.executable} tools/engine.py env)"'
    script = f"{env} && docker image inspect {image.reference} && docker buildx ls"
    subprocess.run(("sh", "-c", script), cwd=ROOT, check=True, capture_output=True)


@pytest.mark.quick
def test_misfit_is_refused_before_anything_is_built(cannery: Cannery) -> None:
    done = cannery.build_py("check", PROFILE, "--pin", MISFIT, check=3)
    assert "torch 2.13.0" in done.stdout
    assert "torch-npu 2.14.0" in done.stdout
    assert cannery.build_py("image", PROFILE, "--pin", MISFIT, check=3).stdout == ""


def test_forced_misfit_fails_verify_at_import(cannery: Cannery, image: Image) -> None:
    cannery.build_py("render", PROFILE, "--pin", MISFIT, "--force")  # its wheels are on this host then
    done = cannery.build_py("image", PROFILE, "--pin", MISFIT, "--force", "--json", check=6)
    table = json.loads(done.stdout)
    try:
        (reference,) = table["references"]
        assert parse_tag(reference.partition(":")[2]).forced
        failed = {check["id"] for check in table["report"]["checks"] if check["status"] == "failed"}
        assert "import.torch_npu" in failed
        labels = json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["Config"]["Labels"]
        # What `pip check` will find in the wheels at hand is an error before the build, too.
        assert labels["org.cannery.forced"] == "fit,pip-check"
        manifest = json.loads(cannery.docker("run", "--rm", reference, "cat", "/opt/cannery/manifest.json").stdout)
        assert manifest["forced"] == ["fit", "pip-check"]
        # A stand-in base of its own, of the same layers: a changed pin is one layer, beside the manifest's.
        changed = set(layers(cannery, reference)) - set(layers(cannery, image.reference))
        assert len(changed) == 2
    finally:
        cannery.docker("image", "rm", *table["references"])


@pytest.mark.quick
def test_a_tried_pin_is_one_layer_on_the_locked_image(cannery: Cannery, image: Image) -> None:
    table = json.loads(cannery.build_py("image", PROFILE, "--pin", TRIED, "--json").stdout)
    (reference,) = table["references"]
    try:
        assert (table["report"]["result"], table["total"]) == ("passed", 0)
        assert layers(cannery, reference)[:-1] == layers(cannery, image.reference)
        script = "import tqdm, importlib.metadata as m; print(tqdm.__version__, m.version('tqdm'), tqdm.__cached__)"
        version, listed, cached = cannery.docker("run", "--rm", reference, "python", "-c", script).stdout.split()
        assert f"tqdm=={version}" == f"tqdm=={listed}" == TRIED
        assert cached.endswith("/tqdm/__pycache__/__init__.cpython-311.pyc")
        left = cannery.docker("run", "--rm", reference, "sh", "-c", "ls -d /opt/venv/lib/python3*/site-packages/tqdm-*")
        assert len(left.stdout.split()) == 1
        labels = json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["Config"]["Labels"]
        assert labels["org.cannery.trial"] == image.reference
    finally:
        cannery.docker("image", "rm", reference)


@pytest.mark.quick
def test_an_edit_in_a_container_takes_effect(cannery: Cannery, image: Image) -> None:
    edit = 'file=$(python -c "import tqdm; print(tqdm.__file__)"); echo "EDITED = 1" >> "$file"'
    done = cannery.docker(
        "run", "--rm", image.reference, "sh", "-c", f'{edit}; python -c "import tqdm; print(tqdm.EDITED)"'
    )
    assert done.stdout.split() == ["1"]


def test_changed_hash_stops_naming_package_and_file(cannery: Cannery, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".git", ".venv", "out", ".*_cache"))
    lock = checkout / "images/locks" / PROFILE / "py3.11-amd64.txt"
    text = lock.read_text()
    at = text.index("codetiming==")
    start = text.index("sha256:", at) + len("sha256:")
    lock.write_text(text[:start] + "0" * 64 + text[start + 64 :])
    done = subprocess.run(
        (sys.executable, "build.py", "image", PROFILE), cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "codetiming" in done.stderr
    assert ".whl" in done.stderr


def test_interrupted_build_goes_on_afterwards(cannery: Cannery, image: Image) -> None:
    command = (sys.executable, "build.py", "image", PROFILE, "--no-cache", "--no-verify")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as build:
        assert build.stderr is not None
        next(line for line in build.stderr if "group-" in line)
        build.send_signal(signal.SIGINT)
        _, rest = build.communicate(timeout=60)
    assert build.returncode == 130
    assert "interrupted" in rest
    again = json.loads(cannery.build_py("image", PROFILE, "--json").stdout)
    assert again["id"] == image.table["id"]


def test_container_has_the_chosen_nodes_and_no_others(
    cannery: Cannery, image: Image, device_nodes: tuple[str, ...]
) -> None:
    # The last test here: from now on this host has nodes, so that what verify has said without them counts no more.
    words = ("sh", "-c", "ls /dev; echo visible $ASCEND_RT_VISIBLE_DEVICES")
    done = cannery.build_py("run", PROFILE, "--npus", "0,3,5-6", "--no-caches", "--", *words)
    found = done.stdout.split()
    cards = {"davinci0", "davinci3", "davinci5", "davinci6"}
    assert {name for name in found if name.startswith("davinci")} == {*cards, "davinci_manager"}
    assert {"devmm_svm", "hisi_hdc"} <= set(found)
    assert found[-2:] == ["visible", "0,1,2,3"]
