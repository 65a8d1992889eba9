"""The story of an image: bind → lock → check → plan → find the base → patch → render → build → verify.

A command goes as far along this page as it needs. Each step takes the value of the step before and returns a new one;
the surroundings of the run (`Context`) come in here and in `cannery.commands`, and go no deeper. Steps import what
only they need, so that `list` and `plan` load no network libraries.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cannery import __version__
from cannery.compat.rules import check_recipe
from cannery.compat.subject import Subject, errors, in_order
from cannery.errors import FindingsError
from cannery.lock.io.store import LOCK, LockSet, LockStore, all_locks, bind, lock_path, read_locks
from cannery.lock.request import lock_request
from cannery.plan import Inputs
from cannery.plan.make import make_plan, plan_epoch
from cannery.util.io.files import sha256_bytes
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.build.stages import Span
    from cannery.catalog.catalog import Catalog
    from cannery.compat.subject import Finding
    from cannery.context import Context
    from cannery.errors import CanneryError
    from cannery.host.io.place import ImagePlace
    from cannery.lock.io.bound import NoFileError
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.resolve import Attempt, Job, UnsolvedError
    from cannery.lock.lock import Lock
    from cannery.patches.io.patching import PatchInputs
    from cannery.plan import Plan
    from cannery.plan.sources import LocalTree, SourceStep
    from cannery.recipe.recipe import Options, Recipe
    from cannery.verify.io.run import Verified, VerifyRequest
    from cannery.verify.lines import Check


class Hashes(Enum):
    """How far an incomplete lock is completed: by what is known here, by its indexes too, or as a must.

    `LOCKED` is a must without any index.
    """

    KNOWN = auto()
    WANTED = auto()
    NEEDED = auto()
    LOCKED = auto()


class Checked(NamedTuple):
    """What is known of a recipe before it is planned: every finding, and the locks that were read."""

    findings: tuple[Finding, ...]
    locks: LockSet


class Planned(NamedTuple):
    """A plan, the catalog that it was made from, and every finding about it."""

    catalog: Catalog
    plan: Plan
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Work:
    """One run's surroundings, catalog and plan, and where its image is: what building and verifying both need.

    `spans` is what was made so far, and how long it took.
    """

    context: Context
    catalog: Catalog
    plan: Plan
    place: ImagePlace
    spans: list[Span] = field(default_factory=list)


def lock_store(context: Context) -> LockStore:
    """Return where the locks of this run are, and how one that cannot be made is explained."""
    return LockStore(
        root=context.root,
        locks=context.locks,
        cache=context.cache,
        arch=context.arch,
        env=context.env,
        say=context.say,
        settings=lambda: context.pip,
        explain=_explained,
        own=context.own,
    )


def _explained(
    error: UnsolvedError | NoFileError, job: Job, catalog: Catalog, recipe: Recipe | None, attempt: Attempt
) -> CanneryError:
    from cannery.explain.io.explain import explained

    return explained(error, job, catalog, recipe, attempt)


def checked(context: Context, catalog: Catalog, recipe: Recipe, *, wheels: bool = False) -> Checked:
    """Return every finding about `recipe`, from its pins and from its locks, and the locks that were read.

    With `wheels`, also about those of its files that are on this host: a second for 200.

    An ad-hoc set whose pins cannot work is not resolved: no lock is then read. Nor is one with a release that no
    component knows: the table alone judges it.
    """
    if recipe.unknown or not (recipe.is_standard or recipe.force):
        found = check_recipe(recipe, catalog, build_arch=context.arch)
        if recipe.unknown or errors(found):
            return Checked(found, LockSet({}, None, ()))
    read = read_locks(lock_store(context), catalog, recipe)
    if context.work and recipe.is_standard:
        _print_lock(context, recipe)
    all_found = [*check_recipe(recipe, catalog, dict(read.locks), context.arch), *read.findings]
    if wheels:
        from cannery.compat.io.at_hand import wheel_findings, wheels_at_hand

        subject = Subject(recipe, catalog, dict(read.locks))
        at_hand = wheels_at_hand(subject.packages, context.cache, context.wheelhouse, recipe.target.python)
        all_found += wheel_findings(subject, at_hand)
    return Checked(in_order(all_found), read)


def _print_lock(context: Context, recipe: Recipe) -> None:
    """Print which lock an installed Cannery uses: the user's own, or the one that came with the package."""
    path = lock_path(lock_store(context), lock_request(recipe))
    whose = "" if path.is_relative_to(context.locks) else f" of cannery {__version__}"
    context.say(f"lock: {context.shown(path)}{whose}")


def planned(
    context: Context, profile: str, options: Options, hashes: Hashes = Hashes.KNOWN, catalog: Catalog | None = None
) -> Planned:
    """Bind, check and plan. Raises `FindingsError` on errors unless they are forced; those are stamped into the plan.

    `hashes` is how far an incomplete lock is completed. Where they are needed and not known, raises `NetworkError` if
    an index was not reached, else `FindingsError`. `catalog` is one that was read already.
    """
    catalog = catalog or context.catalog()
    store = lock_store(context)
    recipe = bind(store, catalog, profile, replace(options, local=tuple(context.local)))
    found, read = checked(context, catalog, recipe, wheels=hashes is not Hashes.KNOWN)
    failed = errors(found)
    if not failed:
        recipe.check_known()
    where = f"{recipe.name} for {recipe.target}"
    if read.tools is None or read.findings or (failed and not recipe.force):
        if len(failed) == len(read.findings) == 1:
            raise FindingsError(failed[0].what, where=where, hint=failed[0].fix)
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"{cannot_words(recipe, failed)}\n{listed}", where=where)
    locks = all_locks(store, catalog, recipe, read.locks)
    arch = recipe.target.arch
    inputs = Inputs(
        locks={**locks, arch: _completed(context, catalog, locks[arch], hashes)},
        tools=read.tools,
        templates=context.template_digests,
        build_arch=context.arch,
        standin=catalog.standin,
        table=catalog.compatibility,
        forced=tuple(sorted({f.code for f in failed})),
        socs=catalog.chips[recipe.target.chip].socs,
        local=_local_trees(context, catalog, recipe) if context.local else {},
        patch_sets=context.patch_sets,
    )
    return Planned(catalog, make_plan(recipe, inputs), found)


def _local_trees(context: Context, catalog: Catalog, recipe: Recipe) -> Mapping[str, LocalTree]:
    from cannery.sources.io.planned_sources import local_trees

    return local_trees(context.sources(catalog), recipe, plan_epoch(recipe))


def cannot_words(recipe: Recipe, failed: Sequence[Finding]) -> str:
    """Return what errors come to: a set that cannot work, or a profile whose lock has to be made first."""
    is_lock = recipe.is_standard and {one.code for one in failed} == {LOCK}
    return "the lock has to be made first" if is_lock else "this set cannot be built"


def _completed(context: Context, catalog: Catalog, lock: Lock, hashes: Hashes) -> Lock:
    """Return `lock` with hashes that it is missing.

    Where they are needed and not known, raises `NetworkError` if an index was not reached, else `FindingsError`.
    """
    if lock.complete:
        return lock
    from cannery.lock.io.store import incomplete_error, with_found_files, with_kept_files

    found = with_kept_files(lock, catalog, context.cache) if hashes is not Hashes.LOCKED else lock
    answers: tuple[Answer, ...] = ()
    if hashes in {Hashes.WANTED, Hashes.NEEDED}:
        found, answers = with_found_files(found, catalog, lambda: context.pip, context.cache, context.say)
    if not found.complete and hashes in {Hashes.NEEDED, Hashes.LOCKED}:
        raise incomplete_error(found, catalog, answers, locked=hashes is Hashes.LOCKED)
    return found


def patch_inputs(context: Context, catalog: Catalog, plan: Plan) -> PatchInputs:
    """Return what patching `plan` needs of this run."""
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.patches.io.patching import PatchInputs
    from cannery.sources.io.planned_sources import fetch_some

    def fetch(steps: Sequence[SourceStep]) -> dict[str, Path]:
        files = fetch_some(context.sources(catalog), plan, [step for step in steps if not step.release])
        locked = {package.file: package for package in plan.lock.packages}
        releases = {step.name: locked[step.file] for step in steps if step.release}
        wheels = fetch_wheels(context.downloads, catalog.indexes, list(releases.values()))
        return {
            **{name: file.tar for name, file in files.items()},
            **{name: wheels[package.name] for name, package in releases.items()},
        }

    return PatchInputs(
        fetch=fetch,
        local=context.local,
        sets=context.patch_sets,
        own_sets=context.patches,
        templates=context.root / "templates",
        env=context.env,
        say=context.say,
    )


def patched(context: Context, catalog: Catalog, plan: Plan) -> Plan:
    """Return `plan` with what its patches make of the sources. Raises as `cannery.patches.io.patching.with_patches`."""
    from cannery.patches.io.patching import with_patches

    return with_patches(plan, patch_inputs(context, catalog, plan))


def manifest_digest(context: Context, catalog: Catalog, plan: Plan) -> str:
    """Return the hex SHA-256 of the manifest that the image of `plan` carries, its patches among the rest.

    "" where the lock is incomplete: the manifest names every hash. Verify holds an image to it, and a push knows by it
    that verify did. Raises as `patched`.
    """
    from cannery.plan.manifest import manifest_text
    from cannery.util.io.files import sha256_bytes

    if not plan.lock.complete:
        return ""
    return sha256_bytes(manifest_text(patched(context, catalog, plan), catalog.compatibility).encode())


def on_found_base(context: Context, plan: Plan, *, other_builder: bool) -> tuple[Plan, tuple[Finding, ...]]:
    """Return the plan on the base that was found, named by its digest, and how that differs from its record.

    The stand-in is made, not found. Raises `NetworkError` where no registry gives a base, `FindingsError` for one that
    cannot be built upon; --force is no help with either.
    """
    if plan.recipe.base.kind is BaseKind.STANDIN:
        return plan, ()
    from cannery.base.io.find import find_base, search_of
    from cannery.base.real import compare
    from cannery.plan.make import base_need, on_base

    mirrors = context.settings.mirrors("registry")
    search = search_of(context.downloads, context.env, mirrors, other_builder=other_builder)
    base = find_base(base_need(plan, own_builder=other_builder), search)
    found = compare(plan.recipe, base)
    if failed := errors(found):
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"no image can be built on this base\n{listed}", where=base.reference)
    return on_base(plan, base.reference, base.digest, base.source), found


def rendered(context: Context, catalog: Catalog, plan: Plan, folder: Path) -> str:
    """Write the folder that `docker buildx bake` builds, with wheels and sources; return a summary of what changed."""
    from cannery.render.io.folder import write_folder
    from cannery.util.io.waiting import heartbeat

    fetch = partial(_fetched, context, catalog, plan)
    with heartbeat(context.say, lambda: "fetching wheels and sources"):
        return write_folder(plan, context.templates, catalog.compatibility, folder, fetch)


@contextmanager
def rendered_held(context: Context, folder: Path) -> Iterator[None]:
    """Hold a rendered folder for one run; another run waits, and reports that it does."""
    from cannery.util.io.locks import held

    name = sha256_bytes(os.fsencode(folder.resolve()))[:16]
    waiting = f"another run works in {folder.name}: waiting for it"
    with held(context.cache / "locked" / f"{name}.lock", lambda: context.say(waiting)):
        yield


def _fetched(context: Context, catalog: Catalog, plan: Plan) -> dict[str, Path]:
    """Fetch wheels and trees; return {path in the rendered folder: file}."""
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.render.render import tool_paths, wheel_paths
    from cannery.sources.io.planned_sources import fetch_planned

    files = fetch_wheels(context.downloads, catalog.indexes, [p for p in plan.lock.packages if p.complete])
    tools = fetch_wheels(context.downloads, catalog.indexes, plan.tools.packages, "build tools")
    return {
        **{path: tools[package.name] for path, package in tool_paths(plan).items()},
        **{path: files[package.name] for path, package in wheel_paths(plan).items()},
        **fetch_planned(context.sources(catalog), plan),
    }


def verified(work: Work, request: VerifyRequest, on_check: Callable[[Check], None]) -> Verified:
    """Run the verify script in the image of `request`, with what this host has for the plan's chip.

    `on_check` gets each check as it ends; none of a result that was remembered.
    """
    from cannery.engine.io.containers import remove_orphans
    from cannery.host.facts import wanted_paths
    from cannery.host.io.look import read_host
    from cannery.host.io.place import EnginePlace
    from cannery.verify.io.run import SCRIPT, Runner, verify

    context = work.context
    access = work.catalog.chips[work.plan.recipe.target.chip]
    if isinstance(work.place, EnginePlace):
        remove_orphans(work.place.client)
    host = read_host(wanted_paths(access), Path("/"))
    program = context.root / "templates/rootfs" / SCRIPT[1:]
    runner = Runner(work.place, access, host, context.cache, context.say, program.parent)
    return verify(request, runner, on_check)
