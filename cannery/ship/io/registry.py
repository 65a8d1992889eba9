"""Push and pull the image of a plan, and set its tags in a registry.

An engine moves the layers of its own images; this host moves those of its image store. This host reads and sets the
tags, with docker's credentials, and without TLS where docker's settings allow it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.engine.io.client import OCI_REFUSED, EngineError, pull, push, registry_error
from cannery.engine.io.registry import Access, Limits, Repository, insecure_registries, read_login
from cannery.engine.oci import AbsentError, DeniedError, RefusedError
from cannery.errors import FindingsError, NetworkError
from cannery.host.io.place import StorePlace
from cannery.ship.published import (
    arch_reference,
    ids_of,
    label_faults,
    merged_index,
    published_reference,
)
from cannery.store.io.transfer import Route, fetch
from cannery.store.io.transfer import push as push_stored
from cannery.util.addresses import parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from cannery.engine.io.transfer_view import TransferView
    from cannery.engine.oci import EngineImage, Published
    from cannery.host.io.place import EnginePlace, ImagePlace
    from cannery.plan import Plan
    from cannery.util.io.pip_settings import PipSettings

# The limits of a few requests in a row.
LIMITS = Limits(connect=3.0, read=8.0, total=20.0)
# Seconds before each retry of a request of this host.
REQUEST_WAITS = (0.3, 1.0)
UNREACHED = "check that REGISTRY is right and can be reached from this host (`https_proxy`)"


def access_of(pip: PipSettings, env: Mapping[str, str]) -> Access:
    """Return how this host reaches registries."""
    return Access(pip, partial(read_login, env=env), LIMITS, plain=insecure_registries(), waits=REQUEST_WAITS)


@dataclass(frozen=True)
class Dock:
    """The image of a plan in a registry, and the `place` on this host that it is pushed from or pulled to.

    `registry` is put before the plan's tag. `say` prints a line, `show` shows a transfer (words, bytes). `proof` is ""
    for a verified image. Otherwise the tag ends with it, and no moving tag is set.
    """

    place: ImagePlace
    plan: Plan
    registry: str
    access: Access
    say: Callable[[str], None]
    show: Callable[[str, int], AbstractContextManager[TransferView]]
    proof: str = ""

    @property
    def reference(self) -> str:
        """The plan's tag in the registry."""
        return published_reference(self.registry, self.plan.reference) + (f"-{self.proof}" if self.proof else "")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The moving tags in the registry; none for a trial, and for an image that is not fully verified."""
        if self.proof:
            return ()
        return tuple(published_reference(self.registry, alias) for alias in self.plan.references[1:])

    @property
    def arch(self) -> str:
        """The plan's architecture."""
        return str(self.plan.recipe.target.arch)

    @property
    def host(self) -> str:
        """The registry's host, which is the key of docker's login."""
        return parse_reference(self.reference, "REGISTRY").registry


def content_faults(dock: Dock, image: EngineImage) -> tuple[str, ...]:
    """Return how an image differs from its tag in labels and platform. Its content was checked by verify."""
    plan = dock.plan
    faults = list(label_faults(image.labels, plan.recipe.name, plan.tag, str(plan.recipe.target)))
    if image.arch != dock.arch:
        faults.append(f"it is for {image.platform}, and not for linux/{dock.arch}")
    return tuple(faults)


def published(dock: Dock, reference: str) -> Published | None:
    """Return the content of a tag in the registry, or None. Raises `NetworkError`."""
    with refusals(dock.access, dock.host, dock.host, UNREACHED), Repository(reference, dock.access) as repository:
        try:
            return repository.published(repository.reference.tag, arch=dock.arch)
        except AbsentError:
            return None


def _put(dock: Dock, reference: str, media_type: str, body: bytes) -> None:
    hint = OCI_REFUSED if media_type.startswith("application/vnd.oci.") else UNREACHED
    with (
        refusals(dock.access, dock.host, reference, hint, "the tag cannot be set: "),
        Repository(reference, dock.access) as repository,
    ):
        repository.put_manifest(repository.reference.tag, media_type, body)


@contextmanager
def refusals(access: Access, host: str, where: str, hint: str, before: str = "") -> Iterator[None]:
    """Raise `NetworkError` for a refusal of a registry: `before` is put before its message, `hint` after it."""
    try:
        yield
    except DeniedError as error:
        login = access.login(host)
        own = "it does not take the login that docker's settings have for it"
        if not login.password:
            own = "docker's settings have no password for it, only a token that Docker alone can use"
        what = f"{error}; {own}" if login.entry else f"{error}, and docker's settings have no login for it"
        what += f" ({login.fault})" if login.fault else ""
        way = f"`docker login {host}` with an account that may, then the same command again"
        raise NetworkError(what, where=host, hint=way) from error
    except RefusedError as error:
        raise NetworkError(f"{before}{error}", where=where, hint=hint) from error


def push_image(dock: Dock, image: EngineImage, current: Published | None) -> Published:
    """Push an image under the plan's tag, beside the other architectures in `current`; return what the tag has then.

    The tag of an index is set last, in one request.
    """
    if current is None or all(entry.arch == dock.arch for entry in current.entries):
        push_as(dock, image.id, dock.reference)
        return _confirmed(dock, image, dock.reference)
    alone = arch_reference(dock.reference, dock.arch)
    push_as(dock, image.id, alone)
    entry = _confirmed(dock, image, alone).needed(dock.arch)
    _put(dock, dock.reference, *merged_index(current, dock.arch, entry.descriptor))
    return _confirmed(dock, image, dock.reference)


def move_alias(dock: Dock, now: Published, alias: str) -> None:
    """Set a moving tag to what is under the plan's tag."""
    current = published(dock, alias)
    if current is None or current.digest != now.digest:
        _put(dock, alias, now.media_type, now.body)


def push_as(dock: Dock, image: str, reference: str) -> None:
    """Push the image with the id `image` under a tag of the registry. Raises `NetworkError` or `UnableError`."""
    if isinstance(dock.place, StorePlace):
        with _own_transfer(dock, "push", reference) as route:
            push_stored(dock.place.store, image, route)
        return
    dock.place.tag(image, reference)
    _transfer(dock, dock.place, "push", reference)


@contextmanager
def _own_transfer(dock: Dock, verb: str, reference: str) -> Iterator[Route]:
    """Yield the route of a push or pull of the image store, and show its progress. Raises `NetworkError`."""
    hint = "the same command goes on from here"
    with refusals(dock.access, dock.host, reference, hint, f"{verb}: "), dock.show(f"{verb}ing {reference}", 0) as view:
        yield Route(reference, dock.access, view, dock.say)


def _transfer(dock: Dock, place: EnginePlace, verb: str, reference: str) -> None:
    """Run a push or pull of an engine, which retries each layer by itself. Raises `NetworkError` or `UnableError`."""
    move = push if verb == "push" else pull
    with dock.show(f"{verb}ing {reference}", 0) as view:
        try:
            move(place.engine, place.env, reference, dock.arch, view)
        except EngineError as error:
            raise registry_error(error, verb, reference, dock.access.pip.redact) from error


def _confirmed(dock: Dock, image: EngineImage, reference: str) -> Published:
    """Return what the registry has now. Raises `NetworkError` if that is not what was pushed."""
    now = published(dock, reference)
    pushed = dock.place.find(image.id) or image  # knows its digest there by now
    if now is None or not now.has_image(dock.arch, ids_of(pushed.id, pushed.digests, reference)):
        hint = "another run may have pushed at the same time: run the same command again"
        raise NetworkError("the registry does not have what was pushed", where=reference, hint=hint)
    return now


def pull_image(dock: Dock) -> EngineImage | None:
    """Pull the prebuilt image of exactly this plan; None if the registry has no such tag for its architecture.

    Raises `NetworkError`, and `FindingsError` if the image's labels do not fit the tag.
    """
    current = published(dock, dock.reference)
    if current is None or current.entry(dock.arch) is None:
        return None
    image = pulled(dock, dock.reference)
    if faults := content_faults(dock, image):
        name = dock.plan.recipe.name
        hint = f"somebody pushed it by other means: build.py image {name}, then push {name} --force, repairs the tag"
        what = f"the image under this tag does not fit it: {'; '.join(faults)}"
        raise FindingsError(what, where=dock.reference, hint=hint)
    return image


def pulled(dock: Dock, reference: str, *, lazily: bool = False) -> EngineImage:
    """Pull an image by a tag of the registry. Raises `NetworkError` or `UnableError`.

    If `lazily`, the image store leaves its layers in the registry until they are read.
    """
    if isinstance(dock.place, StorePlace):
        with _own_transfer(dock, "pull", reference) as route:
            return fetch(dock.place.store, route, dock.arch, lazily=lazily)
    _transfer(dock, dock.place, "pull", reference)
    image = dock.place.find(reference)
    if image is None:
        raise NetworkError("the engine does not have what it pulled", where=reference, hint="run it again")
    return image


def absent(dock: Dock) -> NetworkError:
    """Return the error for a prebuilt image that does not exist, with the architectures that do."""
    current = published(dock, dock.reference)
    has = " and ".join(entry.arch for entry in current.entries) if current else ""
    what = f"it has this tag for {has}, not for {dock.arch}" if has else "it has no such tag"
    name = dock.plan.recipe.name
    more = " with the same options" if dock.plan.recipe.changes else ""
    hint = (
        f"build.py image {name}{more} builds it, and build.py push {name}{more} puts it there; "
        f"build.py index {name} --registry {dock.registry} shows what is there"
    )
    return NetworkError(what, where=dock.reference, hint=hint)
