"""Proofs from hosts with NPUs: `verify --record` writes one, and `proofs add` adds it to images/proofs."""

from __future__ import annotations

import stat
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.util.io.files import check_folder_of, write_atomic, writing
from cannery.verify.proof import LEVELS, UNPROVED, Proof, make_proof, proof_faults
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan import Plan
    from cannery.recipe.recipe import Options

LARGEST = 1_000_000
OTHER_FILE = "name another file with --record"


def driver_to_record(arguments: argparse.Namespace, catalog: Catalog, plan: Plan) -> str:
    """Return this host's driver version.

    Raises `UsageError` or `UnableError` if there is nothing to record, or if the file cannot be written.
    """
    from cannery.commands import run
    from cannery.host.io.look import read_tree

    if arguments.image or not LEVELS.intersection(arguments.level):
        what = "--record is of the image of PROFILE, at a level that needs an NPU"
        raise UsageError(what, hint="--level npu or --level train, and no --image")
    if plan.recipe.base.kind is not BaseKind.REAL:
        raise UsageError(
            "--record: no NPU works in an image without CANN",
            hint=f"use a real base: --base {plan.recipe.target.base_tag}",
        )
    run.refuse_other_chip(catalog, plan.recipe)
    driver = read_tree(run.HOST_ROOT, (), None).driver.get("Version", "").lower()
    if not driver:
        what = "--record: this host has no NPU driver, or you cannot read its version"
        raise UnableError(what, hint=f"build.py doctor {plan.recipe.name}")
    _check_writable(Path(arguments.record))
    return driver


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError("--record: this is a folder", where=str(path), hint=OTHER_FILE)
    with writing(path, OTHER_FILE):
        check_folder_of(path)
        with TemporaryFile(dir=path.parent):
            pass


def record(path: str, plan: Plan, report: Mapping[str, Any], **about: str) -> None:
    """Write the proof for a report, with `about` as in `make_proof`. Raises `UnableError`."""
    try:
        _write(Path(path), make_proof(plan, report, **about))
    except ValidationError as error:
        raise UnableError(f"no proof can be made of this result: {_first(error)}", hint="please report it") from error


def _write(path: Path, proof: Proof) -> None:
    with writing(path, OTHER_FILE):
        write_atomic(path, proof.text)


def _first(error: ValidationError) -> str:
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ")


def read_proof(path: Path) -> Proof:
    """Return the proof in a file. Raises `UsageError` if it cannot be read or is not a proof."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            what = "this is not a proof: it is not a regular file, or larger than 1 MB"
            raise UsageError(what, where=str(path), hint="name the file that verify --record wrote")
        return Proof.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), hint="name a file") from error
    except ValidationError as error:
        hint = "`build.py verify PROFILE --level npu --record FILE` writes one on a host with NPUs"
        raise UsageError(f"this is not a proof: {_first(error)}", where=str(path), hint=hint) from error


def add(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Check a proof against the current plan of its profile, and add it to images/proofs.

    Raises `FindingsError` for a proof of another plan, a forged one, or one that proves nothing.
    """
    if context.work:
        raise UsageError("proofs are filed in a checkout", hint="clone Cannery, and call its build.py there")
    from cannery.pipeline import planned

    proof = read_proof(Path(arguments.file))
    catalog, plan, _ = planned(context, proof.profile, _target(proof))
    if faults := proof_faults(proof, plan, arguments.today):
        hint = "check out the commit that the image was built from, or have it recorded again"
        raise FindingsError("\n  ".join(("this proof is not taken:", *faults)), where=arguments.file, hint=hint)
    path = _folder(context) / proof.name
    _write(path, proof)
    print(f"{context.shown(path)}: {proof.words}")
    context.say(f"README.md and README.zh.md: write {proved(context, catalog, proof.profile)!r} in its row")
    return ExitCode.DONE


def _target(proof: Proof) -> Options:
    """Return the target of a proof as options."""
    from cannery.recipe.recipe import Options

    given: dict[str, Any] = {str(name): value for name, value in proof.target.items()}
    return Options(**given)


def _folder(context: Context) -> Path:
    return context.root / "images/proofs"


def proofs_of(context: Context, profile: str) -> list[Proof]:
    """Return the proofs of a profile, the newest first. Invalid files are reported and left out."""
    found = []
    for path in sorted((_folder(context) / profile).glob("*.json"), reverse=True):
        try:
            proof = read_proof(path)
        except UsageError as error:
            context.say(f"warning: {context.shown(path)} is left out: {error.what}")
            continue
        if proof.profile == profile:
            found.append(proof)
        else:
            context.say(f"warning: {context.shown(path)} is left out: it is of {proof.profile}")
    return found


def proved(context: Context, catalog: Catalog, profile: str, plan: Plan | None = None) -> str:
    """Return a text about the proof of a profile: for `plan` or the current plan, or else for an earlier plan."""
    found = proofs_of(context, profile)
    for proof in found:
        from cannery.pipeline import planned  # `list` does not need it without proofs

        try:
            now = plan or planned(context, profile, _target(proof), catalog=catalog).plan
        except (FindingsError, UsageError):  # its lock is stale, or that target is gone
            continue
        if now.digest == proof.plan:
            return proof.words
    return f"{found[0].words}, of an earlier plan ({found[0].plan})" if found else UNPROVED


COMMANDS = {"proofs": add}
