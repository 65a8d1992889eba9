"""The story of an image: bind → lock → check → plan → find the base → patch → render → build → verify.

A command goes as far along this page as it needs. Each step takes the value of the step before and returns a new one;
the surroundings of the run (`Context`) come in here and in `cannery.commands`, and go no deeper. Steps import what
only they need, so that `list` and `plan` load no network libraries.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cannery import __version__
from cannery.compat.findings import errors, in_order
from cannery.compat.rules import check_recipe
from cannery.context import template_digests
from cannery.errors import BuildFailedError, FindingsError
from cannery.lock.io.store import LOCK, LockSet, LockStore, all_locks, bind, lock_path, read_locks
from cannery.lock.request import lock_request
from cannery.plan.make import make_plan, plan_epoch
from cannery.plan.manifest import labels
from cannery.plan.plan import Inputs
from cannery.recipe.environment import start_folder
from cannery.recipe.recipe import with_arch
from cannery.sources.io.planned_sources import local_trees
from cannery.util.io.files import sha256_bytes
from cannery.util.io.heartbeat import heartbeat
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import docker

    from cannery.assemble.trial import Trial
    from cannery.base.real import BaseImage
    from cannery.build.io.buildx import BakeResult
    from cannery.catalog.catalog import Catalog
    from cannery.compat.findings import Finding
    from cannery.context import Context
    from cannery.engine.io.find import Engine
    from cannery.errors import CanneryError
    from cannery.lock.io.bound import NoFileError
    from cannery.lock.io.resolve import Attempt
    from cannery.lock.io.uv import Job, UnsolvedError
    from cannery.lock.lock import Lock
    from cannery.patches.io.patching import PatchInputs
    from cannery.plan.plan import Plan
    from cannery.plan.source_step import SourceStep
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
    """One run's surroundings, catalog, plan and engine: what building and verifying both need."""

    context: Context
    catalog: Catalog
    plan: Plan
    engine: Engine
    client: docker.DockerClient


@dataclass(frozen=True)
class BuildOptions:
    """How an image is built: by a buildx builder other than the engine's own ("": the engine's), without its cache."""

    builder: str = ""
    no_cache: bool = False


@dataclass(frozen=True)
class Built:
    """A built image: id, bytes, layers (in all, names of the new ones), steps (cached, in all), seconds, build log.

    One that was pulled in place of a build has no step and no log, and `pulled` is where it came from.
    """

    id: str
    size: int
    layers: int
    new: tuple[str, ...]
    cached: int
    total: int
    seconds: float
    log: Path | None
    pulled: str = ""


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
    from cannery.explain.io.explain import Known, explained

    return explained(error, job, Known(catalog, recipe), attempt)


def checked(context: Context, catalog: Catalog, recipe: Recipe) -> Checked:
    """Return every finding about `recipe`, from its pins and from its locks, and the locks that were read.

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
    found = check_recipe(recipe, catalog, dict(read.locks), context.arch)
    return Checked(in_order([*found, *read.findings]), read)


def _print_lock(context: Context, recipe: Recipe) -> None:
    """Print which lock an installed Cannery uses: the user's own, or the one that came with the package."""
    path = lock_path(lock_store(context), lock_request(recipe))
    whose = "" if path.is_relative_to(context.locks) else f" of cannery {__version__}"
    context.say(f"lock: {context.shown(path)}{whose}")


def planned(
    context: Context, profile: str, options: Options, hashes: Hashes = Hashes.KNOWN, catalog: Catalog | None = None
) -> Planned:
    """Bind, check and plan. Raises `FindingsError` on errors unless they are forced; those are stamped into the plan.

    `hashes` is how far an incomplete lock is completed; raises `FindingsError` where they are needed and not known.
    `catalog` is one that was read already.
    """
    catalog = catalog or context.catalog()
    store = lock_store(context)
    recipe = bind(store, catalog, profile, replace(options, local=tuple(context.local)))
    found, read = checked(context, catalog, recipe)
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
        templates=template_digests(context.templates()),
        build_arch=context.arch,
        standin=catalog.standin,
        forced=tuple(sorted({f.code for f in failed})),
        socs=catalog.chips[recipe.target.chip].socs,
        local=local_trees(context.sources(catalog), recipe, plan_epoch(recipe)),
        patch_sets=context.patch_sets,
    )
    return Planned(catalog, make_plan(recipe, inputs), found)


def cannot_words(recipe: Recipe, failed: Sequence[Finding]) -> str:
    """Return what errors come to: a set that cannot work, or a profile whose lock has to be made first."""
    is_lock = recipe.is_standard and {one.code for one in failed} == {LOCK}
    return "the lock has to be made first" if is_lock else "this set cannot be built"


def _completed(context: Context, catalog: Catalog, lock: Lock, hashes: Hashes) -> Lock:
    """Return `lock` with hashes that it is missing. Raises `FindingsError` where they are needed and not known."""
    from cannery.lock.io.complete import incomplete_error, with_found_files, with_kept_files

    found = with_kept_files(lock, catalog, context.cache) if hashes is not Hashes.LOCKED else lock
    if hashes in {Hashes.WANTED, Hashes.NEEDED}:
        found = with_found_files(found, catalog, lambda: context.pip, context.cache, context.say)
    if not found.complete and hashes in {Hashes.NEEDED, Hashes.LOCKED}:
        raise incomplete_error(found, catalog, locked=hashes is Hashes.LOCKED)
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


def on_found_base(
    context: Context, plan: Plan, *, other_builder: bool
) -> tuple[Plan, BaseImage | None, tuple[Finding, ...]]:
    """Return the plan on the base that was found, named by its digest; that base; and how it differs from its record.

    The stand-in is made, not found. Raises `NetworkError` where no registry gives a base, `FindingsError` for one that
    cannot be built upon; --force is no help with either.
    """
    if plan.recipe.base.kind is BaseKind.STANDIN:
        return plan, None, ()
    from cannery.base.io.find import find_base, search_of
    from cannery.base.real import compare
    from cannery.plan.on_base import base_need, on_base

    mirrors = context.settings.mirrors("registry")
    search = search_of(context.downloads, context.env, mirrors, other_builder=other_builder)
    base = find_base(base_need(plan, own_builder=other_builder), search)
    found = compare(plan.recipe, base)
    if failed := errors(found):
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"this base cannot be built upon\n{listed}", where=base.reference)
    return on_base(plan, base.reference, base.digest, base.source), base, found


def rendered(context: Context, catalog: Catalog, plan: Plan, folder: Path) -> str:
    """Write the folder that `docker buildx bake` builds, with wheels and sources; return a summary of what changed."""
    from cannery.render.io.folder import write_folder

    fetch = partial(_fetched, context, catalog, plan)
    with heartbeat(context.say, lambda: "fetching wheels and sources"):
        return write_folder(plan, context.templates(), catalog.compatibility, folder, fetch)


@contextmanager
def rendered_held(context: Context, folder: Path) -> Iterator[None]:
    """Hold a rendered folder for one run; another run waits, and reports that it does."""
    from cannery.util.io.locks import held

    name = sha256_bytes(os.fsencode(folder.resolve()))[:16]
    waiting = f"another run works in {folder.name}: waiting for it"
    with held(context.cache / "locked" / f"{name}.lock", lambda: context.say(waiting)):
        yield


def _fetched(context: Context, catalog: Catalog, plan: Plan) -> dict[str, Path]:
    """Fetch wheels, archives and trees; return {path in the rendered folder: file}."""
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.render.render import tool_paths, wheel_paths
    from cannery.sources.io.archives import fetch_archives
    from cannery.sources.io.planned_sources import fetch_planned, links

    files = fetch_wheels(context.downloads, catalog.indexes, [p for p in plan.lock.packages if p.complete])
    tools = fetch_wheels(context.downloads, catalog.indexes, plan.tools.packages, "build tools")
    return {
        **{path: tools[package.name] for path, package in tool_paths(plan).items()},
        **{path: files[package.name] for path, package in wheel_paths(plan).items()},
        **fetch_archives(context.downloads, catalog.hosts, plan),
        **links(fetch_planned(context.sources(catalog), plan)),
    }


def built(work: Work, folder: Path, options: BuildOptions) -> Built:
    """Render `work.plan` into `folder`, make the stand-in base where the plan uses it, and build the image."""
    context, plan = work.context, work.plan
    if plan.recipe.base.kind is BaseKind.STANDIN:
        _make_standins(work)
    context.say(f"{context.shown(folder)}: {rendered(context, work.catalog, plan, folder)}")
    before = known_layers(work.client)
    result = _baked(work, folder, options)
    attributes = work.client.images.get(plan.reference).attrs
    layers = attributes["RootFS"]["Layers"]
    new = new_layers(plan, before, layers)
    return Built(
        attributes["Id"], attributes["Size"], len(layers), new, result.cached, result.total, result.seconds, result.log
    )


def tried(work: Work, trial: Trial, interpreter: str) -> Built:
    """Make the image of `work.plan` as one layer on the image of the locked set, which the engine has.

    `interpreter` is a Python of the target's version on this host. Raises `FindingsError` for a wheel that cannot be
    installed, `NetworkError` and `UnableError`.
    """
    from cannery.assemble.io.trial import Content, archive, write_layer
    from cannery.assemble.trial import TRIAL_LABEL, image_config
    from cannery.build.io.transfer_view import transfer
    from cannery.engine.io.client import EngineError, load, load_error
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.render.render import files_layer

    context, plan = work.context, work.plan
    begun = time.monotonic()
    fetch = partial(fetch_wheels, context.downloads, work.catalog.indexes)
    old, new = fetch(trial.removed), fetch([*trial.added, *trial.kept])
    content = Content(
        added=[new[package.name] for package in trial.added],
        removed=list(old.values()),
        kept=[new[package.name] for package in trial.kept],
        texts=files_layer(plan, context.templates(), work.catalog.compatibility),
        python=plan.recipe.target.python,
        epoch=plan.epoch,
        interpreter=interpreter,
    )
    parent = work.client.images.get(trial.parent).attrs
    context.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=context.cache) as layer:
        diff_id = write_layer(content, layer, len(os.sched_getaffinity(0)))
        config = image_config(parent, diff_id, {**labels(plan), TRIAL_LABEL: trial.parent}, plan.epoch)
        blocks = archive(layer, config, plan.reference)
        with transfer("loading the new layer", 0, sys.stderr, is_terminal=context.is_terminal) as view:
            try:
                load(work.client, blocks, view)
            except EngineError as error:
                raise load_error(error, plan.reference, context.pip.redact) from error
    attributes = work.client.images.get(plan.reference).attrs
    count = len(attributes["RootFS"]["Layers"])
    seconds = time.monotonic() - begun
    return Built(attributes["Id"], attributes["Size"], count, (trial.words,), 0, 0, seconds, None)


def trial_on(work: Work, options: Options) -> tuple[Trial, str] | None:
    """Return what the plan of `work` changes on the locked image, and a Python to compile it; None for a whole build.

    A trial is made where its profile's locked image is in the engine, where only wheels differ, small enough to be held
    in memory, where the engine takes an archive without the layers that it has, and where this host has a Python of the
    target's version.
    """
    from cannery.assemble.io.trial import interpreter_of
    from cannery.assemble.trial import trial_of
    from cannery.engine.io.inspect import has_classic_store, image_id

    recipe = work.plan.recipe
    if not recipe.pins:
        return None
    try:
        locked = planned(work.context, recipe.name, replace(options, pins=(), force=False), catalog=work.catalog).plan
    except FindingsError:
        return None
    trial, interpreter = trial_of(work.plan, locked), interpreter_of(recipe.target.python)
    if trial is None or interpreter is None or not has_classic_store(work.client):
        return None
    return (trial, interpreter) if image_id(work.client, trial.parent) else None


def _baked(work: Work, folder: Path, options: BuildOptions) -> BakeResult:
    """Build the rendered folder, with what this host has to keep secret at hand."""
    from cannery.build.io.buildx import bake
    from cannery.build.io.secrets import host_secrets
    from cannery.build.io.view import Look, make_view
    from cannery.build.stages import brought

    context, plan = work.context, work.plan
    progress = context.env.get("BUILDKIT_PROGRESS", "")
    if progress not in {"", "auto", "tty", "plain"}:
        context.say(f"BUILDKIT_PROGRESS={progress} has no effect: plain prints what build steps print, as -v does")
    look = Look(brought(plan), context.is_verbose or progress == "plain")
    suite = work.catalog.standin.suite if plan.recipe.base.kind is BaseKind.STANDIN else None
    system = context.settings.mirrors("system")
    with host_secrets(context.cache, context.env, context.pip, suite, system) as secrets:
        return bake(
            work.engine.buildx_command(builder=options.builder),
            {**work.engine.client_env(context.env), **secrets.env},
            folder,
            log=folder / "log" / "build.log",
            view=partial(make_view, sys.stderr, look, is_terminal=context.is_terminal, clock=time.monotonic),
            overrides=_overrides(options, plan),
            secrets=secrets,
        )


def new_layers(plan: Plan, known: list[str], layers: list[str]) -> tuple[str, ...]:
    """Return the names of the layers of an image that are not in `known`, the layers of other images; "base" once.

    The last layers are those of the plan, in its order; a folder to start in adds one behind them.
    """
    before = set(known)
    first = len(layers) - len(plan.layers) - (1 if start_folder(plan.recipe) else 0)
    names = (*["base"] * first, *(layer.name for layer in plan.layers), "workdir")
    return tuple(dict.fromkeys(name for name, layer in zip(names, layers, strict=False) if layer not in before))


def verified(work: Work, request: VerifyRequest, on_check: Callable[[Check], None]) -> Verified:
    """Run the verify script in the image of `request`, with what this host has for the plan's chip.

    `on_check` gets each check as it ends; none of a result that was remembered.
    """
    from cannery.engine.io.containers import remove_orphans
    from cannery.host.io.npus import read_host
    from cannery.host.npus import wanted_paths
    from cannery.verify.io.run import Runner, verify

    context = work.context
    access = work.catalog.chips[work.plan.recipe.target.chip]
    remove_orphans(work.client)
    host = read_host(wanted_paths(access), Path("/"))
    env = work.engine.client_env(context.env)
    return verify(request, Runner(work.engine, env, access, host, context.cache, context.say), on_check)


@contextmanager
def whole_files(context: Context, plan: Plan) -> Iterator[None]:
    """After a failed build, look for stored files that the disk has damaged; remove them, and report their names."""
    try:
        yield
    except BuildFailedError as error:
        from cannery.lock.io.wheels import damaged
        from cannery.sources.io.archives import damaged_archives

        packages = damaged([*plan.lock.packages, *plan.tools.packages], context.cache)
        archives = damaged_archives(plan.archives, context.cache)
        lost = [package.file for package in packages] + [step.file for step in archives]
        if lost:
            error.hint = f"damaged on this disk and removed: {', '.join(lost)}; the same command fetches them again"
        raise


def known_layers(client: docker.DockerClient) -> list[str]:
    """Return the layers of every image that the engine holds."""
    return [layer for found in client.images.list() for layer in found.attrs["RootFS"].get("Layers") or ()]


def _overrides(options: BuildOptions, plan: Plan) -> tuple[str, ...]:
    """Return bake's `--set` values. A builder other than the engine's own has to hand the image over.

    The moving tag is set after verify: whoever pulls it gets what has passed.
    """
    overrides = [f"image.tags={plan.reference}", *(["*.no-cache=true"] if options.no_cache else [])]
    # Some registries take no OCI manifest (SWR), which is what newer engines that store by containerd make of an image.
    kind = "docker" if options.builder else "image"
    return (*overrides, f"*.output=type={kind},oci-mediatypes=false")


def _make_standins(work: Work) -> None:
    """Bring the stand-in base into the engine, for the target and for the build host's own arch."""
    from cannery.engine.io.inspect import image_id

    context, catalog, plan = work.context, work.catalog, work.plan
    wanted = [pair for pair in _standin_locks(work) if image_id(work.client, pair[0]) is None]
    if not wanted:
        return
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.standin.io.load import StandInRequest, ensure_standin
    from cannery.standin.spec import TORCH_NPU, standin_spec

    for reference, lock in wanted:
        spec = standin_spec(with_arch(plan.recipe, lock.arch), lock, catalog.standin)
        if spec.reference != reference:
            raise AssertionError(f"planned {reference}, made {spec.reference}")
        wanted_wheels = [spec.torch_npu] if spec.torch_npu else []
        with heartbeat(context.say, lambda: "making the stand-in base"):
            wheel = fetch_wheels(context.downloads, catalog.indexes, wanted_wheels).get(TORCH_NPU)
            request = StandInRequest(spec=spec, torch_npu_wheel=wheel, host_arch=context.arch)
            ensure_standin(request, engine_client=work.client, cache=context.cache, say=context.say)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    from cannery.lock.io.store import current_lock

    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(lock_store(work.context), work.catalog, plan.recipe, plan.build_arch)
