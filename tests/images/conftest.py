"""testinfra on a container of the quickstart image, started with the flags that `build.py run` gives."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
import testinfra

from tests.e2e.engine_fixtures import PROFILE, Cannery, Image, cannery, device_nodes, image, release_stack, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.host import Host

__all__ = ["cannery", "device_nodes", "image", "release_stack"]


@pytest.fixture(scope="session")
def run_flags(cannery: Cannery, image: Image, device_nodes: tuple[str, ...]) -> list[str]:
    """The words after `docker run` that `build.py run --print` gives, without those of a terminal and of mounts.

    The printed command is the chip's full model; this host has no driver to mount.
    """
    text = cannery.build_py("run", PROFILE, "--npus", "all", "--print").stdout
    words = shlex.split(text.replace("\\\n", " "))
    assert words[:2] == ["docker", "run"]
    assert words[-1] == image.reference
    flags = [word for word in words[2:-1] if word not in {"--rm", "-it"}]
    mounts = {"-v", "--mount"}
    return [w for i, w in enumerate(flags) if w not in mounts and (i == 0 or flags[i - 1] not in mounts)]


@pytest.fixture(scope="session")
def host(
    cannery: Cannery, image: Image, run_flags: list[str], monkeypatch_session: pytest.MonkeyPatch
) -> Iterator[Host]:
    """The container, as testinfra sees it by `docker exec`."""
    for name, value in cannery.env.items():
        monkeypatch_session.setenv(name, value)
    monkeypatch_session.setenv("PATH", f"{cannery.engine.docker.parent}:{cannery.env['PATH']}")
    container = started(cannery, [*run_flags, image.reference, "sleep", "infinity"])
    yield testinfra.get_host(f"docker://{container}")
    cannery.docker("rm", "--force", container)


@pytest.fixture(scope="session")
def monkeypatch_session() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch
