"""Whose a container is, and which ones go."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from cannery.engine.io.containers import LABEL, is_gone, label_words, owner, remove_orphans

ROOT = Path(__file__).parents[2]
SAY = "from cannery.engine.io.containers import owner; print(owner(), flush=True)"


@pytest.fixture(scope="module")
def ended() -> str:
    """The owner that a process was which has ended."""
    done = subprocess.run((sys.executable, "-c", SAY), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_who_lives_and_who_has_ended(ended: str) -> None:
    assert not is_gone(owner())
    assert is_gone(ended)


def test_one_that_has_the_pid_of_another_is_another() -> None:
    head, _, start = owner().rpartition(" ")
    assert is_gone(f"{head} {int(start) - 1}")


def test_a_process_that_nobody_has_reaped_has_ended() -> None:
    with subprocess.Popen((sys.executable, "-c", SAY), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read().strip()
        state = Path(f"/proc/{process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            pass
        assert is_gone(text)


@pytest.mark.parametrize("place", ["another-boot pid:[1]", "{boot} pid:[1]"])
def test_of_another_host_boot_or_container_nothing_is_known(ended: str, place: str) -> None:
    boot, _, pid, start = ended.split()
    assert not is_gone(f"{place.format(boot=boot)} {pid} {start}")


@pytest.mark.parametrize("text", ["", "a", "a b", "a b c d", "a b 1 2 3"])
def test_what_is_no_owner_of_ours_has_not_ended(text: str) -> None:
    assert not is_gone(text)


def test_a_host_without_proc_owns_nothing(tmp_path: Path) -> None:
    assert owner(tmp_path) == ""


def test_the_option_is_one_label() -> None:
    assert label_words() == ("--label", f"{LABEL}={owner()}")


@dataclass
class Client:
    """The SDK's client, with containers by id and owner."""

    owners: dict[str, str]
    removed: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def api(self) -> Client:
        return self

    def containers(self, **options: object) -> list[dict[str, Any]]:
        self.asked.append(options)
        return [{"Id": name, "Labels": {LABEL: text}} for name, text in self.owners.items()]

    def remove_container(self, name: str, *, force: bool) -> None:
        if name == "gone meanwhile":
            raise docker.errors.NotFound(name)
        assert force
        self.removed.append(name)


def test_only_the_containers_of_runs_that_ended_go(ended: str) -> None:
    client = Client({"theirs": "another-boot pid:[1] 1 1", "mine": owner(), "left": ended})
    remove_orphans(client)
    assert client.removed == ["left"]
    assert client.asked == [{"all": True, "filters": {"label": LABEL}}]


def test_one_that_another_run_has_just_removed_stops_nothing(ended: str) -> None:
    client = Client({"gone meanwhile": ended, "left": ended})
    remove_orphans(client)
    assert client.removed == ["left"]
