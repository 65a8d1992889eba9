"""Run `look.py` with the Python of an image, in a read-only container or in a box."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.engine.io.containers import label_words, own_name
from cannery.engine.stream import client_words
from cannery.errors import UnableError, UsageError
from cannery.host.io.place import EnginePlace
from cannery.sandbox.box import Box
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.engine.oci import EngineImage
    from cannery.host.io.place import ImagePlace

SCRIPT = Path(__file__).with_name("look.py")
RUN_SECONDS = 600.0
TOOLKIT_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
LATEST = "/usr/local/Ascend/ascend-toolkit/latest"
# The container can read every file and do nothing else, since the image is not Cannery's.
ALONE = (
    *("--network", "none", "--read-only", "--user", "0", "--cap-drop", "ALL", "--cap-add", "DAC_READ_SEARCH"),
    *("--security-opt", "no-new-privileges"),
)


def find_image(place: ImagePlace, reference: str) -> EngineImage:
    """Return an image by its name. Raises `UsageError` if `place` does not have it, and like `ImagePlace.find`."""
    found = place.find(reference)
    if found is None:
        is_engine = isinstance(place, EnginePlace)
        where = "on this engine" if is_engine else "in this host's image store, and no Docker engine is running"
        hint = f"get it with `docker pull {reference}`, `build.py pull` or `build.py load`"
        raise UsageError(f"no image {reference} {where}", hint=hint)
    return found


def read_image(place: ImagePlace, config: EngineImage, files: Sequence[str]) -> Mapping[str, Any]:
    """Return what `cannery.against.io.look` prints in an image; `files` may hold CANN's versions.

    Raises `UnableError` if the image's `python3` does not start.
    """
    name = own_name("against")
    home = next((config.env[name] for name in TOOLKIT_HOMES if config.env.get(name)), LATEST)
    asked = json.dumps([list(files), home])
    try:
        done = run(
            _command(place, config, name, ("-", asked)),
            env=place.env,
            stdin=SCRIPT.read_text(encoding="utf-8"),
            timeout=RUN_SECONDS,
            check=False,
        )
    except BaseException:  # a time-out, or Ctrl-C
        if isinstance(place, EnginePlace):
            run(place.engine.command("rm", "--force", name), env=place.env, check=False)
        raise
    try:
        value = json.loads(done.stdout)
    except ValueError as error:
        why = client_words(done.stderr, done.returncode)
        hint = "its PATH has to lead to a python3"
        if isinstance(place, EnginePlace):
            hint = f"`docker run --rm --entrypoint python3 {config.id} -c 1` has to work first"
        if place.is_foreign(config.arch):
            hint += f"; it is for {config.arch}, which this host has to emulate (qemu-user-static, binfmt-support)"
        raise UnableError(f"no Python of the image starts: {why}", where=config.id, hint=hint) from error
    return dict(value)


def _command(place: ImagePlace, config: EngineImage, name: str, words: Sequence[str]) -> Sequence[str]:
    """Return the command that starts the `python3` of an image."""
    if not isinstance(place, EnginePlace):
        env = {**config.env, "LD_PRELOAD": ""}
        return place.command(Box(place.store.lowers(config.id), ("python3", *words), env=env))
    foreign = place.platform(config.arch)
    platform = ("--platform", foreign) if foreign else ()
    options = ("--rm", "--interactive", "--name", name, *platform, *label_words(), *ALONE)
    python = ("--env", "LD_PRELOAD=", "--entrypoint", "python3", config.id)
    return place.engine.command("run", *options, *python, *words)
