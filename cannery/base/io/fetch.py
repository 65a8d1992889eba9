"""Bring the base of an image from its registry into the image store of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.engine.oci import DeniedError, RefusedError
from cannery.errors import NetworkError
from cannery.store.io.transfer import fetch

if TYPE_CHECKING:
    from cannery.engine.image import EngineImage
    from cannery.store.io.store import Store
    from cannery.store.io.transfer import Route


def fetch_base(store: Store, reference: str, arch: str, route: Route) -> EngineImage:
    """Return the base `reference` in the store, fetched where it is not there; `route` is where this machine gets it.

    What an earlier run has fetched is used; the size of the rest is printed before. Raises `NetworkError`, and
    `UnableError` where there is no room.
    """
    found = store.find(reference)
    if found is not None and found.arch == arch:
        return found
    try:
        fetched = fetch(store, route, arch)
    except RefusedError as error:
        is_denied = isinstance(error, DeniedError)
        hint = "`docker login` there with an account that may" if is_denied else "the same command goes on from here"
        raise NetworkError(f"the base image: {error}", where=route.reference, hint=hint) from error
    store.tag(fetched.id, reference)
    return fetched
