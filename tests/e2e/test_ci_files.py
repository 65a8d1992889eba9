"""The ready CI files of docs/ci: their shell lines, run in order as a service would, against a registry with a login.

What no service has run is what they leave to it: checking out, its Python, its runner's disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.engine_fixtures import ROOT
from tests.e2e.registry import PASSWORD, USER
from tests.e2e.ship_fixtures import PROFILE
from tests.e2e.test_ship import registry, ship, yard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.e2e.test_ship import Ship

__all__ = ["registry", "ship", "yard"]
pytestmark = pytest.mark.engine

# It frees what GitHub's own runners have too much of; nothing of it is on other machines.
NOT_RUN = "free some disk"
LINES = ("login", "check", "image", "push")


@pytest.fixture
def prebuilt(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place whose registry has the image of the checkout's plan, and a checkout that `make` works in."""
    place = f"{ship.image}/ci"
    ship.yard.proves(ship.yard.make())
    ship("push", "--registry", place)
    ship.yard.clean()
    for name in ("Makefile", "cannery", ".venv"):
        (ship.yard.root / name).unlink(missing_ok=True)
        (ship.yard.root / name).symlink_to(ROOT / name)
    # What finds the checkout by its own place is copied. The copied requirements are those that .venv was made from.
    shutil.copytree(ROOT / "tools", ship.yard.root / "tools", dirs_exist_ok=True)
    for name in ("build.py", "requirements.txt"):
        shutil.copy(ROOT / name, ship.yard.root)
    monkeypatch.setenv("DOCKER_CONFIG", str(ship.folder / "fresh"))
    return place


def run(ship: Ship, lines: str, env: Mapping[str, str]) -> str:
    """Run lines in a shell that ends at the first one that fails, as both services do; return all that they said."""
    command = ("bash", "-e", "-o", "pipefail", "-c", lines)
    done = subprocess.run(
        command, cwd=ship.yard.root, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{lines}\n{said}"
    assert PASSWORD not in said
    return said


def reused(said: Iterable[str], place: str) -> None:
    """See that the image was pulled, its proof remembered, and nothing pushed."""
    login, check, image, push = said
    assert "Login Succeeded" in login
    assert PROFILE in check
    assert f"pulled from  {place}/{PROFILE}:" in image
    assert "remembered: same image" in image
    assert "nothing to push" in push


def test_the_steps_of_github(ship: Ship, prebuilt: str) -> None:
    job = yaml.safe_load((ROOT / "docs/ci/github.yml").read_text(encoding="utf-8"))["jobs"]["image"]
    values = {
        "matrix.profile": PROFILE,
        "matrix.arch": str(ship.yard.plan.recipe.target.arch),
        "vars.REGISTRY": prebuilt,
        "vars.REGISTRY_USER || github.actor": USER,
        "secrets.REGISTRY_PASSWORD || secrets.GITHUB_TOKEN": PASSWORD,
    }

    def told(text: str) -> str:
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: values[found[1]], text)

    steps = [step for step in job["steps"] if "run" in step and step["name"] != NOT_RUN]
    assert len(steps) == len(LINES) == sum("run" in step for step in job["steps"]) - 1
    said = []
    for step in steps:
        env = {name: told(value) for name, value in {**job["env"], **step.get("env", {})}.items()}
        said.append(run(ship, told(step["run"]), env))
    reused(said, prebuilt)


def test_the_lines_of_gitlab(ship: Ship, prebuilt: str) -> None:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text(encoding="utf-8"))
    (job,) = document.values()
    builds = ship.yard.cache.parent
    (builds / "cannery-cache").unlink(missing_ok=True)
    (builds / "cannery-cache").symlink_to(ship.yard.cache)
    env = {
        "CI_REGISTRY": ship.registry.host,
        "CI_REGISTRY_IMAGE": prebuilt,
        "CI_REGISTRY_USER": USER,
        "CI_REGISTRY_PASSWORD": PASSWORD,
        "CI_PROJECT_DIR": str(ship.folder),
        "CI_BUILDS_DIR": str(builds),
        "PROFILE": PROFILE,
    }
    for name, value in job["variables"].items():
        env[name] = re.sub(r"\$(\w+)", lambda found: env[found[1]], value)
    env["ARCH"] = str(ship.yard.plan.recipe.target.arch)
    lines = [*job["before_script"], *job["script"]]
    assert len(lines) == len(LINES)
    said = [run(ship, line, env) for line in lines]
    reused(said, prebuilt)
    config = Path(env["DOCKER_CONFIG"])
    assert (config / "config.json").is_file()
    run(ship, "\n".join(job["after_script"]), env)
    assert not config.exists()
