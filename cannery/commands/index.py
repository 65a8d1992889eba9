"""`index` and `search`: the images that a registry has, and those that hold what is wanted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from cannery import __version__
from cannery.commands.arguments import PARSERS
from cannery.commands.proofs import proofs_of
from cannery.commands.report import write_output
from cannery.engine.io.login import read_login
from cannery.engine.io.registry import Access, insecure_registries
from cannery.errors import ExitCode, UsageError
from cannery.recipe.select import find_profile
from cannery.report.io.page import page_html
from cannery.report.page import Page
from cannery.report.tables import Table
from cannery.ship.index import TARGET, Index, Indexed, read_index
from cannery.ship.io.index import LIMITS, read_registry
from cannery.ship.io.registry import REQUEST_WAITS
from cannery.ship.published import parse_registry
from cannery.verify.proof import STANDIN_ONLY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.context import Context


def index(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write what a registry has as index.json and index.html, or print the JSON: no image is pulled."""
    registry = parse_registry(arguments.registry)
    found = Index(registry=registry, images=_images(context, registry, arguments.profile))
    folder = None if context.is_json else arguments.output or str(context.shown(context.out / "index"))
    write_output(found.model_dump_json(indent=1) + "\n", folder and f"{folder}/index.json")
    if folder:
        page = _page(registry, found.images, arguments.today)
        write_output(page_html(page, __version__), f"{folder}/index.html")
    return ExitCode.DONE


def _images(context: Context, registry: str, profiles: Sequence[str]) -> tuple[Indexed, ...]:
    """Return the images of a registry, each with what proves its plan."""
    login = partial(read_login, env=context.env)
    access = Access(context.pip, login, LIMITS, plain=insecure_registries(), waits=REQUEST_WAITS)
    catalog = context.catalog()
    for name in profiles:
        find_profile(catalog, name)
    names = profiles or sorted(catalog.profiles)
    proofs = {(name, one.plan): one.words for name in names for one in reversed(proofs_of(context, name))}
    found = read_registry(registry, names, access, context.say)
    return tuple(one.model_copy(update={"verify": proofs.get((one.profile, one.plan), STANDIN_ONLY)}) for one in found)


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
    """Print the images that hold every requirement, of an index or of a registry."""
    wanted = [_requirement(text) for text in arguments.requirements]
    target = {name: str(parse(text)) for name, parse in PARSERS.items() if (text := getattr(arguments, name))}
    if arguments.index:
        path = Path(arguments.index)
        try:
            images = read_index(path.read_text(encoding="utf-8"), str(path)).images
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot be read: {error}", where=str(path), hint="an index.json") from error
    else:
        images = _images(context, parse_registry(arguments.registry), ())
    found = [one for one in images if one.has(wanted, target)]
    if context.is_json:
        print(Index(registry=arguments.registry or "", images=tuple(found)).model_dump_json(indent=1))
        return ExitCode.DONE
    for one in found:
        asked = ", ".join(f"{each.name} {one.version_of(each.name)}" for each in wanted)
        print("; ".join(part for part in (one.reference, asked, f"{_sizes(one)} MB", one.verify) if part))
    context.say(f"{len(found)} of {len(images)} images")
    return ExitCode.DONE


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is no requirement", hint="for example 'vllm>=0.20', in quotes") from error


COMMANDS = {"index": index, "search": search}
