"""What the shipping tests share: a proxy that drops connections, images of a made-up profile with its plan's labels."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import select
import socket
import tarfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest
from small_checkout import fill, point_at, write_small
from stub_index import StubIndex

from cannery import cli
from cannery.commands import options_of
from cannery.commands.verify import verify_built
from cannery.context import read_context
from cannery.engine.io.find import find_engine
from cannery.host.io.place import EnginePlace
from cannery.pipeline import Work, planned
from cannery.plan.manifest import labels, manifest_text
from cannery.util.io.files import sha256_bytes
from cannery.verify.io.run import ASKED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.plan import Plan

PROFILE = "cannery-ship-test"


class Flaky:
    """A TCP proxy in front of a registry that drops the connection when so many bytes have gone up, a few times."""

    def __init__(self, port: int, after: int, times: int) -> None:
        self.target, self.after, self.left = port, after, times
        self.dropped = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.lock = threading.Lock()
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target)) as server, suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client and self._drops(len(data)):
                        # A reset, not an orderly end: what a connection that is cut looks like.
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        return
                    (server if ready is client else client).sendall(data)

    def _drops(self, count: int) -> bool:
        with self.lock:
            self.sent += count
            if self.left <= 0 or self.sent < self.after:
                return False
            self.sent, self.left = 0, self.left - 1
            self.dropped += 1
            return True


def layer(name: str, content: bytes) -> bytes:
    """A layer with one file, the same bytes each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def noise(seed: str, size: int) -> bytes:
    """Bytes that do not pack, the same for the same seed."""
    return hashlib.shake_256(seed.encode()).digest(size)


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def archive(layers: Sequence[bytes], about: Mapping[str, str], tag: str, arch: str) -> bytes:
    """A Docker archive of an image with these layers and labels."""
    diffs = [sha(one) for one in layers]
    value = {
        "architecture": arch,
        "os": "linux",
        "config": {"Labels": dict(about), "Cmd": ["true"]},
        "rootfs": {"type": "layers", "diff_ids": diffs},
    }
    config = json.dumps(value, sort_keys=True).encode()
    blobs = {f"blobs/sha256/{sha(one)[7:]}": one for one in (*layers, config)}
    contents = [
        {
            "Config": f"blobs/sha256/{sha(config)[7:]}",
            "RepoTags": [tag],
            "Layers": [f"blobs/sha256/{diff[7:]}" for diff in diffs],
        }
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in {**blobs, "manifest.json": json.dumps(contents).encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@dataclass
class Shipyard:
    """A checkout with the profile PROFILE, and the engine on which its images are made."""

    root: Path
    cache: Path
    client: Any
    made: dict[str, list[str]] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.plan_for(None)

    def plan_for(self, arch: str | None) -> Plan:
        words = {**dict.fromkeys(("cann", "chip", "os", "python")), "arch": arch}
        arguments = argparse.Namespace(profile=PROFILE, base="standin", force=False, **words)
        return planned(read_context(self.root), PROFILE, options_of(arguments)).plan

    def make(
        self,
        seed: str = "a",
        *,
        layers: int = 3,
        size: int = 300_000,
        arch: str | None = None,
        about: Mapping[str, str] | None = None,
    ) -> str:
        """Make the image of the plan on the engine, with `about` in its labels; return its id there."""
        plan = self.plan_for(arch)
        target = plan.recipe.target
        file = next(file for file in plan.recipe.base.line.version_files if file.name == "toolkit")
        version = layer(file.at(target.arch).lstrip("/"), f"version={target.cann}\n".encode())
        common = [layer(f"opt/{n}", noise(f"common {n}", size)) for n in range(layers - 2)]
        own = layer("opt/own", noise(seed, size))
        last = layer("opt/last", noise("last", size // 10))
        parts = [version, *common, own, last]
        data = archive(parts, {**labels(plan), **(about or {})}, plan.reference, str(target.arch))
        self.client.images.load(data)
        found = self.client.images.get(plan.reference)
        self.made[found.id] = found.attrs["RootFS"]["Layers"]
        return str(found.id)

    def has(self, image: str) -> bool:
        """Whether the plan's tag on the engine is the image that `make` gave this id.

        An engine with containerd's store gives it another one when it comes back in an index, or with packed layers.
        """
        found = self.client.images.get(self.plan.reference)
        stores = str(self.client.info()["DriverStatus"])
        return found.id == image or ("containerd" in stores and found.attrs["RootFS"]["Layers"] == self.made[image])

    def passes(self, image: str, arch: str | None = None) -> None:
        """Store what verify stores when all has passed."""
        catalog = read_context(self.root).catalog()
        digest = sha256_bytes(manifest_text(self.plan_for(arch), catalog.compatibility).encode())
        report = {"result": "passed", "counts": {}, "checks": [], ASKED: {"levels": [], "manifest_sha256": digest}}
        store = self.cache / "verified" / f"{image[7:31]}-0123456789abcdef.json"
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(report))

    def proves(self, image: str) -> None:
        """Store a pass as `image` does, under the name by which it finds it again; the container alone is not run."""
        context = read_context(self.root)
        engine = find_engine(context.env)
        place = EnginePlace(engine, self.client, context.env)
        arguments = argparse.Namespace(builder=None, require_npu=False, verify_again=False)
        report = {"result": "passed", "counts": {}, "checks": [], "npu": ""}
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr("cannery.verify.io.run._report", lambda *_: (report, 0))
            verify_built(arguments, Work(context, context.catalog(), self.plan, place), image)

    def forget(self, *references: str) -> None:
        """Remove images of ours by name."""
        import docker.errors  # noqa: PLC0415

        for reference in references:
            with suppress(docker.errors.ImageNotFound):
                self.client.images.remove(reference, force=True)

    def clean(self) -> None:
        """Remove every image of ours from the engine, also one that has only a digest left."""
        for image in self.client.images.list():
            names = (*image.tags, *(image.attrs.get("RepoDigests") or ()))
            self.forget(*(name for name in names if PROFILE in name))


def make_checkout(folder: Path) -> Path:
    """A locked checkout whose only profile is PROFILE."""
    root = folder / "checkout"
    write_small(root)
    profile = (root / "images/profiles/stack.yaml").rename(root / f"images/profiles/{PROFILE}.yaml")
    profile.write_text(f"{profile.read_text()}base: standin\n")
    with StubIndex() as index, pytest.MonkeyPatch.context() as monkeypatch:
        fill(index)
        point_at(index, folder, monkeypatch)
        assert cli.main(["lock"], root) == 0
    return root
