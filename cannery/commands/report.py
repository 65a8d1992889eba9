"""`sbom` and `report`: what is in an image, for who checks it and for who looks at it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery import __version__
from cannery.catalog.target import parse_arch
from cannery.commands import PARSERS, options_of
from cannery.commands.check import lacking_words
from cannery.commands.diff import contents_of
from cannery.commands.proofs import proved
from cannery.compat.findings import note
from cannery.errors import ExitCode, UsageError
from cannery.pipeline import planned
from cannery.recipe.recipe import Options
from cannery.report.bill import make_bill
from cannery.report.contents import of_plan
from cannery.report.difference import difference
from cannery.report.io.page import last_proof, page_html
from cannery.report.io.wheels import read_licences
from cannery.report.page import make_page, page_markdown
from cannery.ship.referrers import FORMATS, Document, Kind
from cannery.util.io.files import BY_OUTPUT, check_folder_of, unwritable, write_atomic

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan import Plan
    from cannery.report.bill import Bill


def sbom(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write the bill of materials of a profile's image, or what is attached to an image in a registry.

    No image is fetched or built. Raises `UsageError` for the provenance of what is in no registry.
    """
    if "/" in arguments.profile:
        write_output(_attached(arguments, context, FORMATS[arguments.format]).text, arguments.output)
        return ExitCode.DONE
    if arguments.format == "provenance":
        hint = "`push --attach` makes it; name the image as HOST/PATH/NAME:TAG"
        raise UsageError("provenance is of an image in a registry", where=arguments.profile, hint=hint)
    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    write_output(_text(_bill(context, catalog, plan), FORMATS[arguments.format]), arguments.output)
    return ExitCode.DONE


def _text(bill: Bill, kind: Kind) -> str:
    if kind is Kind.SPDX:
        from cannery.report.spdx import spdx_text as text_of
    else:
        from cannery.report.cyclonedx import cyclonedx_text as text_of
    return text_of(bill)


def _attached(arguments: argparse.Namespace, context: Context, kind: Kind) -> Document:
    """Read a document that is attached to an image in a registry.

    Raises `UsageError` where there is none of that kind, and for options that a plan alone has.
    """
    from cannery.ship.io.referrers import read_attached
    from cannery.ship.io.registry import access_of

    if replace(options_of(arguments), arch=None) != Options() or context.local:
        hint = "leave the others out, or name a profile"
        raise UsageError("an image in a registry takes --arch alone", where=arguments.profile, hint=hint)
    arch = parse_arch(arguments.arch) if arguments.arch else context.arch
    found, documents = read_attached(arguments.profile, access_of(context.pip, context.env), str(arch), (kind,))
    if not documents:
        has = ", ".join(sorted({str(one.get("artifactType")) for one in found.referrers})) or "nothing"
        what = f"no such document is attached to {found.digest}, which has: {has}"
        raise UsageError(what, where=arguments.profile, hint="`push --attach` attaches them")
    return documents[0]


def documents_of(context: Context, catalog: Catalog, plan: Plan, image: tuple[str, str, str]) -> list[Document]:
    """Return what is attached to an image: its bill in two formats, and its provenance.

    `image` is its reference in a registry, the digest of its manifest there, and the version of Cannery that made it.
    """
    from cannery.report.provenance import provenance_text

    bill = _bill(context, catalog, plan)
    bills = [Document(kind, _text(bill, kind)) for kind in (Kind.CYCLONEDX, Kind.SPDX)]
    return [*bills, Document(Kind.PROVENANCE, provenance_text(plan, bill, *image))]


def _bill(context: Context, catalog: Catalog, plan: Plan) -> Bill:
    wheels = [package for group in plan.groups for package in group.packages if not package.is_sdist]
    licences = read_licences(wheels, context.cache)
    if missing := len(wheels) - len(licences):
        hint = f"`build.py render {plan.recipe.name}` fetches them"
        context.say(f"{missing} of {len(wheels)} wheels are not on this host, their licences are unknown: {hint}")
    return make_bill(plan, licences, catalog.hosts)


def report(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write a page about a profile's image, as HTML or Markdown. No image is fetched or built."""
    if "/" in arguments.profile:
        hint = "`build.py sbom IMAGE` prints what is attached to an image in a registry"
        raise UsageError("report is about the image of a profile", where=arguments.profile, hint=hint)
    catalog, plan, findings = planned(context, arguments.profile, options_of(arguments))
    changes = None
    if arguments.against:  # what is tried is of the new side alone
        old = Options(**{name: getattr(arguments, name) for name in (*PARSERS, "base")})
        older = contents_of(replace(context, local={}), arguments.against, old)
        changes = difference(older, of_plan(plan, catalog.compatibility))
    findings += tuple(note("image", words) for words in lacking_words(plan))
    page = make_page(plan, _bill(context, catalog, plan), findings, last_proof(context.cache, plan), changes)
    page = replace(page, facts=(*page.facts, ("on NPUs", proved(context, catalog, plan.recipe.name, plan))))
    # What is tried does not write over the page of the profile's own set.
    is_own = plan.alias in plan.references
    name = plan.folder if is_own else f"{plan.folder}-{plan.tag.plan}"
    if arguments.format == "markdown":
        write_output(page_markdown(page), arguments.output)
    else:
        write_output(page_html(page, __version__), arguments.output, str(context.out / "reports" / f"{name}.html"))
    return ExitCode.DONE


def write_output(text: str, output: str | None, default: str = "") -> None:
    """Write a text to the file that --output names, else to `default`, whose folders are made, else print it.

    Raises `UnableError`, and `UsageError` where the folder of `output` is missing.
    """
    file = output or default
    if not file:
        print(text, end="")
        return
    if output:
        check_folder_of(Path(output))
    try:
        write_atomic(Path(file), text)
    except OSError as error:
        raise unwritable(error, file, BY_OUTPUT) from error
    print(file)


COMMANDS = {"sbom": sbom, "report": report}
