"""Loading the stand-in into an engine: a recorded engine, real archives."""

# ruff: noqa: ANN401 - the docker SDK has no types

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docker.errors
import factories
import pytest
import requests

from cannery.errors import BuildFailedError, UnableError
from cannery.recipe.recipe import Options
from cannery.standin.elf import shared_library
from cannery.standin.io import load as standin
from cannery.standin.io.load import StandInRequest, cann_layer, docker_archive, ensure_standin, store_standin
from cannery.standin.tree import standin_spec
from cannery.store.io.store import Store
from cannery.util.io.files import sha256_file
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class FakeEngine:
    """An engine with images by reference; `answer` is what loading says, `archive` what it was given."""

    held: dict[str, str] = field(default_factory=dict)
    answer: tuple[dict[str, str], ...] = ()
    error: Exception | None = None
    archive: bytes = b""

    @property
    def images(self) -> Any:
        return self

    @property
    def api(self) -> Any:
        return self

    def get(self, reference: str) -> Any:
        if self.error:
            raise self.error
        if reference not in self.held:
            raise docker.errors.ImageNotFound("no such image")
        return SimpleNamespace(attrs={"Id": self.held[reference]})

    def load_image(self, archive: Any, *, quiet: bool) -> Any:
        self.archive = b"".join(archive)
        if not self.answer:
            with tarfile.open(fileobj=io.BytesIO(self.archive)) as opened:
                manifest = json.loads(opened.extractfile("manifest.json").read())[0]
            self.held[manifest["RepoTags"][0]] = f"sha256:{manifest['Config'].removesuffix('.json')}"
        return iter(self.answer)

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/elsewhere"}


@pytest.fixture(name="request_")
def _request(tmp_path: Path) -> StandInRequest:
    wheel = tmp_path / "torch_npu.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "torch_npu/lib/libx.so", shared_library(Arch.AMD64, "libx.so", functions=[], needed=["libacl.so"])
        )
    recipe = factories.recipe(Options(base="standin"))
    spec = standin_spec(recipe, factories.lock(recipe), factories.standin())
    assert spec.torch_npu
    return StandInRequest(
        replace(spec, torch_npu=replace(spec.torch_npu, sha256=sha256_file(wheel))), wheel, Arch.AMD64
    )


@pytest.fixture(name="rootfs")
def _rootfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rootfs.tar"
    path.write_bytes(b"r" * 5000)
    monkeypatch.setattr(standin, "ensure_rootfs", lambda *_, **__: path)
    return path


def test_an_image_that_is_there_is_taken_as_it_is(request_: StandInRequest, tmp_path: Path) -> None:
    engine = FakeEngine({request_.spec.reference: "sha256:1"})
    said: list[str] = []
    missing = replace(request_, torch_npu_wheel=None)
    assert ensure_standin(missing, engine_client=engine, cache=tmp_path, say=said.append) == "sha256:1"
    assert (engine.archive, said) == (b"", [])


@pytest.mark.usefixtures("rootfs")
def test_a_missing_one_is_loaded_and_its_id_is_its_configurations(request_: StandInRequest, tmp_path: Path) -> None:
    engine = FakeEngine()
    found = ensure_standin(request_, engine_client=engine, cache=tmp_path, say=lambda _: None)
    with tarfile.open(fileobj=io.BytesIO(engine.archive)) as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())[0]
        config = archive.extractfile(manifest["Config"]).read()
        layers = [archive.extractfile(name).read() for name in manifest["Layers"]]
    assert found == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert layers[0] == b"r" * 5000
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(x).hexdigest()}" for x in layers]
    with tarfile.open(fileobj=io.BytesIO(layers[1])) as layer:
        assert any(name.endswith("lib64/libacl.so") for name in layer.getnames())


@pytest.mark.usefixtures("rootfs")
def test_the_store_has_the_image_that_an_engine_has(request_: StandInRequest, tmp_path: Path) -> None:
    engine, store = FakeEngine(), Store(tmp_path / "images")
    wanted = ensure_standin(request_, engine_client=engine, cache=tmp_path, say=lambda _: None)
    said: list[str] = []
    assert store_standin(request_, store=store, cache=tmp_path, say=said.append) == wanted
    found = store.find(request_.spec.reference)
    assert found is not None
    assert (found.id, found.tags, len(found.layers), len(said)) == (wanted, (request_.spec.reference,), 2, 1)
    missing = replace(request_, torch_npu_wheel=None)
    assert store_standin(missing, store=store, cache=tmp_path, say=said.append) == wanted
    assert len(said) == 1


def test_the_archive_is_the_same_every_time(request_: StandInRequest, rootfs: Path) -> None:
    archives = {b"".join(docker_archive(request_.spec, rootfs, cann_layer(request_))) for _ in range(2)}
    assert len(archives) == 1


def test_a_wheel_that_is_not_the_locked_one_is_refused(request_: StandInRequest) -> None:
    assert request_.torch_npu_wheel
    request_.torch_npu_wheel.write_bytes(b"other")
    with pytest.raises(UnableError, match="not the locked file"):
        cann_layer(request_)


def test_a_wheel_that_is_not_there_is_named(request_: StandInRequest) -> None:
    with pytest.raises(UnableError, match=r"torch-npu .* is not on this host"):
        cann_layer(replace(request_, torch_npu_wheel=None))


def test_a_stack_without_torch_npu_has_no_stubs(request_: StandInRequest) -> None:
    layer = cann_layer(replace(request_, spec=replace(request_.spec, torch_npu=None), torch_npu_wheel=None))
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        assert not any(name.endswith(".so") for name in archive.getnames())


@pytest.mark.usefixtures("rootfs")
@pytest.mark.parametrize("answer", [({"stream": "Loading"}, {"error": "no space left on device"}), ({"stream": "ok"},)])
def test_an_engine_that_refuses_is_a_failed_build(
    request_: StandInRequest, tmp_path: Path, answer: tuple[dict[str, str], ...]
) -> None:
    with pytest.raises(BuildFailedError, match=r"no space left on device|does not list it"):
        ensure_standin(request_, engine_client=FakeEngine(answer=answer), cache=tmp_path, say=lambda _: None)


def test_an_engine_that_does_not_answer_is_unable(request_: StandInRequest, tmp_path: Path) -> None:
    engine = FakeEngine(error=requests.ConnectionError("refused"))
    with pytest.raises(UnableError, match="does not answer"):
        ensure_standin(request_, engine_client=engine, cache=tmp_path, say=lambda _: None)
