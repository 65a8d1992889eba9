"""The user's own docker commands on Cannery's engine: what the shell gets, and what `docker` then runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cannery.engine.io.find import Engine
from cannery.engine.own.layout import Layout
from cannery.engine.own.packages import Binaries
from cannery.engine.own.shell import shell_text, write_wrapper

ECHO = """\
#!/bin/sh
echo "$(basename "$0") $DOCKER_HOST ${BUILDX_BUILDER-none}"
for word in "$@"; do echo "<$word>"; done
"""
# what a path of a user's may hold, and a shell must not read
CACHES = ("cache", "my cache", 'it\'s "mine"', "a$(touch ran)b`touch ran`;c", "*", "new\nline")


def engine(cache: Path, *, owned: bool = True) -> Engine:
    layout = Layout.of(cache)
    return Engine(
        host=layout.host,
        docker=Path("/x/docker"),
        buildx=None,
        owned=owned,
        server_version="26.1",
        api_version="1.45",
        arch="amd64",
        data_root=layout.data,
    )


def unpacked(cache: Path, version: str = "26.1") -> Binaries:
    binaries = Binaries(Layout.of(cache).packages / version)
    for program in (binaries.docker, binaries.buildx):
        program.parent.mkdir(parents=True)
        program.write_text(ECHO)
        program.chmod(0o755)
    return binaries


def shell(text: str, folder: Path, *words: str, **env: str) -> list[str]:
    """Lines that `docker WORD...` prints in a shell that has evaluated `text`."""
    script = 'eval "$TEXT" && docker "$@"'
    done = subprocess.run(
        ["sh", "-euc", script, "sh", *words],
        env={"PATH": "/usr/bin:/bin", "TEXT": text, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", CACHES)
def test_docker_of_the_shell_is_ours_whatever_the_cache_is_called(tmp_path: Path, name: str) -> None:
    cache = tmp_path / name
    wrapper = write_wrapper(Layout.of(cache), unpacked(cache))
    assert wrapper == (cache / "engine/bin/docker").resolve()
    env = {"BUILDX_BUILDER": "far", "DOCKER_CONTEXT": "far"}
    text = shell_text(engine(cache), cache, env)
    host = Layout.of(cache).host
    assert shell(text, tmp_path, "ps", "-a b", **env) == [f"docker {host} none", "<ps>", "<-a b>"]
    assert shell(text, tmp_path, "buildx", "bake", "", "x y", **env)[1:] == ["<bake>", "<>", "<x y>"]
    assert shell(text, tmp_path, "buildx", **env) == [f"docker-buildx {host} none"]
    assert shell(text, tmp_path, "build", ".", **env) == [f"docker-buildx {host} none", "<build>", "<.>"]
    assert shell(text, tmp_path, **env) == [f"docker {host} none"]
    assert not (tmp_path / "ran").exists()


def test_settings_are_two_words_and_nothing_is_unset_without_need(tmp_path: Path) -> None:
    cache = tmp_path / "c"
    assert shell_text(engine(cache), cache, {"HOME": "/"}).splitlines() == [
        f"export DOCKER_HOST={Layout.of(cache).host}",
        f'export PATH={cache}/engine/bin:"$PATH"',
    ]


def test_wrapper_follows_the_version(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    path = write_wrapper(layout, unpacked(tmp_path, "26.1"))
    before = path.stat().st_ino
    write_wrapper(layout, Binaries(layout.packages / "26.1"))
    assert path.stat().st_ino == before  # nothing to write
    write_wrapper(layout, unpacked(tmp_path, "27.0"))
    assert "/27.0/" in path.read_text()
    assert "/26.1/" not in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["docker"]


def test_users_engine_gets_a_comment_alone(tmp_path: Path) -> None:
    theirs = engine(tmp_path, owned=False)
    (line,) = shell_text(theirs, tmp_path, {"DOCKER_CONTEXT": "lab"}).splitlines()
    assert line.startswith("# ")
