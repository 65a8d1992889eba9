"""`verify --against` on images that `docker commit` made of the quickstart image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stub_index import make_wheel

from tests.e2e.engine_fixtures import PROFILE, ROOT, Cannery, Image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

MINE = "hand-made:1"
# What a user does in a container: a package by pip, another one away, and nothing says any more who made the image.
CHANGES = (
    "pip install --no-index --no-deps --quiet --root-user-action ignore /wheel/*.whl && pip uninstall --yes --quiet "
    "codetiming && rm -r /wheel /opt/cannery"
)


@pytest.fixture(scope="module")
def hand_made(cannery: Cannery, image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image that somebody made of a container."""
    folder: Path = tmp_path_factory.mktemp("wheel")
    name, data = make_wheel("absl-py", "99.0")
    (folder / name).write_bytes(data)
    command = ("sh", "-c", CHANGES)
    container = cannery.docker("create", "--network", "none", image.reference, *command).stdout.strip()
    try:
        cannery.docker("cp", str(folder), f"{container}:/wheel")
        cannery.docker("start", "--attach", container)
        changes = ("--change", "ENV https_proxy=http://name:word@127.0.0.1:7333", "--change", "LABEL org.cannery.plan=")
        cannery.docker("commit", *changes, container, MINE)
    finally:
        cannery.docker("rm", "--force", container)
    yield MINE
    cannery.docker("image", "rm", MINE)


def report(cannery: Cannery, *words: str, check: int) -> list[str]:
    done = cannery.build_py("verify", *words, "--all", check=check)
    assert "name:word" not in done.stdout
    return done.stdout.splitlines()


def test_a_committed_image_is_nearest_to_what_it_was_made_of(cannery: Cannery, hand_made: str) -> None:
    found = report(cannery, "--against", hand_made, check=6)
    assert found[-1] == f"the nearest profile is {PROFILE}: differences that matter: 2"
    rows = [line.split() for line in found if " of " in line[:40]]
    assert len(rows) == len(list((ROOT / "images/profiles").glob("*.yaml")))
    assert int(rows[0][1]) == int(rows[0][3]) - 2
    assert int(rows[1][1]) < int(rows[0][1])
    matters = [line.partition(",")[0] for line in found if line.startswith("  ")]
    assert matters == ["  codetiming: not there", "  absl-py: 99.0"]
    assert not any(line.startswith("made by Cannery") for line in found)


def test_an_image_of_cannery_s_is_its_profile(cannery: Cannery, image: Image) -> None:
    found = report(cannery, "--against", image.reference, check=0)
    manifest = image.table["report"]
    assert f"made by Cannery as {PROFILE}, plan {manifest['plan']}" in found
    assert [line.split()[0] for line in found if " of " in line[:40]] == [PROFILE]
    assert found[-1] == f"profile {PROFILE}: equal in all that matters"


def test_no_such_image_is_said_with_what_to_do(cannery: Cannery) -> None:
    done = cannery.build_py("verify", PROFILE, "--against", "nobody/has:this", check=2)
    assert "no image nobody/has:this on this engine" in done.stderr
    assert "docker pull nobody/has:this" in done.stderr
