"""Push and pull an image of ours, and set its tags: what `push`, `pull` and `image --reuse` share."""

from __future__ import annotations

import io
import sys
import tarfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.build.io.transfer_view import transfer
from cannery.engine.io.client import StreamError, told
from cannery.engine.io.containers import labels, remove_orphans
from cannery.engine.io.engine_stream import pull, push
from cannery.engine.io.inspect import (
    PUSH_PLATFORM,
    EngineImage,
    engine_info,
    find_image,
    plain_registries,
    platform_parameter,
)
from cannery.engine.stream import Trouble
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.ship.io.registry import Place, again, place_of, published, put, tags
from cannery.ship.published import (
    arch_reference,
    ids_of,
    label_faults,
    merged_index,
    near_words,
    published_reference,
    version_fault,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import docker

    from cannery.context import Context
    from cannery.engine.io.engine_stream import StreamView
    from cannery.engine.oci import Published
    from cannery.engine.stream import StreamState
    from cannery.plan.plan import Plan


@dataclass(frozen=True)
class Dock:
    """One plan's place in a registry: `reference` is the plan's tag there, `info` what the engine says of itself."""

    context: Context
    client: docker.DockerClient
    plan: Plan
    info: Mapping[str, Any]
    place: Place
    registry: str

    @property
    def reference(self) -> str:
        """The plan's tag in the registry."""
        return published_reference(self.registry, self.plan.reference)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The moving tags there; none for a trial."""
        return tuple(published_reference(self.registry, alias) for alias in self.plan.references[1:])

    @property
    def arch(self) -> str:
        """The plan's architecture."""
        return str(self.plan.recipe.target.arch)


def dock_of(context: Context, client: docker.DockerClient, plan: Plan, registry: str, *, is_push: bool = False) -> Dock:
    """Return where `plan` stands in `registry`."""
    info = engine_info(client)
    reference = published_reference(registry, plan.reference)
    actions = "pull,push" if is_push else ""
    place = place_of(context, client, reference, plain_registries(info), actions)
    return Dock(context, client, plan, info, place, registry)


def local_image(client: docker.DockerClient, plan: Plan) -> EngineImage:
    """Return the image of `plan` on the engine; raise `UsageError` saying how to come to it."""
    found = find_image(client, plan.reference)
    if found is None:
        hint = f"build.py image {plan.recipe.name}, with the same options"
        raise UsageError(f"no image {plan.reference} on this engine", hint=hint)
    return found


def content_faults(dock: Dock, image: EngineImage) -> tuple[str, ...]:
    """Return in which ways an image is not what its tag says: labels, platform, CANN's version files."""
    plan = dock.plan
    faults = list(label_faults(image.labels, plan.recipe.name, plan.tag, str(plan.recipe.target)))
    if image.arch != dock.arch:
        faults.append(f"it is for {image.platform}, and not for linux/{dock.arch}")
    files = [file for file in plan.recipe.base.line.version_files if file.name == "toolkit"]
    remove_orphans(dock.client)
    for path in (file.at(plan.recipe.target.arch) for file in files):
        fault = version_fault(path, _text_in(dock.client, image, path), plan.recipe.target.cann)
        faults += [fault] if fault else []
    return tuple(faults)


def _text_in(client: docker.DockerClient, image: EngineImage, path: str) -> str | None:
    """Return a small file's text in an image, None where it is not there. A container is made, and never started.

    It names the platform: of an index, containerd's store would look for its own, which may not be there.
    """
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used

    made = client.api.create_container(image.id, command=["true"], platform=image.platform, labels=labels())
    container = made["Id"]
    try:
        blocks, about = client.api.get_archive(container, path)
        if about.get("linkTarget"):
            blocks, _ = client.api.get_archive(container, about["linkTarget"])
        with tarfile.open(fileobj=io.BytesIO(b"".join(blocks))) as tar:
            content = tar.extractfile(tar.getmembers()[0])
            return content.read().decode("utf-8", "replace") if content else None
    except (docker.errors.NotFound, KeyError):
        return None
    finally:
        client.api.remove_container(container, force=True)


def push_image(dock: Dock, image: EngineImage, there: Published | None) -> Published:
    """Push an image under the plan's tag, beside the other architectures that are `there`; return what is there then.

    The tag of an index is set when its images are in place, in one request.
    """
    others = [entry for entry in there.entries if entry.arch != dock.arch] if there else []
    if not others:
        _engine_push(dock, image, dock.reference)
        return _confirmed(dock, image, dock.reference)
    if there is None or not there.body:
        names = " and ".join(entry.arch for entry in others)
        hint = "let this host reach it (proxy, certificate), or push from a host that does"
        what = f"the tag is there for {names}, and only a host that reaches the registry itself can join the two"
        raise NetworkError(what, where=dock.reference, hint=hint)
    alone = arch_reference(dock.reference, dock.arch)
    _engine_push(dock, image, alone)
    entry = _confirmed(dock, image, alone).entry(dock.arch)
    put(dock.place, dock.reference, *merged_index(there, dock.arch, entry.descriptor if entry else {}))
    return _confirmed(dock, image, dock.reference)


def move_alias(dock: Dock, image: EngineImage, now: Published, alias: str) -> None:
    """Let a moving tag follow to what stands under the plan's tag."""
    there = published(dock.place, alias)
    if there is not None and there.digest == now.digest:
        return
    if now.body:
        put(dock.place, alias, now.media_type, now.body)
    else:  # only the engine reaches the registry
        _engine_push(dock, image, alias)


class _Furthest:
    """A view that also remembers how many layers were ever done."""

    def __init__(self, shown: StreamView) -> None:
        self._shown = shown
        self.done = 0

    def state(self, state: StreamState) -> None:
        self._shown.state(state)
        self.done = max(self.done, state.counts[0])

    def moved(self, count: int) -> None:
        self._shown.moved(count)


def _engine_push(dock: Dock, image: EngineImage, reference: str) -> None:
    repository, _, tag = reference.rpartition(":")
    dock.client.api.tag(image.id, repository, tag)
    platform = platform_parameter(dock.client, dock.info, dock.arch, PUSH_PLATFORM)
    context = dock.context
    with transfer(f"pushing {reference}", 0, sys.stderr, is_terminal=context.is_terminal) as shown:
        view = _Furthest(shown)
        job = partial(push, dock.client, reference, dock.place.auth(), view, platform)
        try:
            again(job, "push", dock.place, done=lambda: view.done)
        except StreamError as error:
            raise told(error, "push", reference, context.pip.redact) from error


def _confirmed(dock: Dock, image: EngineImage, reference: str) -> Published:
    """Return what the registry has now; raise `NetworkError` where that is not what was pushed."""
    now = published(dock.place, reference)
    pushed = find_image(dock.client, image.id) or image  # knows its digest there by now
    if now is None or not now.has_image(dock.arch, ids_of(pushed.id, pushed.digests, reference)):
        hint = "another run may have pushed at the same time: run the same command again"
        raise NetworkError("the registry does not have what was pushed", where=reference, hint=hint)
    return now


def pull_image(dock: Dock) -> EngineImage | None:
    """Pull the prebuilt image of exactly this plan and give it its local tags; None where the registry has it not.

    Raises `NetworkError`, and `FindingsError` where the tag holds another image than it says.
    """
    there = published(dock.place, dock.reference)
    if there is None or there.entry(dock.arch) is None:
        return None
    context, platform = dock.context, f"linux/{dock.arch}"
    with transfer(f"pulling {dock.reference}", 0, sys.stderr, is_terminal=context.is_terminal) as shown:
        view = _Furthest(shown)
        job = partial(pull, dock.client, dock.reference, platform, dock.place.auth(), view)
        try:
            again(job, "pull", dock.place, done=lambda: view.done)
        except StreamError as error:
            if error.trouble is Trouble.ABSENT:
                return None
            raise told(error, "pull", dock.reference, context.pip.redact) from error
    image = find_image(dock.client, dock.reference)
    if image is None:
        raise NetworkError("the engine has not what it pulled", where=dock.reference, hint="run it again")
    tag, target = dock.plan.tag, str(dock.plan.recipe.target)
    faults = label_faults(image.labels, dock.plan.recipe.name, tag, target)
    if faults or image.arch != dock.arch:
        words = "; ".join(faults) or f"it is for {image.platform}"
        name = dock.plan.recipe.name
        hint = f"somebody put it there by other means: build.py image {name}, then push {name} --force, mends the tag"
        raise FindingsError(f"the tag holds another image than it says: {words}", where=dock.reference, hint=hint)
    return image


def tag_locally(dock: Dock, image: EngineImage, references: tuple[str, ...]) -> None:
    """Give an image its local tags."""
    for reference in references:
        repository, _, tag = reference.rpartition(":")
        dock.client.api.tag(image.id, repository, tag)


def absent(dock: Dock) -> NetworkError:
    """Return the error for a prebuilt image that is not there: which tag was looked for, and what is near."""
    there = published(dock.place, dock.reference)
    has = " and ".join(entry.arch for entry in there.entries) if there else ""
    near = near_words(dock.plan.tag, tags(dock.place, dock.reference))
    what = f"it has this tag for {has}, not for {dock.arch}" if has else f"it has no such tag; {near}"
    name = dock.plan.recipe.name
    more = " with the same options" if dock.plan.recipe.changes else ""
    hint = f"build.py image {name}{more} builds it, and build.py push {name}{more} puts it there"
    return NetworkError(what, where=dock.reference, hint=hint)
