"""`verify --against` on images that `docker commit` made of the quickstart image."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from stub_index import make_wheel

from tests.e2e.engine_fixtures import PROFILE, ROOT, Cannery, Image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

MINE = "hand-made:1"
SCHEMA = json.loads((ROOT / "docs/against-report.schema.json").read_text())
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


def report(cannery: Cannery, *words: str, check: int) -> dict[str, Any]:
    done = cannery.build_py("verify", *words, "--json", check=check)
    value: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(value, SCHEMA)
    assert "name:word" not in done.stdout
    return value


def test_a_committed_image_is_nearest_to_what_it_was_made_of(cannery: Cannery, hand_made: str) -> None:
    found = report(cannery, "--against", hand_made, check=6)
    assert (found["profile"], found["image"]["made_by"]) == (PROFILE, None)
    assert len(found["profiles"]) == len(list((ROOT / "images/profiles").glob("*.yaml")))
    nearest = found["profiles"][0]
    assert nearest["packages"]["equal"] == nearest["packages"]["all"] - 2
    assert found["profiles"][1]["packages"]["equal"] < nearest["packages"]["equal"]
    matters = [(one["kind"], one["subject"], one["found"]) for one in found["differences"] if one["matters"]]
    assert matters == [("missing", "codetiming", ""), ("version", "absl-py", "99.0")]


def test_an_image_of_cannery_s_is_its_profile(cannery: Cannery, image: Image) -> None:
    found = report(cannery, "--against", image.reference, check=0)
    manifest = image.table["report"]
    assert found["image"]["made_by"] == {"profile": PROFILE, "plan": manifest["plan"]}
    assert [one["name"] for one in found["profiles"]] == [PROFILE]
    assert (found["equal"], found["differences"], found["extras"]) == (True, [], [])


def test_no_such_image_is_said_with_what_to_do(cannery: Cannery) -> None:
    done = cannery.build_py("verify", PROFILE, "--against", "nobody/has:this", check=2)
    assert "no image nobody/has:this on this engine" in done.stderr
    assert "docker pull nobody/has:this" in done.stderr
