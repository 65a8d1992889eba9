"""The stand-in base, put into the place of a run: its layers, its configuration."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import factories
import pytest

from cannery.assemble.io.load import archive
from cannery.errors import UnableError
from cannery.host.io.place import StorePlace
from cannery.lock.io import wheels
from cannery.making.base import make_standins
from cannery.recipe.recipe import Options
from cannery.standin.io import rootfs as system
from cannery.standin.io.wheel_symbols import cann_layer
from cannery.standin.stubs import shared_library
from cannery.standin.tree import StandInSpec, standin_spec
from cannery.store.io.store import Store
from cannery.util.io.files import sha256_file
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.pipeline import Work
    from cannery.recipe.recipe import Recipe

SYSTEM = b"r" * 5000


@dataclass
class FakeEngine:
    """A place with images by reference; what it takes is kept as the archive that `docker load` gets."""

    held: dict[str, bytes] = field(default_factory=dict)

    def find(self, reference: str) -> object:
        return self.held.get(reference)

    def cannot(self, _arch: str) -> str:
        return ""

    def take(self, config: Mapping[str, Any], reference: str, layers: Mapping[str, Any], *_: object) -> None:
        self.held[reference] = b"".join(archive(layers, config, reference))


@dataclass(frozen=True)
class Made:
    recipe: Recipe
    spec: StandInSpec
    wheel: Path

    def work(self, place: object, said: list[str] | None = None) -> Work:
        lock = factories.lock(self.recipe)
        npu = replace(self.spec.torch_npu, name="torch-npu") if self.spec.torch_npu else None
        lock = replace(lock, packages=tuple(npu if one.name == "torch-npu" and npu else one for one in lock.packages))
        context = SimpleNamespace(
            say=(said if said is not None else []).append,
            downloads=None,
            cache=self.wheel.parent,
            arch=Arch.AMD64,
            is_terminal=False,
            pip=SimpleNamespace(redact=str),
        )
        reference = self.spec.reference
        plan = SimpleNamespace(recipe=self.recipe, lock=lock, base_reference=reference, build_reference=reference)
        catalog = SimpleNamespace(standin=factories.standin(), indexes={})
        return cast("Work", SimpleNamespace(context=context, catalog=catalog, plan=plan, place=place))


@pytest.fixture
def made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    wheel, tar = tmp_path / "torch_npu.whl", tmp_path / "rootfs.tar"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr(
            "torch_npu/lib/libx.so", shared_library(Arch.AMD64, "libx.so", functions=[], needed=["libacl.so"])
        )
    tar.write_bytes(SYSTEM)
    monkeypatch.setattr(system, "ensure_rootfs", lambda *_, **__: tar)
    monkeypatch.setattr(wheels, "fetch_wheels", lambda *_: {"torch-npu": wheel})
    recipe = factories.recipe(Options(base="standin"))
    spec = standin_spec(recipe, factories.lock(recipe), factories.standin())
    assert spec.torch_npu
    return Made(recipe, replace(spec, torch_npu=replace(spec.torch_npu, sha256=sha256_file(wheel))), wheel)


def test_an_image_that_is_there_is_taken_as_it_is(made_of: Made) -> None:
    place, said = FakeEngine({made_of.spec.reference: b"there"}), list[str]()
    made_of.wheel.unlink()
    make_standins(made_of.work(place, said))
    assert (place.held, said) == ({made_of.spec.reference: b"there"}, [])


def test_a_missing_one_is_given_to_the_engine_in_whole(made_of: Made) -> None:
    place = FakeEngine()
    make_standins(made_of.work(place))
    with tarfile.open(fileobj=io.BytesIO(place.held[made_of.spec.reference])) as opened:
        read = lambda name: cast("io.BufferedReader", opened.extractfile(name)).read()  # noqa: E731
        manifest = json.loads(read("manifest.json"))[0]
        config, layers = read(manifest["Config"]), [read(name) for name in manifest["Layers"]]
    assert (manifest["RepoTags"], layers[0]) == ([made_of.spec.reference], SYSTEM)
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(x).hexdigest()}" for x in layers]
    with tarfile.open(fileobj=io.BytesIO(layers[1])) as layer:
        assert any(name.endswith("lib64/libacl.so") for name in layer.getnames())
    # The store has the very same image, byte for byte.
    store = Store(made_of.wheel.parent / "images")
    make_standins(made_of.work(StorePlace(store, {}, "amd64", made_of.wheel.parent)))
    found = store.find(made_of.spec.reference)
    assert found is not None
    assert (found.id, len(found.layers)) == (f"sha256:{hashlib.sha256(config).hexdigest()}", 2)
    make_standins(made_of.work(place))
    assert len(place.held) == 1


def test_a_wheel_that_is_not_the_locked_one_is_refused(made_of: Made) -> None:
    made_of.wheel.write_bytes(b"other")
    with pytest.raises(UnableError, match="not the locked file"):
        cann_layer(made_of.spec, made_of.wheel)


def test_a_wheel_that_is_not_there_is_named(made_of: Made) -> None:
    made_of.wheel.unlink()
    assert made_of.spec.torch_npu
    for wheel, where in ((None, made_of.spec.torch_npu.file), (made_of.wheel, str(made_of.wheel))):
        with pytest.raises(UnableError, match=r"torch-npu .* is not on this host") as caught:
            cann_layer(made_of.spec, wheel)
        assert caught.value.where == where


def test_a_stack_without_torch_npu_has_no_stubs(made_of: Made) -> None:
    layer = cann_layer(replace(made_of.spec, torch_npu=None), None)
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        assert not any(name.endswith(".so") for name in archive.getnames())
