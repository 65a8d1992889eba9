"""Ask the Python of an image what is in it, in a container that can only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.against.image import Config
from cannery.engine.io.containers import label_words, own_name
from cannery.engine.io.inspect import image_id
from cannery.engine.stream import client_words
from cannery.errors import UnableError, UsageError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.engine.io.find import Engine
    from cannery.engine.io.inspect import ImageClient

SCRIPT = Path(__file__).with_name("look.py")
RUN_SECONDS = 600.0
TOOLKIT_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
LATEST = "/usr/local/Ascend/ascend-toolkit/latest"
# It can read every file, and do nothing else: the image is somebody's own.
ALONE = (
    *("--network", "none", "--read-only", "--user", "0", "--cap-drop", "ALL", "--cap-add", "DAC_READ_SEARCH"),
    *("--security-opt", "no-new-privileges"),
)


def read_config(client: ImageClient, reference: str) -> Config:
    """Return an image's configuration.

    Raises `UsageError` where the engine does not have it, `UnableError` where the engine does not answer.
    """
    found = image_id(client, reference)
    if found is None:
        hint = f"docker pull {reference}, or docker load, on this engine (`docker info` reports which)"
        raise UsageError(f"no image {reference} on this engine", hint=hint)
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        attributes = client.images.get(found).attrs
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise UnableError(f"the engine does not answer: {error}", where=reference) from error
    config: dict[str, Any] = attributes.get("Config") or {}
    pairs = (text.partition("=")[::2] for text in config.get("Env") or ())
    return Config(found, str(attributes.get("Architecture", "")), dict(pairs), dict(config.get("Labels") or {}))


def read_image(engine: Engine, env: Mapping[str, str], config: Config, files: Sequence[str]) -> Mapping[str, Any]:
    """Return what the `python3` of an image sees (`cannery.against.io.look`); `files` may have CANN's versions.

    `env` is the client's. Raises `UnableError` where that Python does not start.
    """
    name = own_name("against")
    foreign = engine.foreign(config.arch)
    platform = ("--platform", foreign) if foreign else ()
    home = next((config.env[name] for name in TOOLKIT_HOMES if config.env.get(name)), LATEST)
    asked = json.dumps([list(files), home])
    python = ("--env", "LD_PRELOAD=", "--entrypoint", "python3", config.id, "-", asked)
    options = ("--rm", "--interactive", "--name", name, *platform, *label_words(), *ALONE)
    try:
        done = run(
            engine.command("run", *options, *python),
            env=env,
            stdin=SCRIPT.read_text(encoding="utf-8"),
            timeout=RUN_SECONDS,
            check=False,
        )
    except BaseException:  # it takes too long, or Ctrl-C
        run(engine.command("rm", "--force", name), env=env, check=False)
        raise
    try:
        value = json.loads(done.stdout)
    except ValueError as error:
        why = client_words(done.stderr, done.returncode)
        hint = f"`docker run --rm --entrypoint python3 {config.id} -c 1` has to work first"
        if foreign:
            hint += f"; it is for {config.arch}, which this host has to emulate (qemu-user-static, binfmt-support)"
        raise UnableError(f"no Python of the image starts: {why}", where=config.id, hint=hint) from error
    return dict(value)
