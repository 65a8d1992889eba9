"""The story of an image: bind → lock → check → plan → find the base → patch → render → build → verify.

A command runs as many of these steps as it needs. Each step takes the value of the step before and returns a new one.
Only this module and `cannery.commands` use the settings of the run (`Context`). A step imports the modules that only it
needs, so that `list` and `plan` load no network libraries.
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
    """How an incomplete lock is completed.

    `KNOWN`: with the hashes that are known here. `WANTED`: also with those of the indexes. `NEEDED`: the same, and a
    hash that is still missing is an error. `LOCKED`: a missing hash is an error, and no index is asked.
    """

    KNOWN = auto()
    WANTED = auto()
    NEEDED = auto()
    LOCKED = auto()


class Checked(NamedTuple):
    """The findings about a recipe, and the locks that were read for them."""

    findings: tuple[Finding, ...]
    locks: LockSet


class Planned(NamedTuple):
    """A plan, the catalog that it was made from, and every finding about it."""

    catalog: Catalog
    plan: Plan
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Work:
    """What building and verifying both need: the settings of the run, the catalog, the plan, and the image's place.

    `spans` are the steps that have ended, each with its duration.
    """

    context: Context
    catalog: Catalog
    plan: Plan
    place: ImagePlace
    spans: list[Span] = field(default_factory=list)


def lock_store(context: Context) -> LockStore:
    """Return the locks of this run."""
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
    """Return every finding about the pins and locks of `recipe`, and the locks that were read.

    With `wheels`, also check those of its wheels that are on this host, which takes about a second for 200 wheels.

    If the pins of a trial cannot work, or no component knows one of its releases, no lock is read or resolved: the
    findings are those of the compatibility table.
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
    """Print which lock an installed Cannery uses: the user's own, or the lock in the package."""
    path = lock_path(lock_store(context), lock_request(recipe))
    whose = "" if path.is_relative_to(context.locks) else f" of cannery {__version__}"
    context.say(f"lock: {context.shown(path)}{whose}")


def planned(
    context: Context, profile: str, options: Options, hashes: Hashes = Hashes.KNOWN, catalog: Catalog | None = None
) -> Planned:
    """Bind, check and plan. `catalog` is a catalog that was already read.

    Raises `FindingsError` for errors, unless they are forced. The plan has the codes of forced errors. If `hashes`
    needs hashes that are not known, raises `NetworkError` if an index was not reached, else `FindingsError`.
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
    """Return the summary of errors: the set cannot work, or the lock has to be made first."""
    is_lock = recipe.is_standard and {one.code for one in failed} == {LOCK}
    return "the lock has to be made first" if is_lock else "this set cannot be built"


def _completed(context: Context, catalog: Catalog, lock: Lock, hashes: Hashes) -> Lock:
    """Return `lock` with the hashes that it is missing, as far as `hashes` asks for them. Raises as `planned`."""
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
    """Return the inputs for patching the sources of `plan`."""
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
    """Return `plan` with its patched files. Raises as `cannery.patches.io.patching.with_patches`."""
    from cannery.patches.io.patching import with_patches

    return with_patches(plan, patch_inputs(context, catalog, plan))


def manifest_digest(context: Context, catalog: Catalog, plan: Plan) -> str:
    """Return the hex SHA-256 of the manifest in the image of `plan`, which also names the patches.

    It is "" if the lock is incomplete, since the manifest has every hash. Verify compares the manifest of an image with
    it, and a push requires that verify did. Raises as `patched`.
    """
    from cannery.plan.manifest import manifest_text
    from cannery.util.io.files import sha256_bytes

    if not plan.lock.complete:
        return ""
    return sha256_bytes(manifest_text(patched(context, catalog, plan), catalog.compatibility).encode())


def on_found_base(context: Context, plan: Plan, *, other_builder: bool) -> tuple[Plan, tuple[Finding, ...]]:
    """Return the plan with the digest of its base, and the differences between that base and the catalog's record.

    A plan on the stand-in base stays as it is. Raises `NetworkError` if no registry has the base, and `FindingsError`
    if no image can be built on it. --force does not change either.
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
    """Write the folder for `docker buildx bake`, with wheels and sources. Return a summary of the changed files."""
    from cannery.render.io.folder import write_folder
    from cannery.util.io.waiting import heartbeat

    fetch = partial(_fetched, context, catalog, plan)
    with heartbeat(context.say, lambda: "fetching wheels and sources"):
        return write_folder(plan, context.templates, catalog.compatibility, folder, fetch)


@contextmanager
def rendered_held(context: Context, folder: Path) -> Iterator[None]:
    """Lock a rendered folder for this run. A second run waits, and reports that."""
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
    """Run the verify script in the image of `request`, with the devices and mounts that this host has for the chip.

    `on_check` is called with each check when it ends, but not if the result was cached.
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
