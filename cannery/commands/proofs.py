"""`proofs`: what was proved on real NPUs. Files below images/proofs, which tables show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cannery.errors import ExitCode, FindingsError, UsageError
from cannery.util.io.files import write_atomic
from cannery.util.io.write_errors import unwritable
from cannery.verify.proof import Proof, proof_faults, proved_words

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan.plan import Plan


def text_of(proof: Proof) -> str:
    """Return the text of a proof's file."""
    return proof.model_dump_json(indent=1) + "\n"


def first_fault(error: ValidationError) -> str:
    """Return the first fault of a file in words."""
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ")


def read_proof(path: Path) -> Proof:
    """Return the proof of a file. Raises `UsageError` for one that cannot be read, or is none."""
    try:
        return Proof.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), hint="name a file") from error
    except ValidationError as error:
        hint = "`build.py verify PROFILE --level npu --record FILE` writes one on a host with NPUs"
        raise UsageError(f"this is no proof: {first_fault(error)}", where=str(path), hint=hint) from error


def add(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Check a proof against the plan that its profile has here, and file it below images/proofs.

    Raises `FindingsError` for a proof of another plan, or one that proves nothing.
    """
    if context.work:
        raise UsageError("proofs are filed in a checkout", hint="clone Cannery, and call its build.py there")
    from cannery.pipeline import planned

    proof = read_proof(Path(arguments.file))
    catalog, plan, _ = planned(context, proof.profile, proof.options)
    if faults := proof_faults(proof, plan):
        hint = "check out the commit that the image was built from, or have it recorded again"
        raise FindingsError("\n  ".join(("this proof is not taken:", *faults)), where=arguments.file, hint=hint)
    path = _folder(context) / proof.name
    try:
        write_atomic(path, text_of(proof))
    except OSError as error:
        raise unwritable(error, path, "") from error
    print(f"{context.shown(path)}: {proof.words}")
    context.say(f"README.md and README.zh.md: write {proved(context, catalog, proof.profile)!r} in its row")
    return ExitCode.DONE


def _folder(context: Context) -> Path:
    return context.root / "images/proofs"


def proofs_of(context: Context, profile: str) -> list[Proof]:
    """Return the proofs of a profile, the newest first. Raises `UsageError` for a broken file."""
    return [read_proof(path) for path in sorted((_folder(context) / profile).glob("*.json"), reverse=True)]


def proved(context: Context, catalog: Catalog, profile: str) -> str:
    """Return what proves a profile: a proof of the plan that it has now for its target, else the newest, else none."""

    def is_current(proof: Proof) -> bool:
        from cannery.pipeline import planned

        try:
            return planned(context, profile, proof.options, catalog=catalog).plan.digest == proof.plan
        except (FindingsError, UsageError):  # its lock is stale, or that target is gone
            return False

    return proved_words(proofs_of(context, profile), is_current)


def plan_proved(context: Context, plan: Plan) -> str:
    """Return what proves the image of a plan, as `proved`."""
    key = (plan.digest, plan.recipe.target.arch)
    found = proofs_of(context, plan.recipe.name)
    return proved_words(found, lambda proof: (proof.plan, proof.target.arch) == key)


COMMANDS = {"proofs": add}
