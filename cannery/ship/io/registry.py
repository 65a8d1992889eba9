"""What a registry has of an image of ours, and what is put there beside what an engine pushes: indexes and moving tags.

This host asks, as an engine would: with docker's credentials, and without TLS where the engine is told so. Where only
the engine reaches a registry, the engine is asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from cannery.engine.io.client import StreamError, answer, request
from cannery.engine.io.docker_login import auth_header, login, login_state
from cannery.engine.io.registry import on_registry
from cannery.engine.io.registry_calls import Access, Limits
from cannery.engine.io.registry_errors import AbsentError, DeniedError, PassingError, RefusedError
from cannery.engine.oci import Entry, Published, read_config, read_published
from cannery.engine.stream import Trouble
from cannery.errors import CanneryError, NetworkError
from cannery.util.image_reference import DIGEST, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import docker

    from cannery.context import Context
    from cannery.engine.io.registry import Registry

T = TypeVar("T")
# Some requests one after the other; a refusal comes with the first.
LIMITS = Limits(connect=3.0, read=8.0, total=20.0)
# Seconds before another try of a push or pull, as long as nothing has got further since; the engine itself tries each
# layer five times, for a minute.
WAITS = (2.0, 10.0, 30.0)
# The same for what this host asks: a few KB, that the engine can ask for too.
SHORT_WAITS = (0.3, 1.0)


@dataclass(frozen=True)
class Place:
    """A registry as this run reaches it: by this host, and by the engine of `client`."""

    context: Context
    client: docker.DockerClient
    registry: str
    access: Access

    def auth(self) -> str:
        """Return the header with which the engine logs in."""
        return auth_header(self.registry, self.context.env)


def place_of(
    context: Context, client: docker.DockerClient, reference: str, plain: frozenset[str], actions: str = ""
) -> Place:
    """Return how the registry of `reference` is reached; `plain` and `actions` are `Access`'s."""
    access = Access(context.pip, partial(login, env=context.env), LIMITS, plain, actions)
    return Place(context, client, parse_reference(reference, "REGISTRY").registry, access)


def published(place: Place, reference: str) -> Published | None:
    """Return what stands under a tag, None where the registry has it not. Raises `NetworkError`."""
    try:
        return _steadily(place, reference, _published)
    except AbsentError:
        return None
    except DeniedError as error:
        raise denied(place, str(error)) from error
    except RefusedError as error:
        return _asked_by_engine(place, reference, str(error))


def tags(place: Place, reference: str) -> tuple[str, ...]:
    """Return the tags of the repository of `reference`; none where they are not told."""
    try:
        return _steadily(place, reference, lambda registry: registry.tags())
    except RefusedError:
        return ()


def put(place: Place, reference: str, media_type: str, body: bytes) -> None:
    """Put an index or a manifest under a tag. Raises `NetworkError`."""
    tag = parse_reference(reference).tag
    try:
        _steadily(place, reference, lambda registry: registry.put_manifest(tag, media_type, body))
    except DeniedError as error:
        raise denied(place, str(error)) from error
    except RefusedError as error:
        hint = "this host has to reach the registry for that, as the engine does"
        raise NetworkError(f"the tag cannot be set: {error}", where=reference, hint=hint) from error


def denied(place: Place, words: str) -> CanneryError:
    """Return the error for a registry that refuses access: whether there is a login is the next thing to look at."""
    is_there, fault = login_state(place.registry, place.context.env)
    own = "it does not take the login that docker's settings have for it" if is_there else ""
    what = f"{words}; {own}" if own else f"{words}, and docker's settings have no login for it"
    what += f" ({fault})" if fault else ""
    hint = f"`docker login {place.registry}` with an account that may, then the same command again"
    return NetworkError(what, where=place.registry, hint=hint)


def again(  # noqa: PLR0913 - one job with all that it is tried by
    job: Callable[[], T],
    what: str,
    place: Place,
    *,
    done: Callable[[], int] = lambda: 0,
    waits: Sequence[float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `job` gives; try again with longer and longer waits where its trouble may pass.

    An engine keeps what it has, so that another try moves only what is not there. `done` says how far it is: when a try
    has got further, the waits begin anew, so that a broken registry ends it soon and a bad line does not. Raises the
    last `StreamError`.
    """
    steps = WAITS if waits is None else waits
    failures, best = 0, 0
    while True:
        try:
            return job()
        except StreamError as error:
            failures, best = (0, done()) if done() > best else (failures, best)
            if error.trouble is not Trouble.PASSING or failures == len(steps):
                raise
            wait = steps[failures]
            words = place.context.pip.redact(error.message)
            place.context.say(f"{what}: {words}; again in {wait:g} s, and what is there stays there")
        failures += 1
        sleep(wait)


def _steadily(place: Place, reference: str, job: Callable[[Registry], T]) -> T:
    """Return what `job` makes of the registry, asked again where its trouble may pass. Raises `RefusedError`."""
    for wait in SHORT_WAITS:
        try:
            return on_registry(reference, place.access, job)
        except PassingError:
            time.sleep(wait)
    return on_registry(reference, place.access, job)


def _published(registry: Registry) -> Published:
    digest, media_type, body = registry.manifest(registry.reference.wanted)
    found = read_published(digest, media_type, body, lambda one: registry.manifest(one, one)[2])
    if [entry.arch for entry in found.entries] != [""]:
        return found
    (entry,) = found.entries
    return replace(found, entries=(replace(entry, arch=read_config(registry.blob(entry.config)).architecture),))


def _asked_by_engine(place: Place, reference: str, words: str) -> Published | None:
    """Return what the engine learns, where this host reaches the registry not (`words`): digest and platforms."""
    path = f"/distribution/{quote(reference, safe='/:')}/json"
    try:
        found = answer(request(place.client, "GET", path, headers={"X-Registry-Auth": place.auth()}))
        described = dict(found["Descriptor"])
        digest = str(described["digest"])
        arches = [str(one["architecture"]) for one in found.get("Platforms") or () if one.get("os") == "linux"]
    except StreamError as error:
        said = place.context.pip.redact(error.message)
        if error.trouble is Trouble.ABSENT:
            return None
        if error.trouble is Trouble.DENIED:
            raise denied(place, said) from error
        hint = "see that REGISTRY is right, and that it can be reached"
        raise NetworkError(f"{words}; to the engine: {said}", where=place.registry, hint=hint) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise NetworkError(f"{words}; the engine gives no digest", where=place.registry) from error
    if not DIGEST.fullmatch(digest):
        raise NetworkError(f"{words}; the engine gives no digest", where=place.registry)
    entries = tuple(Entry(arch, digest, "", described) for arch in arches)
    return Published(digest, str(described.get("mediaType") or ""), b"", entries)
