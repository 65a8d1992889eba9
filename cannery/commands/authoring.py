"""`new`, `facts` and `base` write the files of a new stack: profiles, components and bases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from packaging.utils import canonicalize_name
from pydantic import ValidationError
from ruamel.yaml.nodes import ScalarNode

from cannery.authoring.base_line import make_line, odd_tags
from cannery.authoring.facts import entry_text, make_entry, places_of, table_of, version_of, with_entry
from cannery.catalog.catalog import BaseLine
from cannery.catalog.component import FromSource, Wheels, parse_component
from cannery.catalog.documents import parse_yaml
from cannery.catalog.fields import profile_name_fault
from cannery.catalog.io.read import read_yaml_text
from cannery.catalog.target import is_version, parse_cann, without_build
from cannery.errors import ExitCode, UsageError
from cannery.recipe.select import find_profile
from cannery.sources.plan import COMMIT
from cannery.util.io.files import write_atomic, writing
from cannery.util.yaml_edit import over, root_node, value_of
from cannery.util.yaml_output import yaml_output
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    import argparse

    from cannery.authoring.facts import Tree
    from cannery.catalog.catalog import Catalog
    from cannery.catalog.component import Component
    from cannery.context import Context

OUTSIDE = "name a folder of yours: --catalog DIR"


def new(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write a copy of a profile into the user's catalog or the checkout."""
    catalog, name = context.catalog(), arguments.profile
    what, _, hint = profile_name_fault(name).partition("; ")
    if what:
        raise UsageError(what, where="new", hint=hint)
    find_profile(catalog, arguments.like)
    file = f"profiles/{name}.yaml"
    if name in catalog.profiles or file in catalog.broken:
        raise UsageError(
            "a profile has this name already", where=catalog.file(file), hint="take another name, or edit it"
        )
    like = f"profiles/{arguments.like}.yaml"
    text = profile_like(_text(context, catalog, like), arguments.like, catalog.file(like), arguments.summary or "")
    path = _write(context, file, text)
    context.catalog().check_file(file)
    print(f"{context.shown(path)}: as {catalog.file(like)}; edit its versions, then run: build.py lock {name}")
    return ExitCode.DONE


def facts(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Read the requirements of a release or commit of a component; write them into its file, or print them."""
    catalog = context.catalog()
    name, equals, wanted = arguments.fact.partition("==")
    if not equals or not name or not wanted:
        raise UsageError(f"{arguments.fact!r} is not NAME==VERSION or NAME==COMMIT", hint="for example vllm==0.24.0")
    is_commit, component = COMMIT.fullmatch(wanted) is not None, catalog.components.get(name)
    if component is None and is_commit:
        raise UsageError(f"no component {name!r}", hint=did_you_mean(name, catalog.components))
    if not is_commit and not is_version(wanted):
        raise UsageError(f"{wanted!r} is not a version", hint="a commit has 40 hex digits")
    table = table_of(component, commit=is_commit) if component else ""
    if component and wanted in (getattr(component, table) if table else ()) and not arguments.print_only:
        print(f"{catalog.file(f'components/{name}.yaml')} has {wanted} already")
        return ExitCode.DONE
    tree = _tree(context, catalog, (name, component, wanted), arguments)
    places = tuple(arguments.places) or (places_of(component, commit=is_commit) if component else ())
    value = make_entry(tree, places, arguments.today, tuple(arguments.without))
    if is_commit:
        version = arguments.as_version or version_of(tree.files)
        if not version:
            hint = "name what its distribution calls itself there: --as-version 0.8.0.dev0"
            raise UsageError(f"no file of {tree.what} has its version as plain text", hint=hint)
        value = {"version": version, **value}
    elif table == "releases" and tree.files:
        value = {"sdist": True, **value}
    elif table == "metadata":
        value = {key: value[key] for key in ("requires", "source")}
    return _put(context, catalog, (name, component, wanted), table, value, print_only=arguments.print_only)


def _tree(
    context: Context, catalog: Catalog, entry: tuple[str, Component | None, str], arguments: argparse.Namespace
) -> Tree:
    from cannery.authoring.io.facts import commit_tree, listed_files, release_tree

    name, component, wanted = entry
    if COMMIT.fullmatch(wanted):
        if not isinstance(component, FromSource):
            raise UsageError(f"{name} is of kind {component.kind if component else ''}: it has no commits")
        return commit_tree(context.sources(catalog), name, component, wanted)
    package = component.package if isinstance(component, FromSource | Wheels) and component.package else name
    index = (component.index if isinstance(component, Wheels) else "") or ""
    local = component.local if isinstance(component, Wheels) else None
    versions = (f"{wanted}+{local}", wanted) if local else (wanted,)
    found = listed_files(context.pip, catalog, canonicalize_name(package), versions, index)
    for file in found if arguments.print_only else ():
        context.say(f"{file.file}  {f'sha256 {file.sha256}' if file.sha256 else 'without a hash'}  {file.uploaded}")
    releases = tuple(component.releases.values()) if isinstance(component, FromSource) else ()
    is_sdist = bool(arguments.places) or any(one.sdist for one in releases[:1])
    return release_tree(context.pip, found, sdist=is_sdist)


def _put(  # noqa: PLR0913 - what is written, of what, and where
    context: Context,
    catalog: Catalog,
    entry: tuple[str, Component | None, str],
    table: str,
    value: dict[str, Any],
    *,
    print_only: bool,
) -> ExitCode:
    name, component, wanted = entry
    file = f"components/{name}.yaml"
    if print_only:
        print(entry_text(wanted, value))
        return ExitCode.DONE
    if component is None:
        text = yaml_output({"kind": "wheels", "summary": f"package {name}, from the package index"})
    elif not table:
        print(f"`lock` reads the requirements of {name} from its index: nothing to write")
        return ExitCode.DONE
    else:
        text = with_entry(_text(context, catalog, file), table, wanted, value, catalog.file(file))
    try:
        parse_component(parse_yaml(text, file).value)
    except ValidationError as error:
        what = f"what was read of {name} {wanted} does not fit the file: {error.errors()[0]['msg']}"
        raise UsageError(what, where=catalog.file(file), hint="--print shows it") from error
    path = _write(context, file, text)
    if component is None:
        print(f"{context.shown(path)}: a new component; correct its summary, and name what verify imports (`imports`)")
    else:
        print(f"{context.shown(path)}: {table} has {wanted}, which asks for {len(value['requires'])} packages")
    return ExitCode.DONE


def base(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write the file of a new CANN version, from images in a registry or from the Dockerfiles of a checkout."""
    from cannery.authoring.io.facts import checkout_images, registry_images

    catalog, file = context.catalog(), f"bases/{arguments.line}.yaml"
    cann, folder = without_build(parse_cann(arguments.line)), Path(arguments.source).expanduser()
    if cann in catalog.bases:
        raise UsageError("a file of this CANN version exists already", where=catalog.file(file), hint="edit it")
    if folder.is_dir():
        images, source = checkout_images(folder, cann)
    else:
        images, source = registry_images(arguments.source, cann, context.pip, context.env)
    images = {tag: image for tag, image in images.items() if tag.startswith(f"{cann}-")}
    if not images:
        raise UsageError(f"{arguments.source} names another CANN than {cann}", hint="name an image of it")
    value = make_line(cann, images, catalog.bases, f"{source}, read {arguments.today}")
    try:
        BaseLine.model_validate(value)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise UsageError(f"{where}: {error.errors()[0]['msg']}", where=arguments.source) from error
    path = _write(context, f"bases/{cann}.yaml", yaml_output(value))
    for tag in odd_tags(images):
        context.say(f"{tag}: its ENV differs from that of the first image on its OS; the file has the first one's")
    print(f"{context.shown(path)}: {len(images)} images; {value['source']}")
    return ExitCode.DONE


def _text(context: Context, catalog: Catalog, file: str) -> str:
    """Return the text of a catalog file, by its name below images/."""
    home = context.own if context.own and file in catalog.own else context.root / "images"
    return read_yaml_text(home / file, catalog.file(file))


def _write(context: Context, file: str, text: str) -> Path:
    """Write a file into the user's catalog or the checkout's. Raises `UsageError` if there is neither."""
    home = context.own or (None if context.work else context.root / "images")
    if home is None:
        raise UsageError("an installed Cannery has no images/ to write to", hint=OUTSIDE)
    with writing(home / file):
        write_atomic(home / file, text)
    return home / file


COMMANDS = {"new": new, "facts": facts, "base": base}


def profile_like(text: str, name: str, where: str, summary: str = "") -> str:
    """Return a copy of profile `name` (`text`) with another summary.

    Raises `UsageError`, with `where`, if the summary cannot be edited.
    """
    node = value_of(root_node(text), "summary")
    old = str(yaml.safe_load(text).get("summary", ""))
    new = summary or f"like {name}: {old}"
    if node is None:
        return f'summary: "{new}"\n{text}'
    if not isinstance(node, ScalarNode):
        raise UsageError("summary is not a text", where=where)
    return over(text, node, new)
