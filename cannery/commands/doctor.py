"""`doctor`: reports what a host has and what is missing for containers with NPUs, with the next steps."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.build.io.disk import BASE_BYTES, layers_bytes
from cannery.catalog.compatibility import DRIVER
from cannery.catalog.target import parse_chip
from cannery.commands import options_of, print_result
from cannery.compat.rules.target import asking, who
from cannery.compat.subject import Subject, cited
from cannery.doctor import counts, diagnose, report_lines
from cannery.doctor.check import DriverWish, State, Wanted
from cannery.errors import ExitCode, UsageError
from cannery.host.io.look import read_facts, read_tree
from cannery.lock.io.store import bind, lock_path, present_lock
from cannery.lock.request import lock_request
from cannery.pipeline import lock_store
from cannery.sandbox.io.able import why_not
from cannery.util.io.namespace import can_be_root
from cannery.vocab import BaseKind, size_bytes

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.host.facts import HostFacts

SCHEMA = 1


def doctor(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print all checks of the host, or of a copied tree. The exit code is 4 if one is an error."""
    catalog = context.catalog()
    root = Path(arguments.root).expanduser().absolute() if arguments.root else None
    if root is not None and not root.is_dir():
        raise UsageError(f"{arguments.root!r} is not a folder", where="--root", hint="name the top of a host's tree")
    paths = {path for access in catalog.chips.values() for path in (*access.managers, *access.mounts)}
    if root is None:
        facts = read_facts(sorted(paths), arguments.user, context.env, (context.cache, context.out))
        facts = replace(facts, no_sandbox="" if can_be_root() else why_not(context.cache))
    else:
        facts = read_tree(root, sorted(paths), arguments.user)
    if arguments.user and facts.user is None:
        raise UsageError(
            f"no user {arguments.user!r}", where="--user", hint="a name of the host's (or the tree's), or a number"
        )
    wanted = _wanted(context, catalog, arguments, facts)
    checks = diagnose(facts, wanted)
    found = counts(checks)
    value = {
        "schema": SCHEMA,
        "root": str(root or "/"),
        "profile": wanted.profile or None,
        "target": str(wanted.target) if wanted.target else None,
        "ok": not found[State.ERROR],
        "counts": found,
        "checks": [asdict(check) for check in checks],
    }
    print_result(context, value, report_lines(checks))
    return ExitCode.UNABLE if found[State.ERROR] else ExitCode.DONE


def _wanted(context: Context, catalog: Catalog, arguments: argparse.Namespace, facts: HostFacts) -> Wanted:
    """Return what the host is compared with: a profile's target, or only the needs of every host."""
    plain = Wanted(catalog.chips, catalog.drivers)
    options = options_of(arguments)
    if not arguments.profile:
        return replace(plain, named=parse_chip(options.chip) if options.chip else None)
    if options.arch is None and facts.arch is not None:  # the arch of the tree, with --root
        options = replace(options, arch=facts.arch)
    store = lock_store(context)
    recipe = bind(store, catalog, arguments.profile, options)
    subject = Subject(recipe, catalog, {})
    rows = asking(subject)
    lock = present_lock(store, lock_path(store, lock_request(recipe)))
    on_standin = recipe.base.kind is BaseKind.STANDIN
    return replace(
        plain,
        target=recipe.target,
        profile=recipe.name,
        wish=DriverWish(rows[0].fits[DRIVER], who(rows), cited(subject.table, rows)) if rows else None,
        shm_bytes=size_bytes(recipe.profile.shm_size),
        shm_size=recipe.profile.shm_size,
        several_hosts=recipe.profile.several_hosts,
        image_bytes=layers_bytes(lock) + (BASE_BYTES if on_standin else 0) if lock else None,
        layers_only=not on_standin,
        user=recipe.profile.user,
    )


COMMANDS = {"doctor": doctor}
