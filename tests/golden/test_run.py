"""What `run --print` prints for every profile and chip on four made-up hosts, in tests/golden/runs.

`docker/<profile>-<chip>.txt`: the command and its notes on each host. `<host>/`: every other form, and what `run`
itself starts there. `make goldens` rewrites them; the diff is the review.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hosts import HOSTS
from schemas import compose_faults, kubernetes_faults, ray_faults, ray_job_faults

from cannery.host.facts import HostNpus, full_model
from cannery.run.container import RunRequest, docker_text, make_container
from cannery.run.print import printed, printed_notes
from cannery.run.ray import ray_of
from cannery.ship.published import published_reference
from cannery.vocab import Chip, RunFormat
from tests.golden.test_matrix import PROFILES, Cell, catalog, outcome, raw
from tests.golden.test_render import compare

if TYPE_CHECKING:
    from cannery.plan import Plan

GOLDENS = Path(__file__).parent / "runs"
# Of the profile `quickstart`: arm64 locks of the rest are whole.
QUICKSTART = "quickstart"
FILES = tuple(form for form in RunFormat if form is not RunFormat.DOCKER)
# What is asked for on each host, so that every option has its golden.
ASKED: dict[str, dict[str, Any]] = {
    "a2-full": {"volumes": ("/data:/data:ro",), "env": ("WANDB_MODE=offline", "COST=5 $USD")},
    "a3-full": {"registry": "registry.example/team", "network": "host", "interface": "eth0"},
    "a2-otherwise": {"runtime": "ascend", "name": "Trial_1"},
    "a2-two-cards": {"cards": (3, 4)},
}


@cache
def cell(profile: str, chip: str) -> Cell:
    target = raw(f"profiles/{profile}.yaml")["target"]
    base = "standin" if raw(f"profiles/{profile}.yaml").get("base") == "standin" else "real"
    return Cell(profile, base, chip, target["os"], target["python"], "amd64" if profile == QUICKSTART else "arm64")


def plan(profile: str, chip: str) -> Plan | None:
    """The plan of a profile for a chip; None where there is no image of CANN for it."""
    return outcome(cell(profile, chip)).plan


PAIRS = [(profile, str(chip)) for profile in PROFILES for chip in Chip if plan(profile, str(chip)) is not None]


def shown(form: RunFormat, profile: str, chip: str, host: HostNpus, **asked: Any) -> str:  # noqa: ANN401 - of `RunRequest`
    """Notes and text, as `build.py run --print` prints them, with the plan's digest by name."""
    made = plan(profile, chip)
    assert made is not None
    access = catalog().chips[chip]
    if form in {RunFormat.JOB, RunFormat.RAYJOB}:
        asked["command"] = ("python", "train.py", "--lr", "1e-6")
    if form.is_ray:
        asked["nodes"] = 4
    registry = asked.pop("registry", None)
    image = made.reference if registry is None else published_reference(registry, made.reference)
    request = RunRequest(image, made.recipe.profile.shm_size, terminal=True, **asked)
    container = make_container(request, access, full_model(access, request.cards, host))
    notes = "".join(
        f"# note: {note}\n" for note in printed_notes(form, container, access, host, ray_of(made.lock.packages))
    )
    return (notes + printed(form, container, access, made)).replace(made.digest, "<plan>")


def on_every_host(profile: str, chip: str) -> str:
    parts = (f"# {name}\n{shown(RunFormat.DOCKER, profile, chip, host)}" for name, (host, _) in HOSTS.items())
    return "\n".join(parts)


def of_a_host(name: str) -> dict[str, str]:
    host, chip = HOSTS[name]
    made = {f"{name}/{form}.yaml": shown(form, QUICKSTART, chip, host, **ASKED[name]) for form in FILES}
    access = catalog().chips[chip]
    asked = {name: value for name, value in ASKED[name].items() if name != "registry"}  # of printed text alone
    started = make_container(RunRequest("image", "16g", **asked), access, host)
    notes = "".join(f"# note: {note}\n" for note in started.notes)
    return {**made, f"{name}/start.txt": f"{notes}{docker_text(started)}\n"}


def test_what_is_printed_is_the_golden(request: pytest.FixtureRequest) -> None:
    wanted = {f"docker/{profile}-{chip}.txt": on_every_host(profile, chip) for profile, chip in PAIRS}
    for name in HOSTS:
        wanted |= of_a_host(name)
    if request.config.getoption("--rewrite-goldens"):
        shutil.rmtree(GOLDENS, ignore_errors=True)
        for file, text in wanted.items():
            path = GOLDENS / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    compare(wanted, GOLDENS)


def test_every_profile_and_every_chip_with_an_image_has_its_golden() -> None:
    assert {profile for profile, _ in PAIRS} == set(PROFILES)
    assert {chip for _, chip in PAIRS} == {"910b", "a3", "310p", "910"}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("form", FILES)
def test_every_file_is_valid_by_the_schema_of_what_reads_it(form: RunFormat, host: str) -> None:
    value = yaml.safe_load((GOLDENS / host / f"{form}.yaml").read_text(encoding="utf-8"))
    own = {RunFormat.COMPOSE: compose_faults, RunFormat.RAYCLUSTER: ray_faults, RunFormat.RAYJOB: ray_job_faults}
    check = own.get(form, kubernetes_faults)
    assert check(value) == []


@pytest.mark.parametrize(("profile", "chip"), PAIRS)
def test_no_command_is_privileged_or_on_the_hosts_network_unasked(profile: str, chip: str) -> None:
    text = on_every_host(profile, chip)
    assert "privileged" not in text
    assert "--network" not in text
    assert text.count(f"--shm-size {raw(f'profiles/{profile}.yaml').get('shm_size', '16g')}") == len(HOSTS)
    managers = catalog().chips[chip].managers
    for node in managers:
        assert text.count(f"--device {node} ") == len(HOSTS), "on every host, whatever it lacks"
