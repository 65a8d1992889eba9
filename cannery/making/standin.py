"""The stand-in base of a run, in its place: for the target, and for this host's own architecture.

The surroundings of the run (`Context`) come in with `Work` and go no deeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.host.io.place import EnginePlace
from cannery.lock.io.store import current_lock
from cannery.pipeline import lock_store
from cannery.recipe.recipe import with_arch
from cannery.util.io.heartbeat import heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lock.lock import Lock
    from cannery.pipeline import Work


def make_standins(work: Work) -> None:
    """Bring the stand-in base into the place of the run, for the target and for the build host's own arch."""
    context, catalog, plan, place = work.context, work.catalog, work.plan, work.place
    wanted = [pair for pair in _standin_locks(work) if place.find(pair[0]) is None]
    if not wanted:
        return
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.standin.io.load import StandInRequest, ensure_standin, store_standin
    from cannery.standin.spec import TORCH_NPU, standin_spec

    for reference, lock in wanted:
        spec = standin_spec(with_arch(plan.recipe, lock.arch), lock, catalog.standin)
        if spec.reference != reference:
            raise AssertionError(f"planned {reference}, made {spec.reference}")
        wanted_wheels = [spec.torch_npu] if spec.torch_npu else []
        with heartbeat(context.say, lambda: "making the stand-in base"):
            wheel = fetch_wheels(context.downloads, catalog.indexes, wanted_wheels).get(TORCH_NPU)
            request = StandInRequest(spec=spec, torch_npu_wheel=wheel, host_arch=context.arch)
            if isinstance(place, EnginePlace):
                ensure_standin(request, engine_client=place.client, cache=context.cache, say=context.say)
            else:
                store_standin(request, store=place.store, cache=context.cache, say=context.say)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(lock_store(work.context), work.catalog, plan.recipe, plan.build_arch)
