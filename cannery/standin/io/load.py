"""Make sure that an engine or the image store has the stand-in base: Debian rootfs and CANN-shaped layer, as one image.

Both layers are tars whose bytes follow from their inputs, so the image's id and layer digests are the same on every
machine that has the same Debian package versions.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import docker.errors
import requests

from cannery.assemble.io.load import tar_blocks
from cannery.engine.io.inspect import find_image
from cannery.errors import BuildFailedError, UnableError
from cannery.standin.io.rootfs import check_space, ensure_rootfs
from cannery.standin.io.wheel_symbols import wheel_libraries
from cannery.standin.stubs import plan_stubs, stub_library
from cannery.standin.tree import cann_tree, image_config, tree_tar
from cannery.util.io.files import sha256_bytes, sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.standin.tree import StandInSpec
    from cannery.store.io.store import Store
    from cannery.vocab import Arch


@dataclass(frozen=True)
class StandInRequest:
    """What to make: the spec, the locked torch_npu wheel on this host (None: a stack without it), the host's arch."""

    spec: StandInSpec
    torch_npu_wheel: Path | None
    host_arch: Arch


def ensure_standin(
    request: StandInRequest, *, engine_client: docker.DockerClient, cache: Path, say: Callable[[str], None]
) -> str:
    """Return the image id of the stand-in in the engine, making and loading it when the engine does not have it.

    Raises `UnableError` and `NetworkError` as `ensure_rootfs`, and for a wheel that is not the locked one;
    `BuildFailedError` where the engine refuses the image.
    """
    reference = request.spec.reference
    found = find_image(engine_client, reference)
    if found is not None:
        return found.id
    rootfs, layer = _parts(request, cache, say)
    _check_engine_space(engine_client, rootfs.stat().st_size + len(layer))
    say(f"stand-in: loading {reference} into the engine")
    _load(engine_client, docker_archive(request.spec, rootfs, layer))
    loaded = find_image(engine_client, reference)
    if loaded is None:
        raise BuildFailedError(f"the engine loaded {reference} but does not list it")
    return loaded.id


def store_standin(request: StandInRequest, *, store: Store, cache: Path, say: Callable[[str], None]) -> str:
    """Return the image id of the stand-in in the image store, made and put there when it is not there.

    Raises as `ensure_standin`; the id and the layers are those that an engine has.
    """
    reference = request.spec.reference
    found = store.find(reference)
    if found is not None:
        return found.id
    rootfs, layer = _parts(request, cache, say)
    say(f"stand-in: putting {reference} into the image store")
    config, digests = _image(request.spec, rootfs, layer)
    with rootfs.open("rb") as stream:
        store.add(stream, f"sha256:{digests[0]}")
    store.add(io.BytesIO(layer), f"sha256:{digests[1]}")
    return store.put(config, reference)


def _parts(request: StandInRequest, cache: Path, say: Callable[[str], None]) -> tuple[Path, bytes]:
    """Return the tars of both layers, as a file and as bytes."""
    layer = cann_layer(request)
    spec = request.spec
    return ensure_rootfs(spec.data, spec.target.arch, cache=cache, host_arch=request.host_arch, say=say), layer


def _image(spec: StandInSpec, rootfs: Path, layer: bytes) -> tuple[bytes, tuple[str, str]]:
    """Return the configuration of the image, and the hex SHA-256 of its layers, lowest first."""
    digests = (sha256_file(rootfs), sha256_bytes(layer))
    whats = (f"Debian {spec.data.suite} by debootstrap", "shape of CANN, stub libraries")
    return _json(image_config(spec, [(f"sha256:{d}", what) for d, what in zip(digests, whats, strict=True)])), digests


def cann_layer(request: StandInRequest) -> bytes:
    """Return the CANN-shaped layer's tar, with stubs for the locked torch_npu wheel."""
    spec = request.spec
    stubs = {}
    if spec.torch_npu is not None:
        wheel = request.torch_npu_wheel
        if wheel is None or not wheel.is_file():
            where = str(wheel) if wheel else spec.torch_npu.file
            raise UnableError(f"the wheel of torch-npu {spec.torch_npu.version} is not on this host", where=where)
        if spec.torch_npu.sha256 and sha256_file(wheel) != spec.torch_npu.sha256:
            raise UnableError("not the locked file: its hash differs", where=str(wheel), hint="remove it and run again")
        planned = plan_stubs(wheel_libraries(wheel), spec.data.libraries)
        stubs = {stub: stub_library(stub, spec.target.arch) for stub in planned}
    return tree_tar(cann_tree(spec, stubs), spec.data.epoch)


def docker_archive(spec: StandInSpec, rootfs: Path, layer: bytes) -> Iterator[bytes]:
    """Yield the image as `docker load` takes it: two layers, configuration and manifest.json, in blocks."""
    config, digests = _image(spec, rootfs, layer)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    layers = [f"{digest}/layer.tar" for digest in digests]
    manifest = _json([{"Config": name, "RepoTags": [spec.reference], "Layers": layers}])
    texts = {layers[1]: layer, name: config, "manifest.json": manifest}
    members: dict[str, IO[bytes]] = {path: io.BytesIO(text) for path, text in texts.items()}
    with rootfs.open("rb") as stream:
        yield from tar_blocks({layers[0]: stream, **members}.items())


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _load(client: docker.DockerClient, archive: Iterable[bytes]) -> None:
    """Stream an archive to the engine. An error in its answer is a failure too."""
    api: Any = client.api
    try:
        for message in api.load_image(archive, quiet=True) or ():
            if isinstance(message, dict) and "error" in message:
                raise BuildFailedError(f"the engine cannot load the stand-in base: {message['error']}")
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise BuildFailedError(f"the engine cannot load the stand-in base: {error}") from error


def _check_engine_space(client: docker.DockerClient, size: int) -> None:
    """Check the engine's own disk where it is this machine's; the image is there twice for a moment."""
    try:
        root = Path(str(client.info().get("DockerRootDir", "")))
    except (docker.errors.DockerException, requests.RequestException):
        return  # loading reports what is wrong
    if root.is_absolute() and root.is_dir():
        check_space(root, 2 * size)
