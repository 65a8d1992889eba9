from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cannery.ship.bundle import ABOUT, SCHEMA, Held, PackedLayer, blob, documents, new_layers
from cannery.ship.standalone import load as load_bundle

CONFIG = b'{"rootfs": {}}'


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


def packed(digit: str) -> PackedLayer:
    return PackedLayer(digest(digit), blob(digit.upper() * 64), 7, digit.upper() * 64)


IMAGE = Held(digest("9"), "linux/amd64", ("stack:1",), (digest("a"), digest("b"), digest("a")))
LAYERS = st.lists(st.sampled_from("abcdef").map(digest), max_size=8)


def test_the_loader_and_the_writer_agree() -> None:
    assert (load_bundle.ABOUT, load_bundle.SCHEMA) == (ABOUT, SCHEMA)


def test_a_complete_bundle_is_a_docker_archive() -> None:
    found = dict(documents(IMAGE, None, CONFIG, (packed("b"), packed("a"))))
    (archive,) = json.loads(found["manifest.json"])
    assert found[archive["Config"]] == CONFIG
    assert archive["RepoTags"] == ["stack:1"]
    # In the image's order, and a layer that comes twice twice.
    assert [name[-1] for name in archive["Layers"]] == ["A", "B", "A"]


def test_a_delta_is_no_archive_and_names_its_base() -> None:
    base = Held(digest("8"), "linux/amd64", ("stack:0",), (digest("a"),))
    found = dict(documents(IMAGE, base, CONFIG, (packed("b"),)))
    assert "manifest.json" not in found
    about = json.loads(found[ABOUT])
    assert about["base"]["id"] == digest("8")
    assert [layer["diff_id"] for layer in about["layers"]] == [digest("b")]


@given(LAYERS, LAYERS)
def test_what_is_new_and_what_is_there_make_the_image(image: list[str], base: list[str]) -> None:
    new = new_layers(image, base)
    assert len(new) == len(set(new))
    assert set(new) | (set(image) & set(base)) == set(image)
    assert not set(new) & set(base)
