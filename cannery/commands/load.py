"""`load`: an archive of `save` or `bundle` into an engine, when it is whole and fits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.build.io.transfer_view import transfer
from cannery.commands.engine_errors import as_errors
from cannery.commands.table import row_lines
from cannery.engine.io.client import EngineError, load, load_error
from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.inspect import find_image
from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.ship.io.archive import check_file, check_members, read_blocks, read_side_of, side_path
from cannery.ship.standalone import load as load_bundle

if TYPE_CHECKING:
    import argparse

    import docker

    from cannery.context import Context
    from cannery.engine.io.find import Engine
    from cannery.ship.archive import Held, SideFile


@as_errors
def load_file(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Load an archive of `save` or `bundle` that is what its side file describes."""
    path = Path(arguments.file)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "it is no plain file" if path.exists() else "no such file"
        raise UsageError(what, where=str(path), hint="name what `build.py save` or `build.py bundle` wrote")
    side = read_side_of(path)
    if side is None and not arguments.force:
        hint = "copy it too; an archive without one was cut off or is not Cannery's: --force loads it unchecked"
        raise FindingsError(f"{side_path(path).name} is not beside it", where=str(path), hint=hint)
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    if side is not None:
        _check_platform(engine, side, path, is_forced=arguments.force)
    try:
        return _load(context, engine, path, side)
    except load_bundle.LoadError as error:
        kinds = {2: UsageError, 3: FindingsError}
        raise kinds.get(error.code, UnableError)(error.what, where=str(path), hint=error.hint) from error


def _load(context: Context, engine: Engine, path: Path, side: SideFile | None) -> ExitCode:
    client = docker_client(engine)
    opened = _opened(path, side)
    if opened is not None:
        with opened:
            return _load_bundle(context, engine, opened, side)
    _check(context, path, side)
    check_members(path)
    with transfer(f"loading {path}", path.stat().st_size, sys.stderr, is_terminal=context.is_terminal) as view:
        try:
            references = load(client, read_blocks(path), view).loaded
        except EngineError as error:
            raise load_error(error, str(path), context.pip.redact) from error
    return _loaded(context, client, side.image if side else None, references, str(path))


def _load_bundle(context: Context, engine: Engine, opened: load_bundle.Bundle, side: SideFile | None) -> ExitCode:
    command = load_bundle.Docker(engine.command(), engine.client_env(context.env))
    base = load_bundle.find_base(opened, command)  # before a minute is spent on sums
    if side is not None and list(side.image.layers) != opened.layers:
        raise _other_image(opened.path)
    _check(context, Path(opened.path), side)
    with transfer(f"loading {opened.path}", 0, sys.stderr, is_terminal=context.is_terminal):
        load_bundle.load(opened, command, base, context.say)
    references = tuple(opened.about["image"]["references"])
    return _loaded(context, docker_client(engine), side.image if side else None, references, opened.path)


def _check(context: Context, path: Path, side: SideFile | None) -> None:
    if side is not None:
        size = path.stat().st_size
        with transfer(f"checking {path}", size, sys.stderr, is_terminal=context.is_terminal) as view:
            check_file(path, side, view)


def _loaded(
    context: Context, client: docker.DockerClient, held: Held | None, references: tuple[str, ...], where: str
) -> ExitCode:
    """Print the image that the engine has now. Raises `FindingsError` for another one than `held`."""
    found = find_image(client, held.id if held else references[0]) or find_image(client, references[0])
    if found is None:
        raise UnableError("the engine no longer has it", where=references[0], hint="load it again")
    if held is not None and found.id != held.id and found.layers != held.layers:
        raise _other_image(where)
    rows = {"image": ", ".join(references), "id": found.id, "platform": found.platform}
    if context.is_json:
        print(json.dumps({**rows, "image": list(references)}, indent=2))
    else:
        print("\n".join(row_lines(rows.items())))
    return ExitCode.DONE


def _other_image(where: str) -> FindingsError:
    hint = "one of the two belongs to another archive: copy both again, or make both again"
    return FindingsError("it has another image than its side file describes", where=where, hint=hint)


def _opened(path: Path, side: SideFile | None) -> load_bundle.Bundle | None:
    """Return a file as a bundle; None for another archive, as its side file or its content shows."""
    if side is not None:
        return load_bundle.Bundle(str(path)) if side.kind == "bundle" else None
    try:
        return load_bundle.Bundle(str(path))
    except load_bundle.LoadError:
        return None


def _check_platform(engine: Engine, side: SideFile, path: Path, *, is_forced: bool) -> None:
    own = f"linux/{engine.arch}"
    if side.image.platform != own and not is_forced:
        hint = "--force loads it nevertheless, to hand it on to such a machine"
        what = f"the image is for {side.image.platform}, and this engine runs {own}"
        raise FindingsError(what, where=str(path), hint=hint)


COMMANDS = {"load": load_file}
