"""The ready CI files of docs/ci: services' schemas take them, and their shell lines run, in order, as a service would.

They run where no engine answers, against a registry with a login; a program in docker's place takes the login. What no
service has run is what they leave to it: checking out, its Python, QEMU, caches, its runner's disk.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from schemas import ci_faults
from small_checkout import Small, make_small
from storing_registry import StoringRegistry
from stub_index import StubIndex

from cannery.catalog.io.read import load_catalog
from cannery.commands import options_of
from cannery.commands.place import store_place
from cannery.commands.verify import verify_built
from cannery.context import read_context
from cannery.engine.io.find import DEFAULT_SOCKET
from cannery.errors import ExitCode
from cannery.pipeline import Work, planned
from cannery.plan.manifest import labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.store.io.store import Store

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "docs/ci").glob("*.yml"))
# What GitLab takes for something else than a job's name.
RESERVED = {"image", "services", "stages", "types", "before_script", "after_script", "variables", "cache", "include"}
USER, PASSWORD = "me", "s3cret"
# It frees what GitHub's own runners have too much of; nothing of it is on other machines.
NOT_RUN = "free some disk"
PROFILES = "stack second"
DOCKER = """\
#!/bin/sh
# docker, as far as a login goes: it keeps it where build.py reads it.
[ "$1 $3 $5" = "login --username --password-stdin" ] || { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
mkdir -p "$DOCKER_CONFIG"
auth=$(printf '%s:%s' "$4" "$(cat)" | base64)
printf '{"auths": {"%s": {"auth": "%s"}}}' "$2" "$auth" > "$DOCKER_CONFIG/config.json"
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_profiles_and_chips_exist_and_logins_are_docker_s(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    chips = re.search(r"(?i) chip: \[?([^]\n]*)", text)
    assert chips
    assert set(chips[1].split(", ")) <= yaml.safe_load((ROOT / "images/chips.yaml").read_text()).keys()
    profiles = re.search(r"PROFILES?: ([^#\n]*)", text)
    assert profiles
    for name in profiles[1].split():
        assert load_catalog(ROOT / "images").profiles[name].replaced is None
    assert ("--password-stdin" in text) != ('{"auths": ' in text)
    assert not re.search(r"--password[ =]", text)


@pytest.mark.parametrize(
    ("name", "service", "broken"),
    [
        ("github", "github-workflows", {"jobs": {"image": {"steps": [{"runs": "x"}]}}}),
        ("gitlab", "gitlab-ci", {"a": {"stage": 5, "script": 5}}),
        ("gitlab-two-jobs", "gitlab-ci", {"default": {"rules": []}}),
    ],
)
def test_a_services_own_schema_takes_the_file(name: str, service: str, broken: dict[str, Any]) -> None:
    # YAML 1.1 reads the key `on` as true; services read 1.2.
    text = (ROOT / f"docs/ci/{name}.yml").read_text(encoding="utf-8").replace("\non:", '\n"on":')
    assert ci_faults(yaml.safe_load(text), service) == []
    assert ci_faults({**yaml.safe_load(text), **broken}, service)


def test_gitlabs_job_has_a_name_that_is_free() -> None:
    document = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text(encoding="utf-8"))
    assert not set(document) & RESERVED


@dataclass
class Runner:
    """A service's runner: a checkout whose images are in a registry already, and a shell for its lines."""

    small: Small
    folder: Path
    registry: StoringRegistry

    @property
    def place(self) -> str:
        return f"{self.registry.host}/team"

    def line(self, text: str, env: Mapping[str, str], code: int = 0) -> str:
        """Run a line in a shell that ends at the first command that fails, as both services do; return its output."""
        command = ("bash", "-e", "-o", "pipefail", "-c", text)
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "CI": "true", **env}
        done = subprocess.run(command, cwd=self.small.root, env=env, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{text}\n{said}"
        assert PASSWORD not in said
        return said

    def prebuilt(self, profile: str) -> None:
        """Put the image of a profile's plan into the registry, and nothing but its proof into the cache."""
        context = read_context(self.small.root)
        words = dict.fromkeys(("cann", "chip", "os", "python", "arch", "base"))
        plan = planned(context, profile, options_of(argparse.Namespace(**words))).plan
        place = store_place(context)
        with pytest.MonkeyPatch.context() as monkeypatch:
            image = made(place.store, labels(plan), plan.reference)
            report = {"result": "passed", "counts": {}, "checks": []}
            monkeypatch.setattr("cannery.verify.io.run._report", lambda *_: (report, 0))
            arguments = argparse.Namespace(builder=None, require_npu=False, verify_again=False)
            verify_built(arguments, Work(context, context.catalog(), plan, place), image)
        done = self.small("push", profile, "--registry", self.place)
        assert done.code == ExitCode.DONE, done.err
        shutil.rmtree(place.store.folder)


def made(store: Store, about: Mapping[str, str], name: str) -> str:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name.partition(":")[0]))
    stream.seek(0)
    layers = [store.add(stream).diff_id]
    value = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": layers}}
    return store.put(json.dumps({**value, "config": {"Labels": dict(about)}}).encode(), name)


@pytest.fixture
def runner(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    if Path(DEFAULT_SOCKET).exists():
        pytest.skip(f"an engine answers at {DEFAULT_SOCKET}: commands would use it")
    for name in [name for name in os.environ if name.startswith("DOCKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("cannery.commands.place.why_not", lambda _: "")  # nothing runs in a box
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    with StubIndex() as index, StoringRegistry(login=f"{USER}:{PASSWORD}") as registry:
        small = make_small(tmp_path, index, capsys, monkeypatch)
        (small.root / "cannery").symlink_to(ROOT / "cannery")
        shutil.copy(ROOT / "build.py", small.root)
        shutil.copy(small.profile(), small.profile("second"))
        assert small("lock", "second").code == 0
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/docker").write_text(DOCKER)
        (tmp_path / "bin/docker").chmod(0o755)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/config.json").write_text(json.dumps({"auths": {registry.host: {"auth": login}}}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "mine"))
        found = Runner(small, tmp_path, registry)
        for profile in PROFILES.split():
            found.prebuilt(profile)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "fresh"))
        yield found


def github(runner: Runner) -> list[tuple[str, dict[str, str]]]:
    """The shell lines of GitHub's file and their environment, with values in place of its expressions."""
    (job,) = yaml.safe_load((ROOT / "docs/ci/github.yml").read_text(encoding="utf-8"))["jobs"].values()
    values = {
        "matrix.chip": "910b",
        "vars.REGISTRY": runner.place,
        "vars.REGISTRY_USER || github.actor": USER,
        "secrets.REGISTRY_PASSWORD || secrets.GITHUB_TOKEN": PASSWORD,
    }

    def told(text: str) -> str:
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: values[found[1]], text)

    own = {"PROFILES": PROFILES, "ARCH": "amd64"}
    steps = [step for step in job["steps"] if "run" in step and step["name"] != NOT_RUN]
    return [
        (told(step["run"]), {name: told(value) for name, value in {**job["env"], **step.get("env", {}), **own}.items()})
        for step in steps
    ]


def gitlab(runner: Runner) -> list[tuple[str, dict[str, str]]]:
    """The same of GitLab's file."""
    (job,) = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text(encoding="utf-8")).values()
    env = {
        "CI_REGISTRY": runner.registry.host,
        "CI_REGISTRY_IMAGE": runner.place,
        "CI_REGISTRY_USER": USER,
        "CI_REGISTRY_PASSWORD": PASSWORD,
        "CI_PROJECT_DIR": str(runner.folder / "project"),
        "CHIP": "910b",
    }
    for name, value in job["variables"].items():
        env[name] = re.sub(r"\$(\w+)", lambda found: env[found[1]], value)
    env |= {"PROFILES": PROFILES, "ARCH": "amd64", "CANNERY_CACHE": os.environ["CANNERY_CACHE"]}
    return [(line, env) for line in (*job["before_script"], *job["script"], *job["after_script"])]


@pytest.mark.parametrize("service", [github, gitlab])
def test_the_lines_run_in_order_and_keep_their_exit_codes(runner: Runner, service: Any) -> None:  # noqa: ANN401
    lines = service(runner)
    _login, checked, made_all = [runner.line(*line) for line in lines[:3]]
    for profile in PROFILES.split():
        assert profile in checked
        assert f"pulled from  {runner.place}/{profile}:" in made_all
        assert re.search(rf"^{profile} 910b amd64 +done ", made_all, re.MULTILINE)
    assert made_all.count("remembered: same image") == made_all.count("nothing to push") == 2

    path = runner.small.profile("second")  # a lock that is stale
    path.write_text(path.read_text().replace("lib}", 'lib, version: "7"}'))
    assert "second" in runner.line(*lines[1], code=ExitCode.FINDINGS)
    assert re.search(r"^second .* exit code 3 ", runner.line(*lines[2], code=ExitCode.FINDINGS), re.MULTILINE)

    config = Path(lines[0][1].get("DOCKER_CONFIG", os.environ["DOCKER_CONFIG"])) / "config.json"
    assert config.is_file()
    for line in lines[3:]:
        runner.line(*line)
        assert not config.exists()
