"""What build steps need of a run, whoever runs them: the host's secrets, and a view of their progress."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cannery.build.stages import brought
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cannery.build.io.buildx import View
    from cannery.build.io.secrets import Secrets
    from cannery.pipeline import Work


@contextmanager
def step_secrets(work: Work) -> Iterator[Secrets]:
    """Give what this host has to keep secret, as long as steps run. Raises as `host_secrets`."""
    from cannery.build.io.secrets import host_secrets

    context = work.context
    suite = work.catalog.standin.suite if work.plan.recipe.base.kind is BaseKind.STANDIN else None
    system = context.settings.mirrors("system")
    with host_secrets(context.cache, context.env, context.pip, suite, system) as secrets:
        yield secrets


def step_view(work: Work) -> Callable[[], View]:
    """Return what makes a view of steps on stderr."""
    from cannery.build.io.view import Look, make_view

    context = work.context
    progress = context.env.get("BUILDKIT_PROGRESS", "")
    if progress not in {"", "auto", "tty", "plain"}:
        context.say(f"BUILDKIT_PROGRESS={progress} has no effect: plain prints what build steps print, as -v does")
    look = Look(brought(work.plan), context.is_verbose or progress == "plain")
    return partial(make_view, sys.stderr, look, is_terminal=context.is_terminal, clock=time.monotonic)
