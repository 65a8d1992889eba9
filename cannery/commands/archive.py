"""`bundle` (also `save`) and `load`: images as files, for hosts without access to a registry."""

from __future__ import annotations

import sys
import tarfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cannery.build.io.disk import check_output_space
from cannery.commands import options_of, print_result, row_lines
from cannery.commands.place import engine_errors, kept_place, place_with
from cannery.engine.io.client import EngineError, counted, load, load_error, save
from cannery.engine.io.transfer_view import transfer
from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.pipeline import planned
from cannery.ship.bundle import Held, new_layers
from cannery.ship.io.archive import (
    check_file,
    check_members,
    check_place,
    check_stored_base,
    held_in,
    load_stored,
    read_blocks,
    read_side_of,
    saved_config,
    saved_layers,
    side_path,
    stored_layers,
    whole_file,
    write_bundle,
)
from cannery.ship.standalone import load as load_bundle
from cannery.store.io.archive import load_archive
from cannery.util.addresses import parse_reference

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from cannery.context import Context
    from cannery.engine.oci import EngineImage
    from cannery.host.io.place import ImagePlace
    from cannery.ship.bundle import SideFile
    from cannery.ship.io.archive import Packed

WRITTEN = "name what `build.py bundle` or `build.py save` wrote"


@engine_errors()
def bundle(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write a profile's image to a file that includes a loader; with --since, only layers that are not in OLD."""
    path = _output(arguments)
    place, image, held = found = _held(arguments, context)
    base = _base(arguments.since, place, held, context)
    if base is None:  # engines do not report the size of each layer
        check_output_space(path, image.size)
    wanted = new_layers(held.layers, base.layers if base else ())
    with whole_file(path, base) as part, _packed(context, found, path, wanted) as (layers, config):
        part.image = write_bundle(part, held, base, layers, config)
    _print(context, path)
    return ExitCode.DONE


@contextmanager
def _packed(
    context: Context, found: Found, path: Path, wanted: Sequence[str]
) -> Iterator[tuple[Packed, Callable[[], bytes]]]:
    """Yield layers of an image as gzip, and a function that returns its configuration. Progress is shown."""
    place, image, held = found
    show = partial(transfer, f"bundling {path}", stream=sys.stderr, is_terminal=context.is_terminal)
    if isinstance(place, StorePlace):
        store = place.store
        store.bring(wanted)
        with show(sum(store.needed_layer(one).size for one in wanted)) as view:
            yield stored_layers(store, wanted, view), store.blob_path(image.id).read_bytes
        return
    small = dict[str, bytes]()
    with show(image.size) as view, save(place.engine, place.env, held.references, image.arch, view) as blocks:
        yield saved_layers(blocks, wanted, small, path.parent), partial(saved_config, small)


def _output(arguments: argparse.Namespace) -> Path:
    if not arguments.output:
        name = arguments.profile
        raise UsageError("OUTPUT is not set", hint=f"`build.py bundle {name} --output {name}.tar`")
    path = Path(arguments.output)
    if path.suffix != ".tar":
        hint = "name it FILE.tar; its layers are compressed one by one, as gzip"
        raise UsageError("the name of the file has to end with .tar", where=str(path), hint=hint)
    check_place(path)
    return path


class Found(NamedTuple):
    """An image, the place that it is in, and its description in an archive."""

    place: ImagePlace
    image: EngineImage
    held: Held


def _held(arguments: argparse.Namespace, context: Context) -> Found:
    """Return the place of a profile's image, and the image with the plan's names."""
    _, plan, _ = planned(context, arguments.profile, options_of(arguments))
    place = place_with(context, plan.reference)
    image = place.needed(plan.reference, plan.recipe.name)
    names = tuple(name for name in plan.references if name == plan.reference or name in image.tags)
    digest = next((name.partition("@")[2] for name in image.digests), "")
    return Found(place, image, Held(image.id, image.platform, names, image.layers, digest))


def _base(since: str | None, place: ImagePlace, held: Held, context: Context) -> Held | None:
    """Return the image that the other host has, from a file or from this host; None if no layer is shared.

    Equal layers are not an error: a nightly job needs a file each night, and maybe only labels have changed.
    """
    if not since:
        return None
    base = held_in(Path(since)) or _local_image(place, since)
    if base.platform != held.platform:
        what, hint = (
            f"{since} is for {base.platform}, and the image for {held.platform}",
            "name one for the same platform",
        )
        raise UsageError(what, where="SINCE", hint=hint)
    new = new_layers(held.layers, base.layers)
    if len(new) == len(set(held.layers)):
        context.say(f"{since} shares no layer with this image: a complete bundle is written")
        return None
    note = "" if new else ": the bundle has only the image's configuration, a few KB"
    context.say(f"{len(new)} of {len(set(held.layers))} layers are new since {since}{note}")
    return base


def _local_image(place: ImagePlace, reference: str) -> Held:
    image = None
    with suppress(UsageError):  # an engine reports an error, not a missing image, for an invalid reference
        parse_reference(reference, "SINCE")
        image = place.find(reference)
    if image is None:
        hint = "SINCE is a bundle or its side file, an archive of `save` or its side file, or an image on this host"
        raise UsageError(f"{reference} is not a file or an image on this host", where="SINCE", hint=hint)
    return Held(image.id, image.platform, image.tags or (reference,), image.layers)


def _print(context: Context, path: Path) -> None:
    side = read_side_of(path)
    if side is None:
        raise UnableError("its side file was not written", where=str(path), hint="run the same command again")
    rows = {
        "file": str(path),
        "bytes": str(side.bytes),
        "sha256": side.sha256,
        "image": ", ".join(side.image.references),
        "id": side.image.id,
        "platform": side.image.platform,
        "needs": ", ".join(side.base.references) if side.base else "",
    }
    if context.is_json:
        print(side_path(path).read_text(encoding="utf-8"), end="")
        return
    print("\n".join(row_lines(rows.items())))
    print(f"on the other host: tar -xf {path.name} load.py && python3 load.py {path.name}")


@engine_errors()
def load_file(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Load an archive of `save` or `bundle`, and check it against its side file."""
    path = Path(arguments.file)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "it is not a regular file" if path.exists() else "no such file"
        raise UsageError(what, where=str(path), hint=WRITTEN)
    side = read_side_of(path)
    if side is None and not tarfile.is_tarfile(path):
        raise UsageError("this is not an archive", where=str(path), hint=WRITTEN)
    if side is None and not arguments.force:
        hint = f"copy it too, or the archive may be cut off; `build.py load {path} --force` loads it unchecked"
        raise FindingsError(f"{side_path(path).name} is not beside it", where=str(path), hint=hint)
    place = kept_place(context)
    if side is not None:
        _check_platform(place, side, path, is_forced=arguments.force)
    try:
        return _load(context, place, path, side)
    except load_bundle.LoadError as error:
        kinds = {2: UsageError, 3: FindingsError}
        raise kinds.get(error.code, UnableError)(error.what, where=str(path), hint=error.hint) from error


def _load(context: Context, place: ImagePlace, path: Path, side: SideFile | None) -> ExitCode:
    opened = _opened(path, side)
    if opened is not None:
        with opened:
            return _load_bundle(context, place, opened, side)
    _check(context, path, side)
    with transfer(f"loading {path}", path.stat().st_size, sys.stderr, is_terminal=context.is_terminal) as view:
        try:
            blocks = read_blocks(path)
            if isinstance(place, StorePlace):
                references = load_archive(place.store, counted(blocks, view), str(path))
            else:
                check_members(path)
                references = load(place.engine, place.env, blocks, view)
        except EngineError as error:
            raise load_error(error, str(path), context.pip.redact) from error
    return _loaded(context, place, side.image if side else None, references, str(path))


def _load_bundle(context: Context, place: ImagePlace, opened: load_bundle.Bundle, side: SideFile | None) -> ExitCode:
    job: Callable[[], object]
    if isinstance(place, StorePlace):
        check_stored_base(place.store, opened)
        job = partial(load_stored, place.store, opened)
    else:
        command = load_bundle.Docker(place.engine.command(), place.env)
        base = load_bundle.find_base(opened, command)  # before the check of hashes, which takes a minute
        job = partial(load_bundle.load, opened, command, base, context.say)
    if side is not None and list(side.image.layers) != opened.layers:
        raise _other_image(opened.path)
    _check(context, Path(opened.path), side)
    with transfer(f"loading {opened.path}", 0, sys.stderr, is_terminal=context.is_terminal):
        job()
    references = tuple(opened.about["image"]["references"])
    return _loaded(context, place, side.image if side else None, references, opened.path)


def _check(context: Context, path: Path, side: SideFile | None) -> None:
    if side is not None:
        size = path.stat().st_size
        with transfer(f"checking {path}", size, sys.stderr, is_terminal=context.is_terminal) as view:
            check_file(path, side, view)


def _loaded(
    context: Context, place: ImagePlace, held: Held | None, references: tuple[str, ...], where: str
) -> ExitCode:
    """Print the loaded image. Raises `FindingsError` if it is not `held`."""
    if not references:
        raise FindingsError("no image in it has a name", where=where, hint="name it before `docker save`")
    found = place.find(held.id if held else references[0]) or place.find(references[0])
    if found is None:
        raise UnableError("it is no longer here", where=references[0], hint="load it again")
    if held is not None and found.id != held.id and found.layers != held.layers:
        raise _other_image(where)
    rows = {"image": ", ".join(references), "id": found.id, "platform": found.platform}
    print_result(context, {**rows, "image": list(references)}, row_lines(rows.items()))
    return ExitCode.DONE


def _other_image(where: str) -> FindingsError:
    hint = "one of the two belongs to another archive: copy both again, or make both again"
    return FindingsError("its image is not the one in its side file", where=where, hint=hint)


def _opened(path: Path, side: SideFile | None) -> load_bundle.Bundle | None:
    """Return a bundle that needs layers of an older image; None for a complete archive or bundle."""
    if side is not None:
        return load_bundle.Bundle(str(path)) if side.base else None
    try:
        found = load_bundle.Bundle(str(path))
    except load_bundle.LoadError:
        return None
    return found if found.about["base"] else None


def _check_platform(place: ImagePlace, side: SideFile, path: Path, *, is_forced: bool) -> None:
    own = f"linux/{place.engine.arch if isinstance(place, EnginePlace) else place.arch}"
    if side.image.platform != own and not is_forced:
        hint = f"`build.py load {path} --force` loads it anyway, to pass it on to such a machine"
        what = f"the image is for {side.image.platform}, and this host runs {own}"
        raise FindingsError(what, where=str(path), hint=hint)


COMMANDS = {"save": bundle, "bundle": bundle, "load": load_file}
