"""`index` and `search`: list the images of a registry, and those that contain given packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import ValidationError

from cannery import __version__
from cannery.commands import PARSERS
from cannery.commands.proofs import proofs_of
from cannery.commands.report import write_output
from cannery.errors import ExitCode, UsageError
from cannery.recipe.select import find_profile
from cannery.report.difference import Table
from cannery.report.io.page import page_html
from cannery.report.page import Page
from cannery.ship.io.index import INDEX, LIMITS, TARGET, Indexed, read_registry
from cannery.ship.io.registry import access_of
from cannery.ship.published import parse_registry
from cannery.verify.proof import UNPROVED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.context import Context


def index(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write a list of a registry's images to index.json and index.html, or print the JSON. No image is pulled."""
    registry = parse_registry(arguments.registry)
    images = _images(context, registry, arguments.profile)
    text = INDEX.dump_json(images, indent=1).decode() + "\n"
    if context.is_json:
        print(text, end="")
        return ExitCode.DONE
    folder = arguments.output or str(context.out / "index")
    page = page_html(_page(registry, images, arguments.today), __version__)
    write_output(text, None, f"{folder}/index.json")
    write_output(page, None, f"{folder}/index.html")
    return ExitCode.DONE


def _images(context: Context, registry: str, profiles: Sequence[str] = ()) -> tuple[Indexed, ...]:
    """Return the images of a registry, each with the proof of its plan."""
    catalog = context.catalog()
    for name in profiles:
        find_profile(catalog, name)
    names = profiles or sorted(catalog.profiles)
    proofs = {one.plan: one.words for name in names for one in reversed(proofs_of(context, name))}
    found = read_registry(registry, names, replace(access_of(context.pip, context.env), limits=LIMITS), context.say)
    return tuple(one.model_copy(update={"verify": proofs.get(one.plan, UNPROVED)}) for one in found)


def _page(registry: str, images: Sequence[Indexed], today: str) -> Page:
    head = ("image", "verify", "base", "CANN", "chip", "OS", "Python", "MB to pull", "digest")
    rows = [
        (one.reference, one.verify, one.base, *(one.target.get(key, "") for key in TARGET), _sizes(one), one.digest)
        for one in images
    ]
    packages: dict[tuple[str, str], list[str]] = {}
    for one in images:
        for item in one.packages.items():
            packages.setdefault(item, []).append(one.reference.rpartition("/")[2])
    listed = tuple((name, version, ", ".join(of)) for (name, version), of in sorted(packages.items()))
    facts = (("registry", registry), ("images", str(len(images))), ("as of", today))
    tables = (Table("Images", head, tuple(rows)), Table("Packages", ("name", "version", "images"), listed, open=False))
    return Page(f"Images in {registry}", facts, tables, (), None)


def _sizes(one: Indexed) -> str:
    return ", ".join(f"{arch} {size / 1e6:.0f}" for arch, size in one.sizes.items())


def search(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print the images of an index or a registry that meet every requirement. Raises `UsageError`."""
    if arguments.index and arguments.registry:
        raise UsageError("--index and --registry are two places to look in", hint="leave one of them out")
    try:
        wanted = [Requirement(text) for text in arguments.requirements]
        for each in wanted:
            if each.url or each.extras or each.marker:
                what = f"{str(each)!r}: an index has names and versions, and no URLs, extras or markers"
                raise UsageError(what, hint="for example 'vllm>=0.20', in quotes")
        target = {name: str(parse(text)) for name, parse in PARSERS.items() if (text := getattr(arguments, name))}
        if arguments.index:
            images = INDEX.validate_json(Path(arguments.index).read_bytes())
        else:
            images = _images(context, parse_registry(arguments.registry))
    except InvalidRequirement as error:
        raise UsageError(f"this is not a requirement: {error}", hint="for example 'vllm>=0.20', in quotes") from error
    except (OSError, ValidationError) as error:
        hint = "build.py index --registry HOST/PATH writes one"
        raise UsageError("this is not a readable index", where=arguments.index or "", hint=hint) from error
    found = tuple(one for one in images if one.has(wanted, target))
    if context.is_json:
        print(INDEX.dump_json(found, indent=1).decode())
        return ExitCode.DONE
    for one in found:
        asked = ", ".join(f"{each.name} {one.version_of(each.name)}" for each in wanted)
        print("; ".join(part for part in (one.reference, asked, f"{_sizes(one)} MB", one.verify) if part))
    context.say(f"{len(found)} of {len(images)} images")
    return ExitCode.DONE


COMMANDS = {"index": index, "search": search}
