"""Read what is in an image of the engine: in a container that can only read, or from its export.

The container takes seconds; it needs a Python in the image and a CPU that runs it. An image for another CPU, or without
a Python that starts, is exported: that takes minutes. Both read the same files (`cannery.against.io.look`).
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.against.image import Files
from cannery.against.io.look import PRUNED, Look
from cannery.engine.io.containers import label_words, own_name
from cannery.engine.io.inspect import image_id
from cannery.engine.words import client_words
from cannery.errors import UnableError, UsageError
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cannery.engine.io.find import Engine
    from cannery.engine.io.inspect import ImageClient

SCRIPT = Path(__file__).with_name("look.py")
RUN_SECONDS = 600.0
# It can read every file, and do nothing else: the image is somebody's own.
ALONE = (
    *("--network", "none", "--read-only", "--user", "0", "--cap-drop", "ALL", "--cap-add", "DAC_READ_SEARCH"),
    *("--security-opt", "no-new-privileges"),
)


@dataclass(frozen=True)
class Config:
    """What the engine reports of an image."""

    id: str
    arch: str
    env: Mapping[str, str]
    labels: Mapping[str, str]


def read_config(client: ImageClient, reference: str) -> Config:
    """Return an image's configuration.

    Raises `UsageError` where the engine does not have it, `UnableError` where the engine does not answer.
    """
    found = image_id(client, reference)
    if found is None:
        hint = f"docker pull {reference}, or docker load, on this engine (build.py engine status says which)"
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


def read_image(
    engine: Engine, env: Mapping[str, str], config: Config, libraries: Sequence[str], say: Callable[[str], None]
) -> Files:
    """Return the files of an image that show what is in it; `libraries` are paths whose libraries are looked for.

    `env` is the client's. Raises `UnableError` where the engine can neither run nor export the image.
    """
    names = [path.rpartition("/")[2].split(".so")[0] for path in libraries]
    value = None if config.arch != engine.arch else _by_container(engine, env, config, names)
    if value is None:
        why = f"it is for {config.arch}" if config.arch != engine.arch else "no Python starts in it"
        say(f"reading the image from its export, since {why}: some minutes for a big one")
        value = _by_export(engine, env, config, names)
    return Files(
        arch=config.arch,
        env=config.env,
        labels=config.labels,
        texts=value["texts"],
        links=value["links"],
        present=frozenset(value["present"]),
    )


def _by_container(
    engine: Engine, env: Mapping[str, str], config: Config, libraries: list[str]
) -> dict[str, Any] | None:
    """Walk the image in a container of it; None where no Python of its own starts there."""
    name = own_name("against")
    # Nothing that the image's Python would load by itself: it may be what is broken.
    python = ("--env", "LD_PRELOAD=", "--entrypoint", "python3", config.id, "-I", "-S", "-", json.dumps(libraries))
    command = engine.command("run", "--rm", "--interactive", "--name", name, *label_words(), *ALONE, *python)
    try:
        done = run(command, env=env, stdin=SCRIPT.read_text(encoding="utf-8"), timeout=RUN_SECONDS, check=False)
    except CommandError:  # it took too long
        run(engine.command("rm", "--force", name), env=env, check=False)
        return None
    except KeyboardInterrupt:
        run(engine.command("rm", "--force", name), env=env, check=False)
        raise
    try:
        value = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"texts", "links", "present"} <= value.keys() else None


def _by_export(engine: Engine, env: Mapping[str, str], config: Config, libraries: list[str]) -> dict[str, Any]:
    """Read the image's files out of the tar of a container that is never started, as it comes."""
    foreign = engine.foreign(config.arch)
    options = ("--network", "none", *label_words(), *(("--platform", foreign) if foreign else ()))
    made = run(engine.command("create", *options, config.id, "/none"), env=env, check=False)
    if made.returncode:
        message = client_words(made.stderr, made.returncode)
        hint = f"`docker create {config.id}` by hand has to work first; `build.py doctor` looks at the engine"
        raise UnableError(f"the engine makes no container of the image: {message}", where=config.id, hint=hint)
    container = made.stdout.strip().splitlines()[-1]
    try:
        return _exported(engine, env, container, libraries)
    finally:
        run(engine.command("rm", "--force", container), env=env, check=False)


def _exported(engine: Engine, env: Mapping[str, str], container: str, libraries: list[str]) -> dict[str, Any]:
    look = Look(libraries)
    command = engine.command("export", container)
    with subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        try:
            with tarfile.open(fileobj=export.stdout, mode="r|") as tar:
                look_at_tar(look, tar)
        except tarfile.TarError as error:
            export.kill()
            message = export.stderr.read().decode(errors="replace").strip() if export.stderr else ""
            raise UnableError(f"the engine's export ends early: {message or error}", where=container) from error
        except BaseException:
            export.kill()
            raise
    return look.value()


def look_at_tar(look: Look, tar: tarfile.TarFile) -> None:
    """Look at every file of a tar of a whole system."""
    names: dict[str, str] = {}
    for member in tar:
        path = "/" + member.name.removeprefix("./").strip("/")
        tar.members.clear()  # type: ignore[attr-defined] # not in typeshed; it would keep half a million of them
        if any(PRUNED.search(path[:end]) for end in _ends(path)):
            continue
        if member.issym():
            look.link(path, member.linkname)
        elif member.isfile():
            if look.wants(path) and (data := tar.extractfile(member)) is not None:
                look.keep(path, data.read(1 << 20))
        elif member.islnk() and look.wants(path):
            names[path] = "/" + member.linkname.removeprefix("./").strip("/")
    for path, first in names.items():  # the text of a hard link is at its first name
        if first in look.texts:
            look.texts[path] = look.texts[first]


def _ends(path: str) -> list[int]:
    return [index for index, sign in enumerate(path) if sign == "/" and index] + [len(path)]
