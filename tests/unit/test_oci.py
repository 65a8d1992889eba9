"""What registries answer, read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cannery.engine.oci import (
    MalformedError,
    Manifest,
    image_config,
    read_config,
    read_manifest,
    read_published,
)

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")


def entry(digest: str, **platform: str) -> dict[str, Any]:
    return {"digest": digest, "platform": platform}


def test_of_variants_the_first_counts_and_of_systems_linux() -> None:
    entries = [
        entry(TWO, os="windows", architecture="amd64"),
        entry(ONE, os="linux", architecture="arm64", variant="v8"),
        entry(TWO, os="linux", architecture="arm64", variant="v9"),
        {"digest": TWO},
        "no entry",
    ]
    found = read_published(TWO, "", json.dumps({"manifests": entries}).encode())
    assert [(one.arch, one.manifest) for one in found.entries] == [("arm64", ONE)]


def test_a_manifest_has_the_digest_and_bytes_of_each_layer() -> None:
    def read(layers: object) -> Manifest:
        return read_manifest(json.dumps({"config": {"digest": ONE, "size": 9}, "layers": layers}).encode())

    assert read(None) == read({}) == Manifest(ONE)
    largest = [{"digest": ONE, "size": 2**63 - 1}, {"digest": TWO, "size": 0}]
    assert read(largest) == Manifest(ONE, ((ONE, 2**63 - 1), (TWO, 0)))
    for odd in (None, 10**400, 2**63, -5, True, 1.5):
        with pytest.raises(MalformedError, match="no size"):
            read([{"digest": ONE, "size": odd}])
    for odd in (5, {"size": 1, "digest": "x"}):
        with pytest.raises(MalformedError):
            read([odd])


@pytest.mark.parametrize("value", [{"os": "linux"}, {"architecture": 1}, {"architecture": ""}])
def test_a_configuration_without_an_architecture(value: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="names no architecture"):
        read_config(json.dumps(value).encode())


@pytest.mark.parametrize("config", [None, [], {}, {"Env": None, "Labels": None}, {"Env": "A=1", "Labels": ["x"]}])
def test_an_empty_configuration(config: object) -> None:
    found = image_config("arm64", config)
    assert (dict(found.env), dict(found.labels)) == ({}, {})


def test_the_last_of_equal_names_counts() -> None:
    assert image_config("arm64", {"Env": ["A=1", "A=2", "B", 3]}).env == {"A": "2", "B": ""}
