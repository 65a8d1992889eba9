"""Docker's credential helpers: what they give, and what is said of one that fails, hangs or babbles."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from cannery.engine.io import credential_helper
from cannery.engine.io.docker_login import login, login_state

if TYPE_CHECKING:
    from pathlib import Path

GIVES = """read server; printf '{"ServerURL": "%s", "Username": "me", "Secret": "s3cret of %s"}' "$server" "$server" """


def settings(folder: Path, script: str | None, config: object = None) -> dict[str, str]:
    """An environment whose docker settings name the helper `test`, which runs `script`; None: it is not there."""
    (folder / "config.json").write_text(json.dumps(config or {"credsStore": "test"}))
    if script is not None:
        program = folder / "docker-credential-test"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return {"DOCKER_CONFIG": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}


def test_what_a_helper_gives(tmp_path: Path) -> None:
    env = settings(tmp_path, GIVES)
    assert login("a.example:5000", env) == ("me", "s3cret of a.example:5000")
    assert login("docker.io", env) == ("me", "s3cret of https://index.docker.io/v1/")
    env = settings(tmp_path, """echo '{"Username": "<token>", "Secret": "t0ken"}'""")
    assert (login("a.example", env), login_state("a.example", env)) == (None, (True, ""))


def test_what_a_helper_has_not_is_looked_for_in_the_file(tmp_path: Path) -> None:
    config = {"auths": {"a.example": {"auth": "bWU6ZmlsZQ=="}}, "credHelpers": {"a.example": "test"}}
    env = settings(tmp_path, "echo 'credentials not found in native keychain'; exit 1", config)
    assert (login("a.example", env), login_state("a.example", env)) == (("me", "file"), (True, ""))
    assert login_state("b.example", env) == (False, "")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "docker-credential-test is not on PATH"),
        ("echo s3cret; echo s3cret >&2; exit 3", "docker-credential-test failed (status 3)"),
        ("kill -9 $$", "docker-credential-test failed (status -9)"),
        ("echo s3cret", "does not answer as a credential helper does"),
        ("echo '{}'", "does not answer as a credential helper does"),
        ("echo '[[]]'", "does not answer as a credential helper does"),
        ("yes s3cret", "docker-credential-test failed (status -9)"),
        ("cat; sleep 60 & sleep 60", "docker-credential-test does not answer (0.5 s)"),
    ],
)
def test_a_helper_that_does_not_work_is_said_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    monkeypatch.setattr(credential_helper, "PATIENCE", 0.5 if script and "sleep" in script else 30.0)
    env = settings(tmp_path, script)
    begun = time.monotonic()
    is_there, fault = login_state("a.example", env)
    assert time.monotonic() - begun < 20
    assert (is_there, words in fault, "s3cret" in fault) == (False, True, False)


@pytest.mark.parametrize("text", ["{", "", "[]", '{"auths": 5}', '{"auths": {"a.example": {"auth": "!"}}}'])
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    env = settings(tmp_path, None)
    (tmp_path / "config.json").write_text(text)
    assert login_state("a.example", env) == (False, f"{tmp_path}/config.json cannot be read")
