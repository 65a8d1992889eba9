"""The ready CI files: each `make` line in them is one that the Makefile and build.py take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import make_command
import pytest
import yaml
from schemas import ci_faults

from cannery.cli.arguments import make_parser

ROOT = Path(__file__).resolve().parent.parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FILES = sorted((ROOT / "docs/ci").glob("*.yml"))
# What GitLab takes for something else than a job's name.
RESERVED = {"image", "services", "stages", "types", "before_script", "after_script", "variables", "cache", "include"}


def lines(value: Any) -> list[str]:  # noqa: ANN401 - YAML
    """Every text in a document."""
    if isinstance(value, dict):
        return [line for one in value.values() for line in lines(one)]
    if isinstance(value, list):
        return [line for one in value for line in lines(one)]
    return value.splitlines() if isinstance(value, str) else []


def calls(path: Path) -> list[list[str]]:
    """The words of each `make` line; an expression of the CI's counts as one word."""
    text = [re.sub(r"\$\{\{.*?\}\}", "x", line) for line in lines(yaml.safe_load(path.read_text(encoding="utf-8")))]
    return [shlex.split(line)[1:] for line in text if line.startswith("make ")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_make_line_is_one_of_ours(path: Path) -> None:
    found = calls(path)
    assert [words[0] for words in found] == ["check", "image", "push"]
    for target, *words in found:
        assert re.search(rf"^{target}:.*## ", MAKEFILE, re.MULTILINE)
        given = dict(word.split("=", 1) for word in words)
        parsed = make_parser().parse_args(make_command.command(target, given))
        assert parsed.profile in (given["PROFILE"], [given["PROFILE"]])  # `image` takes several


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_profiles_exist_and_logins_are_docker_s(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.search(r"(?i)profile: \[(.*)\]", text)
    assert named
    for name in named[1].split(", "):
        assert (ROOT / f"images/profiles/{name}.yaml").is_file()
    assert "--password-stdin" in text
    assert not re.search(r"--password[ =]", text)


@pytest.mark.parametrize(
    ("name", "service", "broken"),
    [
        ("github", "github-workflows", {"jobs": {"image": {"steps": [{"runs": "x"}]}}}),
        ("gitlab", "gitlab-ci", {"a": {"stage": 5, "script": 5}}),
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
