"""`push` and `pull`: images of a profile in a registry."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.assemble.trial import TRIAL_LABEL
from cannery.commands import options_of, print_result, row_lines
from cannery.commands.place import engine_errors, kept_place, place_with
from cannery.engine.io.registry import insecure_registries
from cannery.engine.io.transfer_view import transfer
from cannery.errors import ExitCode, FindingsError
from cannery.host.io.place import EnginePlace
from cannery.making.sharing import share_parts
from cannery.pipeline import Work, manifest_digest, planned
from cannery.plan.make import on_labelled_base
from cannery.ship.io.referrers import attach, attest, find_signer, sign
from cannery.ship.io.registry import (
    Dock,
    absent,
    access_of,
    content_faults,
    move_alias,
    published,
    pull_image,
    push_image,
)
from cannery.ship.published import UNVERIFIED, ids_of, parse_registry, push_fault
from cannery.util.addresses import split_tag
from cannery.verify.io.run import FILES, PARTIAL, has_passed

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.engine.oci import EngineImage, Published
    from cannery.host.io.place import ImagePlace
    from cannery.plan import Plan
    from cannery.ship.io.referrers import Signer


def dock_of(context: Context, place: ImagePlace, plan: Plan, registry: str, *, is_push: bool = False) -> Dock:
    """Return the image of `plan` in `registry`, with the access settings of this host and its engine."""
    plain = place.engine.plain if isinstance(place, EnginePlace) else insecure_registries()
    access = replace(access_of(context.pip, context.env), plain=plain, actions="pull,push" if is_push else "")
    show = partial(transfer, stream=sys.stderr, is_terminal=context.is_terminal)
    return Dock(place, plan, registry, access, context.say, show)


@dataclass(frozen=True)
class Push:
    """The options of a push: replace another image, attach documents, sign.

    `proof` is the lesser proof that the image may have. Its tag then ends with that word.
    """

    is_forced: bool
    attach: bool
    signer: Signer | None
    proof: str

    @classmethod
    def of(cls, arguments: argparse.Namespace, context: Context) -> Push:
        """Read the command line, before anything is built or pushed. Raises like `find_signer`."""
        signer = find_signer(arguments.sign, context.env) if arguments.sign is not None else None
        return cls(arguments.force, arguments.attach, signer, arguments.proof)


@engine_errors()
def push(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Push the image of a profile under its tag, then update the moving tag. Raises like `push_made`."""
    registry, how = parse_registry(arguments.registry), Push.of(arguments, context)
    catalog, plan = _planned(context, arguments)
    push_made(Work(context, catalog, plan, place_with(context, plan.reference)), registry, how)
    return ExitCode.DONE


def push_made(work: Work, registry: str, how: Push) -> None:
    """Push the image of a plan, and print the image in the registry.

    Raises `FindingsError` if verify has not passed (unless its lesser proof is allowed), if the image is not what its
    tag describes, or if the registry has another image with that tag (unless it is forced).
    """
    context, plan = work.context, work.plan
    image = work.place.needed(plan.reference, plan.recipe.name)
    dock = dock_of(context, work.place, plan, registry, is_push=True)
    dock = replace(dock, proof=_proof(context, dock, work.catalog, image, how.proof))
    current = published(dock, dock.reference)
    ids = ids_of(image.id, image.digests, dock.reference)
    fault = push_fault(current, dock.arch, ids)
    if fault and not how.is_forced:
        hint = "a pushed tag never changes: others may have pulled it. --force replaces it"
        if TRIAL_LABEL in image.labels:
            hint += ". This one is a trial, one layer on the locked image: made as a whole, it is another image"
        raise FindingsError(fault, where=dock.reference, hint=hint)
    if fault:
        context.say(f"{dock.reference}: {fault}: replaced, since --force is given")
    if current is not None and current.has_image(dock.arch, ids):
        dock.say(f"{dock.reference} exists, and is this image: nothing to push")
        now = current
    else:
        now = push_image(dock, image, current)
    for alias in dock.aliases:
        move_alias(dock, now, alias)
    if how.attach or how.signer:
        _attach_and_sign(work, dock, now, image, how)
    if not dock.proof:
        share_parts(replace(work, plan=on_labelled_base(plan, dict(image.labels))), dock)
    _print(context, dock, now, image)


def _attach_and_sign(work: Work, dock: Dock, now: Published, image: EngineImage, how: Push) -> None:
    """Attach the bill of materials and the provenance to an image in the registry, and sign all of them."""
    from cannery.commands.report import documents_of

    entry = now.needed(dock.arch)
    name, documents = split_tag(dock.reference)[0], []
    if how.attach:
        plan = on_labelled_base(work.plan, dict(image.labels))
        version = str(image.labels.get("org.cannery.version", ""))
        documents = documents_of(work.context, work.catalog, plan, (dock.reference, entry.manifest, version))
        attach(dock.reference, dock.access, entry.descriptor, documents)
        work.context.say(f"attached to {name}@{entry.manifest}: {', '.join(one.word for one in documents)}")
    if how.signer:
        sign(how.signer, [f"{name}@{digest}" for digest in dict.fromkeys((now.digest, entry.manifest))])
        attest(how.signer, f"{name}@{entry.manifest}", documents)


def _planned(context: Context, arguments: argparse.Namespace) -> tuple[Catalog, Plan]:
    """Return the plan. With --force, a set without errors keeps its normal tag; a set with errors gets -forced."""
    options = options_of(arguments)
    if options.force:
        with suppress(FindingsError):
            return planned(context, arguments.profile, replace(options, force=False))[:2]
    return planned(context, arguments.profile, options)[:2]


def _proof(context: Context, dock: Dock, catalog: Catalog, image: EngineImage, allowed: str) -> str:
    """Return "" for an image that has passed verify, or else its lesser proof, if that is `allowed`.

    Raises `FindingsError` if it is not allowed, or if the image is not what its tag describes.
    """
    plan = dock.plan
    faults = content_faults(dock, image)
    if faults:
        listed = "".join(f"\n  {fault}" for fault in faults)
        hint = f"build.py image {plan.recipe.name} makes the image of this tag"
        raise FindingsError(f"this image is not what its tag describes{listed}", where=plan.reference, hint=hint)
    digest = manifest_digest(context, catalog, on_labelled_base(plan, dict(image.labels)))
    if has_passed(context.cache, image.id, digest):
        return ""
    found = PARTIAL if has_passed(context.cache, image.id, digest, FILES) else UNVERIFIED
    if found != allowed:
        hint = f"build.py verify {plan.recipe.name}, with the same options; --{found} pushes it under a separate tag"
        what = "verify has passed in part" if found == PARTIAL else "verify has not passed"
        raise FindingsError(f"{what} for this image ({image.id[:19]}…)", where=plan.reference, hint=hint)
    return found


@engine_errors()
def pull(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Pull the prebuilt image of this plan, and give it the same tags as `image` does."""
    registry = parse_registry(arguments.registry)
    _, plan, _ = planned(context, arguments.profile, options_of(arguments))
    dock = replace(dock_of(context, kept_place(context), plan, registry), proof=arguments.proof)
    image = pull_image(dock)
    if image is None:
        raise absent(dock)
    for reference in plan.references[:1] if dock.proof else plan.references:
        dock.place.tag(image.id, reference)
    _print(context, dock, published(dock, dock.reference), image)
    return ExitCode.DONE


def _print(context: Context, dock: Dock, now: Published | None, image: EngineImage) -> None:
    digest = now.digest if now else ""
    value = {
        "reference": dock.reference,
        "digest": digest,
        "id": image.id,
        "platform": image.platform,
        "aliases": dock.aliases,
        "local": dock.plan.reference,
    }
    rows = {
        "image": dock.reference,
        "digest": digest,
        "id": image.id,
        "platform": image.platform,
        "also tagged": ", ".join(dock.aliases),
        "here": dock.plan.reference,
    }
    print_result(context, value, row_lines(rows.items()))


COMMANDS = {"push": push, "pull": pull}
