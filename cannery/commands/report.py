"""`sbom`, `report` and `diff`: the content of an image as a bill of materials, a page or a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery import __version__
from cannery.build.io.buildx import read_spans
from cannery.catalog.target import parse_arch
from cannery.commands import PARSERS, options_of, print_result
from cannery.commands.check import lacking_words
from cannery.commands.proofs import proved
from cannery.compat.subject import note
from cannery.errors import CanneryError, ExitCode, UsageError
from cannery.pipeline import planned
from cannery.recipe.recipe import Options
from cannery.recipe.select import find_profile
from cannery.report.bill import make_bill
from cannery.report.difference import Contents, difference, json_value, markdown_lines, of_manifest, of_plan, text_lines
from cannery.report.io.page import last_proof, page_html
from cannery.report.io.sides import checkout_at, is_revision, read_contents, read_licences
from cannery.report.page import Known, make_page, page_markdown
from cannery.ship.published import FORMATS, Document, Kind
from cannery.util.io.files import BY_OUTPUT, check_folder_of, write_atomic, writing

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan import Plan
    from cannery.report.bill import Bill


def sbom(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write the bill of materials of a profile's image, or a document attached to an image in a registry.

    No image is fetched or built. Raises `UsageError` for the provenance of an image that is not in a registry.
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

    Raises `UsageError` if there is none of that kind, and for options that only apply to a plan.
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
    """Return the documents for an image: its bill of materials in two formats, and its provenance.

    `image` is its reference in a registry, the digest of its manifest, and the version of Cannery that made it.
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
    if arguments.against:  # pins and own trees are for the new side only
        old = Options(**{name: getattr(arguments, name) for name in (*PARSERS, "base")})
        older = contents_of(replace(context, local={}), arguments.against, old)
        changes = difference(older, of_plan(plan, catalog.compatibility))
    findings += tuple(note("image", words) for words in lacking_words(plan))
    known = Known(last_proof(context.cache, plan), read_spans(context.out / plan.folder, plan.reference))
    page = make_page(plan, _bill(context, catalog, plan), findings, known, changes)
    page = replace(page, facts=(*page.facts, ("on NPUs", proved(context, catalog, plan.recipe.name, plan))))
    # The page of a trial does not replace that of the profile's own set.
    name = f"{plan.folder}-{plan.tag.plan}" if plan.is_trial else plan.folder
    if arguments.format == "markdown":
        write_output(page_markdown(page), arguments.output)
    else:
        write_output(page_html(page, __version__), arguments.output, str(context.out / "reports" / f"{name}.html"))
    return ExitCode.DONE


def write_output(text: str, output: str | None, default: str = "") -> None:
    """Write a text to the file of --output, or to `default` (whose folders are made), or print it.

    Raises `UnableError`, and `UsageError` if the folder of `output` is missing.
    """
    file = output or default
    if not file:
        print(text, end="")
        return
    if output:
        check_folder_of(Path(output))
    with writing(file, BY_OUTPUT):
        write_atomic(Path(file), text)
    print(file)


# The suffixes of locks and manifests. A word with one of them is not an image.
FILE_ENDS = {".txt", ".json"}


def diff(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what differs between two profiles, locks, manifests or images."""
    options = options_of(arguments)
    found = difference(*(contents_of(context, word, options) for word in (arguments.old, arguments.new)))
    lines_of = markdown_lines if arguments.format == "markdown" else text_lines
    print_result(context, json_value(found), lines_of(found))
    return ExitCode.DONE


def contents_of(context: Context, word: str, options: Options) -> Contents:
    """Return the contents that a word of `diff` names: a file, a profile, REVISION:PROFILE, or an image on this host.

    `options` are the target of a profile. Raises `UsageError` for any other word.
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
    catalog, plan, _ = planned(context, profile, options)
    return of_plan(plan, catalog.compatibility)


def _at_revision(context: Context, revision: str, profile: str, options: Options) -> Contents:
    """Plan a profile at a revision. Raises `UsageError` if this version of Cannery cannot read that images/."""
    name = f"{revision}:{profile}"
    with checkout_at(context.root, revision) as root:
        try:
            return replace(_planned(replace(context, root=root), profile, options), name=name)
        except CanneryError as error:
            hint = f"compare its lock: git show {revision}:images/locks/{profile}/py3.11-amd64.txt > old.txt"
            what = f"this version of Cannery cannot plan it: {error.what}"
            raise UsageError(what, where=name, hint=hint) from error


def _of_image(context: Context, reference: str) -> Contents:
    """Read an image as `verify --against` does. Raises like `look_into`."""
    from cannery.commands.verify import check_reference, look_into

    check_reference(reference, "IMAGE")
    image = look_into(context, reference)
    try:
        found = of_manifest(reference, image.manifest or {})
    except ValueError:  # missing or edited
        found = Contents(reference, {name: one.version for name, one in image.packages.items()}, {})
    # An image does not name its layers.
    layers = {digest: digest for digest in (one.removeprefix("sha256:")[:12] for one in image.config.layers)}
    return replace(found, layers=layers, env=image.config.env, is_built=True)


COMMANDS = {"sbom": sbom, "report": report, "diff": diff}
