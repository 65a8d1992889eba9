"""Find the image that a build stands on: the first in order that is there, asked for all at once and within seconds.

What is asked is fixed before an engine is started or a wheel fetched, so that a machine that reaches no registry knows
so at once; and the digest that was looked at is the one that is built upon.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.base.io.engine_images import asked, held, running_client
from cannery.base.real import BaseImage, BaseNeed
from cannery.engine.io.docker_login import login
from cannery.engine.io.registry import Answer, ask
from cannery.engine.io.registry_calls import Access
from cannery.engine.io.registry_errors import LOGIN, OtherArchError, RefusedError
from cannery.errors import CanneryError, FindingsError, NetworkError
from cannery.util.image_reference import parse_reference, split_digest
from cannery.util.io.parallel import begin
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from cannery.context import Context
    from cannery.engine.io.images import ImageClient

# Seconds that an engine may take: to answer at all, and to ask a registry on our behalf.
ENGINE_ANSWERS, ENGINE_ASKS = 1.0, 2.0
# So much longer than a registry's own limit, which has better words for what was waited for.
GRACE = 0.25
TIMED_OUT = "time-out"
# Why each place gives no image.
Reasons = dict[str, RefusedError]


@dataclass(frozen=True)
class Search:
    """Where to look: this host's access to registries, and the engine that runs.

    `engine` is called in a thread; it gives None where no engine runs. With `other_builder` the engine builds nothing,
    and what it holds or reaches counts for nothing.
    """

    access: Access
    engine: Callable[[], ImageClient | None]
    say: Callable[[str], None]
    other_builder: bool = False


def search_of(context: Context, *, other_builder: bool) -> Search:
    """Return how `context` looks for a base."""
    access = Access(context.pip, partial(login, env=context.env))
    return Search(access, partial(running_client, context), context.say, other_builder)


def find_base(need: BaseNeed, search: Search) -> BaseImage:
    """Return the first of the references that is there for all of `need.arches`, and say where it was found.

    First come the registries as this host reaches them, then as the engine does, then what the engine holds; the user's
    own image comes from the engine first where no registry has ever had it. Raises `NetworkError` with each registry's
    reason, `FindingsError` for an image of other architectures, `UsageError` for a reference that is none.
    """
    for reference in need.references:
        parse_reference(reference)
    started = time.monotonic()
    engine: Future[ImageClient | None] = begin(search.engine if not search.other_builder else lambda: None)
    if need.kind is BaseKind.CUSTOM and isinstance(local := _held(need, _client(engine), unpublished=True), BaseImage):
        search.say(f"base: {local.reference}, which this engine has and no registry")
        return local
    found, reasons = _first(need, partial(_asked_here, need, search.access), search.access.limits.total + GRACE)
    if found is None:
        return _elsewhere(need, search, _client(engine), reasons)
    for reference, reason in reasons.items():
        search.say(f"base: not {reference}: {reason}")
    search.say(f"base: {found.reference} is {_short(found)} (found in {time.monotonic() - started:.1f} s)")
    return found


def _elsewhere(need: BaseNeed, search: Search, client: ImageClient | None, reasons: Reasons) -> BaseImage:
    """Return the base where this host reaches no registry that has it; `reasons` say why."""
    reference = need.references[0]
    digest = split_digest(reference)[1]
    if search.other_builder and digest:
        # What is built upon is known, and whether that builder reaches it is not.
        search.say(f"base: {reference}: {reasons[reference]}; the builder may reach it")
        return BaseImage(split_digest(reference)[0], digest, None, unread=str(reasons[reference]))
    if client is None:
        raise _nowhere(need, reasons)
    found, theirs = _first(need, lambda one: begin(partial(asked, client, one, need.arches)), ENGINE_ASKS)
    if found is not None:
        search.say(f"base: {found.reference} is {_short(found)}; the engine reaches its registry, this host does not")
        return found
    local = _held(need, client, unpublished=False)
    if isinstance(local, BaseImage):
        search.say(f"base: {local.reference} ({_short(local)}) as the engine holds it: no registry gives a newer one")
        for name, reason in reasons.items():
            search.say(f"base: {name}: {reason}")
        return local
    redact = search.access.pip.redact  # what a daemon says of a proxy is its own text
    told = {
        name: reason
        if isinstance(reason, OtherArchError)
        else RefusedError(f"{reason}; to the engine: {redact(str(theirs[name]))}")
        for name, reason in reasons.items()
    }
    raise _nowhere(need, {**told, **local})


def _asked_here(need: BaseNeed, access: Access, reference: str) -> Future[Answer]:
    return begin(partial(ask, reference, need.arch, need.arches, access))


def _first(need: BaseNeed, start: Callable[[str], Future[Answer]], seconds: float) -> tuple[BaseImage | None, Reasons]:
    """Ask for all references at once; return the first in order that is there, and why those before it are not."""
    end = time.monotonic() + seconds
    futures = {reference: start(reference) for reference in need.references}
    reasons: Reasons = {}
    for reference, future in futures.items():
        try:
            answer = future.result(timeout=max(0.0, end - time.monotonic()))
        except RefusedError as error:
            reasons[reference] = error
        except TimeoutError:
            reasons[reference] = RefusedError(f"{TIMED_OUT} ({seconds:g} s)")
        else:
            return _base(reference, answer), reasons
    return None, reasons


def _held(need: BaseNeed, client: ImageClient | None, *, unpublished: bool) -> BaseImage | Reasons:
    """Return the first reference that the engine holds; else {"the engine": why not}, where it holds another arch.

    With `unpublished` only an image that came from no registry counts.
    """
    others: Reasons = {}
    if client is None:
        return others
    for reference in need.references:
        future = begin(partial(held, client, reference, need.arches))
        try:
            answer = future.result(timeout=ENGINE_ANSWERS)
        except RefusedError as error:
            others["the engine"] = error
            continue
        except TimeoutError:
            return {"the engine": RefusedError(TIMED_OUT)}
        if answer is not None and not (unpublished and answer.digest):
            return _base(reference, answer, held=True)
    return others


def _client(engine: Future[ImageClient | None]) -> ImageClient | None:
    try:
        return engine.result(timeout=ENGINE_ANSWERS)
    except TimeoutError:
        return None


def _base(reference: str, answer: Answer, *, held: bool = False) -> BaseImage:
    name = split_digest(reference)[0]
    return BaseImage(name, answer.digest or None, answer.config, held, answer.unread, answer.size)


def _nowhere(need: BaseNeed, reasons: Reasons) -> CanneryError:
    """Return the error: a finding where the image is there for other architectures only, else the network's."""
    arches = " and ".join(need.arches)
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    others = [isinstance(reason, OtherArchError) for reason in reasons.values()]
    # The user's own image may be in the engine only.
    if all(others) or (need.kind is BaseKind.CUSTOM and any(others)):
        hint = "the stages run on this host's architecture, so the base has to be there for it too"
        return FindingsError(f"the base image is not there for {arches}{lines}", where="base image", hint=hint)
    hints = [
        "BASE=<reference> names a copy or a mirror; an image of that name on a running engine serves too",
        "BASE=standin (with PYTHON=3.11) builds without any registry, for a look: nothing runs on an NPU there",
    ]
    if any(LOGIN in str(reason) for reason in reasons.values()):
        hints.insert(0, "`docker login` there, and see that the name is right")
    what = f"no registry gives the base image for {arches}{lines}"
    return NetworkError(what, where="base image", hint="\n  → ".join(hints))


def _short(found: BaseImage) -> str:
    return f"{found.digest[:19]}…" if found.digest else "of no digest"
