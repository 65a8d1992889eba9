"""`diff`: what differs between two images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.commands import options_of
from cannery.errors import CanneryError, ExitCode, UsageError
from cannery.recipe.select import find_profile
from cannery.report.contents import Contents, of_manifest, of_plan
from cannery.report.difference import difference, json_value, markdown_lines, text_lines
from cannery.report.io.sides import checkout_at, is_revision, read_contents

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context
    from cannery.recipe.recipe import Options

# What a file of a lock or a manifest ends with: a word that does is no image.
FILE_ENDS = {".txt", ".json"}


def diff(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what differs between two profiles, locks, manifests or images."""
    options = options_of(arguments)
    found = difference(*(contents_of(context, word, options) for word in (arguments.old, arguments.new)))
    if context.is_json:
        print(json.dumps(json_value(found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(markdown_lines(found) if arguments.format == "markdown" else text_lines(found)))
    return ExitCode.DONE


def contents_of(context: Context, word: str, options: Options) -> Contents:
    """Return what a word of `diff` names: a file, a profile, REVISION:PROFILE, or an image of this host.

    `options` are the target of a profile. Raises `UsageError` for what is none of these.
    """
    path = Path(word).expanduser()
    if path.is_file():
        return read_contents(path)
    if path.suffix in FILE_ENDS or path.is_dir():
        raise UsageError(f"no file {word!r}", hint="name a lock, a manifest.json, a profile or an image")
    profiles = context.catalog().profiles
    revision, _, profile = word.rpartition(":")
    if profile in profiles and revision:
        return _at_revision(context, revision, profile, options)
    if word in profiles or not set(":/") & set(word):
        return _planned(context, word, options)
    try:
        return _of_image(context, word)
    except CanneryError:
        if revision and is_revision(context.root, revision):
            find_profile(context.catalog(), profile)
        raise


def _planned(context: Context, profile: str, options: Options) -> Contents:
    from cannery.pipeline import planned  # two locks do without it: half a second

    catalog, plan, _ = planned(context, profile, options)
    return of_plan(plan, catalog.compatibility)


def _at_revision(context: Context, revision: str, profile: str, options: Options) -> Contents:
    """Plan a profile as it was. Raises `UsageError` where this Cannery cannot: it reads images/ of its own time."""
    name = f"{revision}:{profile}"
    with checkout_at(context.root, revision) as root:
        try:
            return replace(_planned(replace(context, root=root), profile, options), name=name)
        except CanneryError as error:
            hint = f"compare its lock: git show {revision}:images/locks/{profile}/py3.11-amd64.txt > old.txt"
            what = f"this version of Cannery cannot plan it: {error.what}"
            raise UsageError(what, where=name, hint=hint) from error


def _of_image(context: Context, reference: str) -> Contents:
    """Look into an image as `verify --against` does. Raises as `cannery.against.io.read` and `place_with`."""
    from cannery.against.image import read_facts, version_files
    from cannery.against.io.read import read_config, read_image
    from cannery.catalog.addresses import REGISTRY_HINT, reference_fault
    from cannery.commands.place import place_with
    from cannery.util.addresses import parse_reference

    if fault := reference_fault(reference):
        raise UsageError(f"{reference}: {fault}", hint=REGISTRY_HINT)
    parse_reference(reference, "IMAGE")
    bases = context.catalog().bases
    place = place_with(context, reference, runs=True)
    config = read_config(place, reference)
    layers = (place.attributes(config.id).get("RootFS") or {}).get("Layers") or []
    image = read_facts(config, read_image(place, config, version_files(bases)), bases)
    try:
        found = of_manifest(reference, image.manifest or {})
    except ValueError:  # it has none, or somebody edited it
        found = Contents(reference, {name: one.version for name, one in image.packages.items()}, {})
    return replace(found, layers={digest: digest for digest in layers}, env=config.env)


COMMANDS = {"diff": diff}
