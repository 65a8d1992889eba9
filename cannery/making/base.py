"""Provides the base image: makes a stand-in, or fetches a real base into the image store.

With an engine, BuildKit fetches a real base.
"""

from __future__ import annotations

import io
import sys
from typing import IO, TYPE_CHECKING, Any

from cannery.assemble.image import Settings, image_config
from cannery.lock.io.store import current_lock
from cannery.making.assemble import add_image
from cannery.pipeline import lock_store
from cannery.recipe.recipe import with_arch
from cannery.standin.tree import SHELL, entrypoint, labels
from cannery.util.addresses import parse_reference
from cannery.util.io.files import sha256_bytes, sha256_file
from cannery.util.io.waiting import heartbeat
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.host.io.place import StorePlace
    from cannery.lock.lock import Lock
    from cannery.pipeline import Work
    from cannery.standin.tree import StandInSpec
    from cannery.vocab import Arch


def make_standins(work: Work) -> None:
    """Make the stand-in base, for the target and for the architecture of the build host.

    A base that this host cannot run is not made, because only a foundation needs it. Raises like `ensure_rootfs`,
    `cann_layer` and `add_image`.
    """
    context, catalog, plan, place = work.context, work.catalog, work.plan, work.place
    wanted = [
        (reference, lock)
        for reference, lock in _standin_locks(work)
        if place.find(reference) is None and not place.cannot(lock.arch)
    ]
    if not wanted:
        return
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.standin.io.rootfs import ensure_rootfs
    from cannery.standin.io.wheel_symbols import cann_layer
    from cannery.standin.tree import TORCH_NPU, standin_spec

    for reference, lock in wanted:
        spec = standin_spec(with_arch(plan.recipe, lock.arch), lock, catalog.standin)
        if spec.reference != reference:
            raise AssertionError(f"planned {reference}, made {spec.reference}")
        wanted_wheels = [spec.torch_npu] if spec.torch_npu else []
        with heartbeat(context.say, lambda: "making the stand-in base"):
            wheel = fetch_wheels(context.downloads, catalog.indexes, wanted_wheels).get(TORCH_NPU)
            layer = cann_layer(spec, wheel)
            system = ensure_rootfs(
                spec.data, spec.target.arch, cache=context.cache, host_arch=context.arch, say=context.say
            )
        digests = [f"sha256:{sha256_file(system)}", f"sha256:{sha256_bytes(layer)}"]
        with system.open("rb") as stream:
            layers: dict[str, IO[bytes]] = dict(zip(digests, (stream, io.BytesIO(layer)), strict=True))
            add_image(work, standin_config(spec, digests), reference, layers)


def standin_config(spec: StandInSpec, diff_ids: Sequence[str]) -> dict[str, Any]:
    """Return the image configuration of a stand-in, without CMD, as in CANN images.

    `diff_ids` are those of the Debian system and of the layer on top.
    """
    nothing = {"Config": {}, "RootFS": {"Layers": []}, "Architecture": str(spec.target.arch), "Os": "linux"}
    more = {"Entrypoint": list(entrypoint(spec.line.set_env)), "Shell": list(SHELL), "WorkingDir": "/"}
    words = [f"cannery: Debian {spec.data.suite} by debootstrap", "cannery: shape of CANN, stub libraries"]
    return image_config(nothing, diff_ids, words, Settings(spec.env, labels(spec), more), spec.data.epoch)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(lock_store(work.context), work.catalog, plan.recipe, plan.build_arch)


def stored_base(work: Work, place: StorePlace, arch: Arch) -> str:
    """Return the name of the base for an architecture in the image store. A real base is fetched if it is missing.

    Raises `NetworkError` if the registry refuses it, and like `fetch`.
    """
    plan = work.plan
    if plan.recipe.base.kind is BaseKind.STANDIN:
        return plan.base_reference if arch is plan.recipe.target.arch else plan.build_reference
    name = f"cannery-base:{sha256_bytes(plan.base_reference.encode())[:12]}-{arch}"
    if place.find(name) is None:
        place.store.tag(_fetched(work, place, arch), name)
    return name


def _fetched(work: Work, place: StorePlace, arch: Arch) -> str:
    """Fetch a real base from its registry, and return its id. Raises `NetworkError` if it is refused."""
    from cannery.engine.io.transfer_view import transfer
    from cannery.ship.io.registry import access_of, refusals
    from cannery.store.io.transfer import Route, fetch

    context, reference = work.context, work.plan.base_source or work.plan.base_reference
    access = access_of(context.pip, context.env)
    host, hint = parse_reference(reference).registry, "the same command goes on from here"
    with (
        refusals(access, host, reference, hint, "the base cannot be fetched: "),
        transfer(f"fetching {reference}", 0, sys.stderr, is_terminal=context.is_terminal) as view,
    ):
        return fetch(place.store, Route(reference, access, view, context.say), str(arch)).id
