"""Find the base image of a build: the first reference that exists. All registries are asked at once, within seconds.

This happens before wheels are fetched, so a machine without a registry fails early. If no registry has the image, the
engine's own copy is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cannery.base.real import BaseImage
from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.registry import Access, Answer, ask, read_login
from cannery.engine.oci import (
    AbsentError,
    DeniedError,
    MalformedError,
    OtherArchError,
    RefusedError,
    image_config,
    refuse_missing,
)
from cannery.errors import CanneryError, FindingsError, NetworkError
from cannery.util.addresses import mirrored, parse_reference, split_digest
from cannery.util.io.waiting import begin
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    import docker

    from cannery.plan.make import BaseNeed
    from cannery.util.io.pip_settings import Downloads
    from cannery.vocab import Arch

# Seconds that an engine may take to answer.
ENGINE_ANSWERS = 1.0
# Seconds beyond a registry's own limit, so that its own error, which is more exact, is reported.
GRACE = 0.25
TIMED_OUT = "time-out"
# {place: why it has no image}
Reasons = dict[str, RefusedError]


@dataclass(frozen=True)
class Search:
    """Where to look: this host's access to registries, and the engine.

    `engine` is called in a thread; it returns None if no engine runs. With `other_builder` the engine does not build,
    so its own images and registries are not used. `mirrors`: as in `cannery.util.addresses.mirrored`.
    """

    access: Access
    engine: Callable[[], docker.DockerClient | None]
    say: Callable[[str], None]
    other_builder: bool = False
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)


def search_of(
    downloads: Downloads, env: Mapping[str, str], mirrors: Mapping[str, Sequence[str]], *, other_builder: bool
) -> Search:
    """Return how this host looks for a base."""
    access = Access(downloads.settings(), partial(read_login, env=env))
    engine = partial(_running_client, env)
    return Search(access, engine, downloads.say, other_builder, mirrors)


def _running_client(env: Mapping[str, str]) -> docker.DockerClient | None:
    """Return a client of the running engine, or None. Nothing is started."""
    try:
        return docker_client(find_engine(env))
    except CanneryError:
        return None  # the build reports why, if it needs the engine


def find_base(need: BaseNeed, search: Search) -> BaseImage:
    """Return the first of the references that exists for all of `need.arches`, and print where it was found.

    Registries are tried first, each after its mirrors, then the engine's images. A user's own image that is from no
    registry is taken from the engine at once. The result always has the name of the first of `need.references`. Raises
    `NetworkError` with each registry's reason, `FindingsError` for an image of other architectures or a mirror with
    another digest than the reference's, `UsageError` for a malformed reference.
    """
    for reference in need.references:
        parse_reference(reference)
    name = split_digest(need.references[0])[0]
    places = (place for one in need.references for place in (*mirrored(one, search.mirrors), one))
    need = replace(need, references=tuple(dict.fromkeys(places)))
    started = time.monotonic()
    engine: Future[docker.DockerClient | None] = begin(search.engine if not search.other_builder else lambda: None)
    local = _engine_base(need, _client(engine), unpublished=True) if need.kind is BaseKind.CUSTOM else None
    if isinstance(local, BaseImage):
        search.say(f"base: {local.reference}, which this engine has, and no registry")
        found = local
    else:
        registered, reasons = _first(need, search.access)
        _refuse_other_image(need, search.access, reasons)
        found = registered or _other_base(need, search, _client(engine), reasons)
        if registered:
            for reference, reason in reasons.items():
                search.say(f"base: {reference} is not used: {reason}")
            seconds = time.monotonic() - started
            search.say(f"base: {found.reference} is {_short(found)} (found in {seconds:.1f} s)")
    return found if found.reference == name else replace(found, reference=name, source=found.reference)


def _refuse_other_image(need: BaseNeed, access: Access, reasons: Reasons) -> None:
    """Raise `FindingsError` if a place has an image with another digest under the same tag."""
    for place, reason in reasons.items():
        named, digest = split_digest(place)
        is_tag = ":" in named.rpartition("/")[2]
        if digest is None or not is_tag or not isinstance(reason, AbsentError | MalformedError):
            continue
        try:
            has = _asked_here(need, access, named).result(timeout=access.limits.total + GRACE).digest
        except (RefusedError, TimeoutError):
            continue
        if has != digest:
            what = f"{named} is {has}, and the base is locked to {digest}"
            hint = "let the mirror have that image, leave the mirror out, or lock the base to another digest"
            raise FindingsError(what, where="base image", hint=hint)


def _other_base(need: BaseNeed, search: Search, client: docker.DockerClient | None, reasons: Reasons) -> BaseImage:
    """Return the base if no registry that this host reaches has it; `reasons` are the registries'."""
    reference = need.references[0]
    digest = split_digest(reference)[1]
    if search.other_builder and digest:
        # The digest is known, and that builder may reach the registry.
        search.say(f"base: {reference}: {reasons[reference]}; the builder may reach it")
        return BaseImage(split_digest(reference)[0], digest, None, unread=str(reasons[reference]))
    local = _engine_base(need, client, unpublished=False)
    if isinstance(local, BaseImage):
        search.say(f"base: {local.reference} ({_short(local)}) as the engine has it: no registry gives a newer one")
        for name, reason in reasons.items():
            search.say(f"base: {name}: {reason}")
        return local
    raise _not_found(need, {**reasons, **local})


def _asked_here(need: BaseNeed, access: Access, reference: str) -> Future[Answer]:
    return begin(partial(ask, reference, need.arch, need.arches, access))


def _first(need: BaseNeed, access: Access) -> tuple[BaseImage | None, Reasons]:
    """Ask for all references at once; return the first that exists, and why those before it were not found."""
    seconds = access.limits.total + GRACE
    end = time.monotonic() + seconds
    futures = {reference: _asked_here(need, access, reference) for reference in need.references}
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


def _engine_base(need: BaseNeed, client: docker.DockerClient | None, *, unpublished: bool) -> BaseImage | Reasons:
    """Return the first reference that the engine has, or {"the engine": why not}, which is empty if it has none.

    With `unpublished`, images from a registry are ignored.
    """
    others: Reasons = {}
    if client is None:
        return others
    for reference in need.references:
        future = begin(partial(_engine_image, client, reference, need.arches))
        try:
            answer = future.result(timeout=ENGINE_ANSWERS)
        except RefusedError as error:
            others["the engine"] = error
            continue
        except TimeoutError:
            return {"the engine": RefusedError(TIMED_OUT)}
        if answer is not None and not (unpublished and answer.digest):
            return _base(reference, answer, on_engine=True)
    return others


def _engine_image(client: docker.DockerClient, reference: str, arches: Sequence[Arch]) -> Answer | None:
    """Return an image that the engine has, or None; its digest is "" if it is from no registry.

    Raises `OtherArchError` for an image of another architecture.
    """
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        attributes: dict[str, Any] = client.images.get(reference).attrs
    except (docker.errors.DockerException, requests.RequestException):
        return None
    config = image_config(str(attributes.get("Architecture")), attributes.get("Config"))
    refuse_missing((config.architecture,), arches)
    mine = parse_reference(reference)
    digests = map(parse_reference, attributes.get("RepoDigests") or ())
    here = (one for one in digests if (one.registry, one.repository) == (mine.registry, mine.repository))
    return Answer(next((one.digest or "" for one in here), ""), config)


def _client(engine: Future[docker.DockerClient | None]) -> docker.DockerClient | None:
    try:
        return engine.result(timeout=ENGINE_ANSWERS)
    except TimeoutError:
        return None


def _base(reference: str, answer: Answer, *, on_engine: bool = False) -> BaseImage:
    name = split_digest(reference)[0]
    return BaseImage(name, answer.digest or None, answer.config, on_engine, answer.unread)


def _not_found(need: BaseNeed, reasons: Reasons) -> CanneryError:
    """Return `FindingsError` if the image exists only for other architectures, else `NetworkError`."""
    arches = " and ".join(need.arches)
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    others = [isinstance(reason, OtherArchError) for reason in reasons.values()]
    # A user's own image may be on the engine only.
    if all(others) or (need.kind is BaseKind.CUSTOM and any(others)):
        hint = "the stages run on this host's architecture, so the base must exist for it too"
        return FindingsError(f"the base image does not exist for {arches}{lines}", where="base image", hint=hint)
    hints = [
        "mirrors.registry in cannery.toml names a mirror of a registry, BASE=<reference> a copy of the image",
        "an image with that name on a running engine is used too: `docker pull` uses the engine's own proxy",
        "BASE=standin (with PYTHON=3.11) builds without any registry, as a preview: nothing in it runs on an NPU",
    ]
    if any(isinstance(reason, DeniedError) for reason in reasons.values()):
        hints.insert(0, "`docker login` there, and check the name")
    what = f"no registry gives the base image for {arches}{lines}"
    return NetworkError(what, where="base image", hint="\n  → ".join(hints))


def _short(found: BaseImage) -> str:
    return f"{found.digest[:19]}…" if found.digest else "without a digest"
