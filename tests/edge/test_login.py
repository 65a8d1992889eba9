"""Docker's logins: its settings, its credential helpers, and those that fail, hang or print something else."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING

import pytest

from cannery.engine.io.registry import read_login

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def set_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK looks for helpers on the PATH of this process."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


GIVES = """read server; printf '{"ServerURL": "%s", "Username": "me", "Secret": "s3cret of %s"}' "$server" "$server" """


def settings(folder: Path, config: object, script: str | None = None) -> dict[str, str]:
    """An environment with these docker settings, and the helper `test` that runs `script`; None: there is none."""
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if script is not None:
        program = folder / "docker-credential-test"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return {"DOCKER_CONFIG": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_settings_of_docker(tmp_path: Path) -> None:
    assert read_login("a.example", {"HOME": str(tmp_path)}).entry == {}
    word = base64.b64encode(b"me:s3:cret").decode()
    (tmp_path / ".docker").mkdir()
    env = settings(tmp_path / ".docker", {"auths": {"a.example": {"auth": word}, "b.example": {"identitytoken": "x"}}})
    for found in (read_login("a.example", env), read_login("a.example", {"HOME": str(tmp_path)})):
        assert (found.password, found.fault) == (("me", "s3:cret"), "")
        assert "s3:cret" not in repr(found)
    token = read_login("b.example", env)
    assert (token.password, dict(token.entry)) == (None, {"IdentityToken": "x"})
    nothing = read_login("c.example", env)
    assert (nothing.entry, nothing.fault) == ({}, "")


@pytest.mark.parametrize(
    "text",
    [
        *("{", "", "[]", '{"auths": 5}', '{"auths": ["a.example"]}', '{"auths": {"a.example": "x"}}'),
        '{"auths": {"a.example": {"auth": "%%%"}}}',
    ],
)
def test_settings_that_cannot_be_read_are_a_fault(tmp_path: Path, text: str) -> None:
    found = read_login("a.example", settings(tmp_path, text))
    assert (found.entry, found.fault) == ({}, f"{tmp_path}/config.json cannot be read")


def test_a_credential_helper(tmp_path: Path, set_path: None) -> None:
    env = settings(tmp_path, {"credsStore": "test"}, GIVES)
    assert read_login("a.example:5000", env).password == ("me", "s3cret of a.example:5000")
    assert read_login("docker.io", env).password == ("me", "s3cret of https://index.docker.io/v1/")
    env = settings(tmp_path, {"credsStore": "test"}, """echo '{"Username": "<token>", "Secret": "t0ken"}'""")
    found = read_login("a.example", env)
    assert (found.password, found.entry["IdentityToken"]) == (None, "t0ken")


def test_what_a_helper_does_not_have_comes_from_the_file(tmp_path: Path, set_path: None) -> None:
    config = {"auths": {"a.example": {"auth": "bWU6ZmlsZQ=="}}, "credHelpers": {"a.example": "test"}}
    env = settings(tmp_path, config, "echo 'credentials not found in native keychain'; exit 1")
    found = read_login("a.example", env)
    assert (found.password, found.fault) == (("me", "file"), "")
    assert read_login("b.example", env).entry == {}


@pytest.mark.parametrize(
    "script", [None, "echo s3cret; exit 3", "kill -9 $$", "echo s3cret", "echo '{}'", "echo '[[]]'"]
)
def test_a_helper_that_does_not_work_is_a_fault(tmp_path: Path, set_path: None, script: str | None) -> None:
    found = read_login("a.example", settings(tmp_path, {"credsStore": "test"}, script))
    assert (found.entry, found.fault) == ({}, "docker-credential-test does not work")
