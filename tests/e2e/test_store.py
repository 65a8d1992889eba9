"""quickstart without an engine: made, verified, tried, pushed, pulled and written as a layout, from the image store.

`DOCKER_HOST` is taken out of the environment of every command here; the engine's image is what it is held against.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.assemble.image import PYTHON_LABEL, foundation_reference
from cannery.commands.place import store_place
from cannery.commands.registry import dock_of
from cannery.context import read_context
from cannery.engine.io.find import DEFAULT_SOCKET
from cannery.engine.io.registry import Access, Repository, read_login
from cannery.engine.oci import AbsentError
from cannery.errors import ExitCode
from cannery.host.io.place import StorePlace
from cannery.making.sharing import share_parts
from cannery.pipeline import Work, manifest_digest, planned, verified
from cannery.recipe.recipe import Options
from cannery.sandbox.io.able import why_not
from cannery.ship.published import INDEX_TYPE
from cannery.store.io.store import Store
from cannery.util.io.files import disk_use
from cannery.util.io.pip_settings import PipSettings
from cannery.verify.io.run import VerifyRequest, stored_results
from tests.e2e.engine_fixtures import PROFILE, ROOT, Cannery, Image, layers_of
from tests.e2e.registry import PASSWORD, USER, Registry, login

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine]

PIN = ("--pin", "tqdm==4.67.1")
# An ordinary container of a CI system, whose root lacks CAP_SYS_ADMIN, and build.py in one.
CONTAINER = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
CLOSED = (*CONTAINER, sys.executable, "build.py")
# Where the lowest layer is that a package manager has worked on: above those of the stand-in.
SYSTEM = 2


@dataclass(frozen=True)
class Without:
    """build.py where no engine answers."""

    env: dict[str, str]

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "build.py", *words)
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--json").stdout)
        return found


@pytest.fixture(scope="module")
def without() -> Without:
    if Path(DEFAULT_SOCKET).exists():
        pytest.skip(f"an engine answers at {DEFAULT_SOCKET}: commands would use it")
    assert not why_not(read_context(ROOT).cache)
    return Without({name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")})


@pytest.fixture(scope="module")
def stored(without: Without) -> dict[str, Any]:
    return without.json("image", PROFILE)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, without: Without) -> Iterator[Registry]:
    folder = tmp_path_factory.mktemp("registry")
    with Registry(folder, read_context(ROOT).cache) as found:
        login(folder / "docker", [f"127.0.0.1:{found.port}"])
        without.env["DOCKER_CONFIG"] = str(folder / "docker")
        yield found
        del without.env["DOCKER_CONFIG"]


@dataclass(frozen=True)
class Blind(StorePlace):
    """The image store of a host that runs no program of any image."""

    def cannot(self, arch: str) -> str:
        return f"nothing for {arch} runs here"


def store() -> Store:
    return Store(read_context(ROOT).cache / "images")


@pytest.mark.quick
def test_it_has_the_layers_that_an_engine_has(cannery: Cannery, image: Image, stored: dict[str, Any]) -> None:
    assert stored["report"]["result"] == "passed"
    assert stored["references"] == image.table["references"]
    found = store().find(stored["id"])
    assert found is not None
    engine = layers_of(cannery, image.reference)
    # Two runs of apt may see two states of a mirror.
    assert [*found.layers[:SYSTEM], *found.layers[SYSTEM + 1 :]] == [*engine[:SYSTEM], *engine[SYSTEM + 1 :]]


@pytest.mark.quick
def test_a_run_that_changes_nothing_answers_at_once(without: Without, stored: dict[str, Any]) -> None:
    without("image", PROFILE)
    done = without("image", PROFILE)
    assert "nothing has changed" in done.stderr
    assert stored["id"] in done.stdout
    alias = stored["references"][1]
    store().remove(alias)
    assert "nothing has changed" not in without("image", PROFILE).stderr
    found = store().find(alias)
    assert found is not None
    assert found.id == stored["id"]


def test_a_pin_is_one_layer_on_the_image(without: Without, stored: dict[str, Any]) -> None:
    tried = without.json("image", PROFILE, *PIN)
    assert (tried["layers"], tried["new"]) == (stored["layers"] + 1, 1)
    assert tried["report"]["result"] == "passed"
    assert len(tried["references"]) == 1
    layer = store().layer(list(store().attributes(tried["id"])["RootFS"]["Layers"])[-1])  # type: ignore[index]
    assert layer is not None
    assert layer.size < 1_000_000


def test_a_trial_of_the_locked_set_and_the_set_have_tags_of_their_own(
    without: Without, stored: dict[str, Any], registry: Registry
) -> None:
    """A pin is tried and pushed, then it is the locked version: neither image takes the tag of the other one."""
    locked = (ROOT / "images/locks" / PROFILE / "py3.11-amd64.txt").read_text()
    pin = ("--pin", next(line.split()[0] for line in locked.splitlines() if line.startswith("tqdm==")))
    tried = without.json("image", PROFILE, *pin)
    assert tried["references"] == [stored["references"][0].replace("-standin", "-trial-standin")]
    assert tried["id"] != stored["id"]
    place = ("--registry", f"{registry.host}/trials")
    for words, one in ((pin, tried), ((), stored), (pin, tried)):
        assert without.json("verify", PROFILE, *words)["result"] == "passed"
        assert without.json("push", PROFILE, *words, *place)["id"] == one["id"]
    store().remove(tried["references"][0])
    assert without.json("pull", PROFILE, *pin, *place)["id"] == tried["id"]
    assert store().needed(stored["references"][1]).id == stored["id"]
    listed = json.loads(without("search", "tqdm", *place, "--json").stdout)
    assert {one["reference"].rpartition("/")[2] for one in listed} == {stored["references"][0], *tried["references"]}


def test_a_shell_and_no_job(without: Without, stored: dict[str, Any]) -> None:
    command = (sys.executable, "build.py", "shell", PROFILE, "--npus", "none")
    text = "python -c 'import torch; print(torch.__version__)'; exit 7\n"
    done = subprocess.run(command, cwd=ROOT, env=without.env, input=text, capture_output=True, text=True, check=False)
    assert "2.13.0" in done.stdout
    assert done.returncode == 7
    done = without("run", PROFILE, "--npus", "none", "--", "true", code=ExitCode.UNABLE)
    assert stored["references"][0] in done.stdout


def test_what_is_pushed_is_what_another_store_pulls(
    without: Without, stored: dict[str, Any], registry: Registry, tmp_path: Path
) -> None:
    place = f"127.0.0.1:{registry.port}/team"
    without("push", PROFILE, "--registry", place)
    again = without("push", PROFILE, "--registry", place)
    assert "nothing to push" in again.stderr
    other = Without({**without.env, "CANNERY_CACHE": str(tmp_path / "cache")})
    other("pull", PROFILE, "--registry", place)
    found = Store(tmp_path / "cache/images").find(stored["references"][0])
    assert found is not None
    assert found.id == stored["id"]


def test_what_is_attached_is_read_back_from_a_registry_without_the_api(
    without: Without, stored: dict[str, Any], registry: Registry, tmp_path: Path
) -> None:
    place = f"127.0.0.1:{registry.port}/team"
    pushed = without.json("push", PROFILE, "--registry", place, "--attach")
    there = Repository(pushed["reference"], Access(PipSettings(), partial(read_login, env=without.env)))
    with there:
        tag = pushed["digest"].replace(":", "-")
        index = json.loads(there.call("GET", f"manifests/{tag}", {"Accept": INDEX_TYPE}).body)
        with pytest.raises(AbsentError):
            there.call("GET", f"referrers/{pushed['digest']}", {})
    assert [one["artifactType"].rpartition("/")[2] for one in index["manifests"]] == [
        *("vnd.cyclonedx+json", "spdx+json", "vnd.in-toto+json"),
    ]
    bill = json.loads(without("sbom", pushed["reference"]).stdout)
    assert bill == json.loads(without("sbom", PROFILE).stdout)
    proof = json.loads(without("sbom", pushed["reference"], "--format", "provenance").stdout)
    assert proof["subject"][0]["digest"]["sha256"] == pushed["digest"][7:]
    used = proof["predicate"]["buildDefinition"]["resolvedDependencies"]
    hashes = {one.get("digest", {}).get("sha256") for one in used}
    lock = (ROOT / f"images/locks/{PROFILE}/py3.11-{read_context(ROOT).arch}.txt").read_text()
    assert set(re.findall("--hash=sha256:([0-9a-f]{64})", lock)) <= hashes


def test_a_layout_is_whole(without: Without, stored: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "layout"
    done = without("image", PROFILE, "--output", f"oci:{folder}")
    assert f"written to   {folder}" in done.stdout
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    blobs = folder / "blobs/sha256"
    manifest = json.loads((blobs / entry["digest"][7:]).read_text())
    assert manifest["config"]["digest"] == stored["id"]
    for blob in (entry, manifest["config"], *manifest["layers"]):
        data = (blobs / blob["digest"][7:]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (blob["digest"][7:], blob["size"])


def test_a_layout_that_was_removed_is_written_again(without: Without, stored: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "layout"
    for _ in range(2):
        without("image", PROFILE, "--output", f"oci:{folder}")
        assert stored["id"].removeprefix("sha256:") in {path.name for path in (folder / "blobs/sha256").iterdir()}
        shutil.rmtree(folder)


def test_save_and_load_go_from_store_to_store(without: Without, stored: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "q.tar"
    without("save", PROFILE, "--output", str(file))
    other = Without({**without.env, "CANNERY_CACHE": str(tmp_path / "cache")})
    other("load", str(file))
    found = Store(tmp_path / "cache/images").find(stored["references"][0])
    assert found is not None
    assert found.id == stored["id"]
    other.env["HTTPS_PROXY"] = other.env["HTTP_PROXY"] = "http://127.0.0.1:9"  # nothing answers there
    there = ("image", PROFILE, "--no-stamp", "--output", f"oci:{tmp_path / 'layout'}")
    for is_remembered in (False, True):
        made = other.json(*there)
        assert (made["id"], made["new"], made["reused"]) == (stored["id"], 0, stored["layers"])
        assert (made["report"]["result"], made["remembered"]) == ("passed", is_remembered)
    assert {path.name for path in (tmp_path / "cache").iterdir()}.isdisjoint({"wheels", "layers", "rootfs", "sources"})
    assert (tmp_path / "layout/index.json").is_file()
    Store(tmp_path / "cache/images").remove(stored["references"][0])
    other(*there, code=ExitCode.NETWORK)


def test_where_no_sandbox_runs_an_image_is_assembled_and_proved_elsewhere(
    without: Without, stored: dict[str, Any], registry: Registry
) -> None:
    pin, place = ("--pin", "tqdm==4.67.0"), ("--registry", f"{registry.host}/ci")

    def contained(*words: str) -> subprocess.CompletedProcess[str]:
        command = (*CLOSED, *words)
        return subprocess.run(command, cwd=ROOT, env=without.env, capture_output=True, text=True, check=False)

    without("image", PROFILE, *pin, "--no-verify")  # byte code, where this host has no Python of the image's release
    done = contained("image", PROFILE, *pin)
    assert done.returncode == ExitCode.UNABLE, done.stderr
    assert "assembled, not verified" in done.stderr
    reference = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("image "))
    made = store().find(reference)
    assert made is not None
    for result in stored_results(read_context(ROOT).cache, made.id):  # an earlier run has verified this very image
        result.unlink()
    assert "verify has not passed" in without("push", PROFILE, *pin, *place, code=ExitCode.FINDINGS).stderr
    pushed = contained("push", PROFILE, *pin, *place, "--unverified")
    assert pushed.returncode == 0, pushed.stderr
    assert f"/{reference}-unverified" in pushed.stdout
    store().remove(reference)
    without("pull", PROFILE, *pin, *place, code=ExitCode.NETWORK)
    without("pull", PROFILE, *pin, *place, "--unverified")
    found = store().find(reference)
    assert found is not None
    assert found.id == made.id
    without("verify", PROFILE, *pin)
    assert "-unverified" not in without("push", PROFILE, *pin, *place).stdout


def test_an_image_is_assembled_on_a_foundation_that_stays_in_the_registry(
    without: Without, stored: dict[str, Any], registry: Registry, tmp_path: Path
) -> None:
    """A container of a CI system, with an empty cache: the layers of the base come when something reads them."""
    place = ("--registry", f"{registry.host}/shared")
    without("push", PROFILE, *place)
    env = {**without.env, "CANNERY_CACHE": str(tmp_path / "cache")}

    def contained(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = (*CLOSED, "image", PROFILE, *words)
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done

    refused = contained("--registry", "127.0.0.1:9/none", code=ExitCode.UNABLE).stderr
    assert "foundation: not from 127.0.0.1:9/none/cannery-foundation:" in refused
    assert "REGISTRY=… takes the foundation from there" in refused
    done = contained(*place, "--push", "--unverified")
    assert "warning: assembled, not verified" in done.stderr
    assert "its layers stay there until they are needed" in done.stderr
    there = Store(tmp_path / "cache/images")
    made = there.needed(stored["id"])
    foundation = there.needed(foundation_reference(planned(read_context(ROOT), PROFILE, Options()).plan)).layers
    assert [one for one in made.layers if not there.is_on_disk(one)] == list(foundation) != []
    assert sum(use.bytes for use in disk_use(there.folder / "blobs").values()) < 800e6
    assert f"/{stored['references'][0]}-unverified" in done.stdout
    Without(env)("verify", PROFILE)
    assert all(map(there.is_on_disk, made.layers))
    assert "nothing to push" in Without(env)("push", PROFILE, *place).stderr


def test_an_engine_pulls_a_foundation_that_was_pushed_before(
    cannery: Cannery, image: Image, without: Without, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", without.env["DOCKER_CONFIG"])
    place = ("--registry", f"{registry.host}/engine")
    cannery.build_py("push", PROFILE, *place)
    name = foundation_reference(planned(read_context(ROOT), PROFILE, Options()).plan)
    cannery.docker("image", "rm", name)
    done = cannery.build_py("image", PROFILE, *place, "--no-stamp", "--json")
    assert f"foundation: {registry.host}/engine/{name}\n" in done.stderr
    assert json.loads(done.stdout)["id"] == image.table["id"]
    (found,) = json.loads(cannery.docker("image", "inspect", name).stdout)
    assert found["Config"]["Labels"][PYTHON_LABEL].startswith("3.11.")


def test_where_no_program_of_it_runs_its_files_are_looked_at(stored: dict[str, Any]) -> None:
    context = read_context(ROOT)
    catalog, plan, _ = planned(context, PROFILE, Options())
    place = store_place(context)
    blind = Blind(place.store, place.env, place.arch, place.cache)
    manifest = manifest_digest(context, catalog, plan)
    request = VerifyRequest(plan.reference, stored["id"], "", "1g", plan.recipe.target.arch, manifest, again=True)
    checks: list[str] = []
    found = verified(Work(context, catalog, plan, blind), request, lambda check: checks.append(check["id"]))
    assert (found.status, found.report["result"]) == (0, "partial"), found.report
    assert {"static.wheels", "static.files", "static.base", "static.leftovers"} < set(checks)
    assert not {name for name in checks if name.endswith(("python", "libraries", "torch"))}
    other = replace(request, manifest_sha256="0" * 64)
    assert verified(Work(context, catalog, plan, blind), other, lambda _: None).status == 1


def test_two_jobs_of_gitlab_make_and_verify_an_image(
    without: Without,
    stored: dict[str, Any],
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines of docs/ci/gitlab-two-jobs.yml: one job in a container, with an empty cache, the other one outside."""
    place = f"{registry.host}/jobs"
    monkeypatch.setenv("DOCKER_CONFIG", without.env["DOCKER_CONFIG"])
    context = read_context(ROOT)
    catalog, plan, _ = planned(context, PROFILE, Options())
    here = store_place(context)
    share_parts(Work(context, catalog, plan, here), dock_of(context, here, plan, place, is_push=True))
    document = yaml.safe_load((ROOT / "docs/ci/gitlab-two-jobs.yml").read_text(encoding="utf-8"))
    said = ""
    for name, program in (("assemble", CONTAINER), ("verify", ())):
        env = {"CI_REGISTRY": registry.host, "CI_REGISTRY_IMAGE": place, "CI_PROJECT_DIR": str(tmp_path / name)}
        env |= {"CI_REGISTRY_USER": USER, "CI_REGISTRY_PASSWORD": PASSWORD, "CI": "true"}
        for key, value in document["variables"].items():
            env[key] = re.sub(r"\$(\w+)", lambda found, known=env: known[found[1]], value)
        env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        common, job = document["default"], document[name]
        # GitLab runs these lines in one shell, and after_script in another one.
        for lines in ([*common["before_script"], *job["script"]], common["after_script"]):
            command = (*program, "bash", "-e", "-o", "pipefail", "-c", "\n".join(lines))
            done = subprocess.run(
                command, cwd=ROOT, env={**without.env, **env}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            said += done.stdout + done.stderr
        assert not Path(env["DOCKER_CONFIG"]).exists()
    assert "warning: assembled, not verified" in said
    assert PASSWORD not in said
    for end in ("-unverified", ""):
        assert f"{place}/{stored['references'][0]}{end}\n" in said
    assert without.json("pull", PROFILE, "--registry", place)["id"] == stored["id"]
    shutil.rmtree(tmp_path)  # 5 GB
