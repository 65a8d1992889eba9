"""The real base of a run in the image store of this host, from its registry or a mirror.

The surroundings of the run (`Context`) come in with `Work` and go no deeper.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from cannery.errors import UnableError

if TYPE_CHECKING:
    from cannery.host.io.place import StorePlace
    from cannery.pipeline import Work


def fetch_real_base(work: Work, place: StorePlace) -> None:
    """Bring the base of the run's plan into the store. Raises as `fetch_base`; `UnableError` for another arch."""
    from cannery.base.io.fetch import fetch_base
    from cannery.build.io.transfer_view import transfer
    from cannery.engine.io.login import read_login
    from cannery.engine.io.registry import Access
    from cannery.ship.io.registry import LIMITS, REQUEST_WAITS
    from cannery.store.io.transfer import Route

    context, plan = work.context, work.plan
    arch = plan.recipe.target.arch
    if plan.build_arch is not arch:
        what = f"a CANN image for {arch} is built upon on {plan.build_arch} by an engine only"
        raise UnableError(what, hint="use a Docker engine, build on a host of that architecture, or take BASE=standin")
    access = Access(context.pip, partial(read_login, env=context.env), LIMITS, waits=REQUEST_WAITS)
    source = plan.base_source or plan.base_reference
    with transfer(f"base {source}", 0, sys.stderr, is_terminal=context.is_terminal) as view:
        fetch_base(place.store, plan.base_reference, str(arch), Route(source, access, view, context.say))
