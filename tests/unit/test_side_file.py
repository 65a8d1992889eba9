from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from cannery.errors import FindingsError
from cannery.ship.bundle import Held, SideFile, file_faults, read_side, side_text

SCHEMA = json.loads((Path(__file__).resolve().parent.parent.parent / "docs/archive.schema.json").read_text())


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


IMAGE = Held(digest("1"), "linux/arm64", ("stack:1", "stack:latest"), (digest("2"), digest("3")), digest("4"))
BASE = Held(digest("5"), "linux/arm64", ("stack:0",), (digest("2"),))
SIDES = [
    SideFile("image", "stack.tar.gz", 7, "a" * 64, IMAGE),
    SideFile("bundle", "stack.tar", 7, "a" * 64, IMAGE, BASE),
]


@pytest.mark.parametrize("side", SIDES)
def test_round_trip(side: SideFile) -> None:
    text = side_text(side)
    assert read_side(text, "x") == side
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"kind": "other"},
        *({"bytes": "many"}, {"bytes": float("inf")}, {"bytes": float("nan")}, {"bytes": -5}, {"bytes": "7"}),
        *({"image": "x"}, {"base": "x"}, {"kind": []}),
        {"image": {"id": digest("1"), "platform": "p", "references": "stack:1", "layers": [digest("2")]}},
        {"image": {}},
        {"image": {"id": "1", "platform": "linux/arm64", "references": [], "layers": []}},
        {"base": {"id": digest("1"), "platform": "p", "references": [], "layers": ["x"]}},
    ],
)
def test_what_is_no_side_file_is_named(change: dict[str, object]) -> None:
    value = json.loads(side_text(SIDES[1]))
    with pytest.raises(FindingsError) as caught:
        read_side(json.dumps({**value, **change}), "the.json")
    assert caught.value.where == "the.json"
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "{", '"x"', '{"schema": 1}', pytest.param("[" * 200_000, id="deep")]
)
def test_other_texts(text: str) -> None:
    with pytest.raises(FindingsError, match="not the side file"):
        read_side(text, "x")


def test_faults_of_a_file() -> None:
    side = SIDES[0]
    assert file_faults(side, 7, "a" * 64) == ()
    assert "cut off" in file_faults(side, 6, "a" * 64)[0]
    assert "another file" in file_faults(side, 8, "a" * 64)[0]
    assert "b" * 64 in file_faults(side, 7, "b" * 64)[0]
