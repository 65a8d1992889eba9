"""The place of a command's image: the engine of this host, or without one, the image store. Also: engine errors."""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.engine.io.find import NoEngineError, docker_client, find_engine, lost_connection
from cannery.errors import NetworkError, UnableError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.sandbox.io.able import why_not
from cannery.store.io.store import Store
from cannery.util.io.locks import shared
from cannery.util.io.namespace import AS_ROOT, can_be_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cannery.context import Context
    from cannery.host.io.place import ImagePlace
    from cannery.store.describe import Layer


def engine_place(context: Context) -> EnginePlace:
    """Return the engine of this host. Raises like `find_engine`."""
    engine = find_engine(context.env)
    return EnginePlace(engine, docker_client(engine), context.env)


def image_place(context: Context) -> ImagePlace:
    """Return the running engine, or else the image store.

    Raises `UnableError` if a named engine does not answer, or if this host cannot run images without an engine.
    """
    place = making_place(context)
    if isinstance(place, StorePlace) and place.why_not:
        raise UnableError(place.why_not)
    return place


def making_place(context: Context, output: str | None = None) -> ImagePlace:
    """Return a place like `image_place`, or the one of --output, even if this host cannot run images.

    Much of an image can be made without running it.
    """
    place, error = _chosen(context, output)
    if isinstance(place, EnginePlace) or not (why := why_not(context.cache)):
        return place
    words = "no Docker engine is running, and images cannot" if error else "images cannot"
    return replace(place, why_not=f"{words} run without one here: {why}")


def place_with(context: Context, name: str, *, runs: bool = False) -> ImagePlace:
    """Return the place that has an image: the engine, or the image store if the engine does not have it.

    If neither has it, the result is that of `kept_place`. `runs` is for a command that runs the image: then it is that
    of `image_place`.
    """
    place = (image_place if runs else kept_place)(context)
    if isinstance(place, StorePlace) or place.find(name) is not None or _store(context).find(name) is None:
        return place
    if runs and (why := why_not(context.cache)):
        raise UnableError(f"the image is in this host's image store, and it cannot run here: {why}", where=name)
    return store_place(context)


def kept_place(context: Context) -> ImagePlace:
    """Return the running engine, or else the image store, for a command that does not run images.

    Raises `UnableError` if a named engine does not answer.
    """
    return _chosen(context, None)[0]


def enter_namespace(context: Context, program: str, output: str | None) -> None:
    """Start this command again as root of a user namespace, if there is no engine and the user is not root.

    Returns if the user is root, has an engine, or cannot have a namespace. In that case, a step that needs root reports
    it.
    """
    if os.geteuid() == 0 or not can_be_root():
        return
    with suppress(UnableError):
        if isinstance(_chosen(context, output)[0], StorePlace):
            command, env = (*AS_ROOT, sys.executable, *sys.orig_argv[1:]), {**os.environ, "CANNERY_PROGRAM": program}
            os.execvpe(AS_ROOT[0], command, env)  # noqa: S606 - no shell is wanted


def _chosen(context: Context, output: str | None) -> tuple[ImagePlace, NoEngineError | None]:
    """Return a place, and the error if no engine was found."""
    if output not in {None, "docker"}:
        return store_place(context), None
    try:
        return engine_place(context), None
    except NoEngineError as error:
        if output == "docker":
            raise
        return store_place(context), error


def store_place(context: Context) -> StorePlace:
    """Return the image store of this host. While it is in use, `clean` of its images and layers waits."""
    store = _store(context)
    lock = shared(use_lock(context.cache))
    if lock is not None:
        weakref.finalize(store, os.close, lock)
    return StorePlace(store, context.env, str(context.arch), context.cache)


def _store(context: Context) -> Store:
    return Store(context.cache / "images", partial(_fetch, context))


def _fetch(context: Context, store: Store, layers: Sequence[Layer]) -> None:
    """Fetch layers of the image store that are still in a registry. Raises `NetworkError`."""
    from cannery.engine.io.transfer_view import transfer
    from cannery.ship.io.registry import access_of, refusals
    from cannery.store.io.transfer import Route, bring

    access = access_of(context.pip, context.env)
    failure: NetworkError | None = None
    hint = (
        "the same command goes on from here. `image` with --registry takes them from another registry that has them; "
        "after `clean images`, this host makes them itself"
    )
    for name in dict.fromkeys(origin for layer in layers for origin in layer.origins):
        some = [layer for layer in layers if name in layer.origins and not store.is_on_disk(layer.diff_id)]
        words = f"fetching layers of {name}"
        if not some:
            continue
        try:
            with (
                refusals(access, name.partition("/")[0], name, hint, "fetch: "),
                transfer(words, 0, sys.stderr, is_terminal=context.is_terminal) as view,
            ):
                bring(store, Route(f"{name}:latest", access, view, context.say), some)
        except NetworkError as error:
            failure = error
    if failure and not all(store.is_on_disk(layer.diff_id) for layer in layers):
        raise failure


def use_lock(cache: Path) -> Path:
    """Return the lock file of the runs that use the image store."""
    return cache / "images.use"


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn errors of the engine and the SDK into `UnableError`, in a block or as a decorator."""
    import docker.errors
    import requests

    from cannery.engine.io.client import EngineError

    try:
        yield
    except EngineError as error:
        raise UnableError(f"the engine: {error.message}") from error
    except docker.errors.APIError as error:
        raise UnableError(f"the engine: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise lost_connection(error) from error
