"""Read what is in an image of the engine: by a container that only reads, or from its export.

A container is the quick way: a walk takes a second or two, where an export sends 20 GB through a pipe. It wants a
Python in the image and a CPU that runs it. An image of another arch, and one without a Python that starts, is exported:
that takes minutes and runs nothing of the image. Both read the same files (`cannery.against.io.look`).
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.against.io.look import PRUNED, Look
from cannery.against.seen import Seen
from cannery.engine.io.containers import label_words, own_name
from cannery.engine.io.inspect import image_id
from cannery.engine.words import client_words
from cannery.errors import UnableError, UsageError
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
class Questions:
    """What is looked for beside what tells of packages: `cannery.against.io.look.Look`'s own."""

    suffixes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """What an engine says of an image without looking into it."""

    id: str
    arch: str
    env: Mapping[str, str]
    labels: Mapping[str, str]
    history: tuple[str, ...]


def read_config(client: ImageClient, reference: str) -> Config:
    """Return an image's configuration.

    Raises `UsageError` where the engine has it not, `UnableError` where it does not answer.
    """
    found = image_id(client, reference)
    if found is None:
        hint = f"docker pull {reference}, or docker load, on this engine (build.py engine status says which)"
        raise UsageError(f"no image {reference} on this engine", hint=hint)
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        image = client.images.get(found)
        attributes, history = image.attrs, image.history()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise UnableError(f"the engine does not answer: {error}", where=reference) from error
    config: dict[str, Any] = attributes.get("Config") or {}
    pairs = (text.partition("=")[::2] for text in config.get("Env") or ())
    commands = tuple(str(layer.get("CreatedBy") or "") for layer in history)
    return Config(
        found, str(attributes.get("Architecture", "")), dict(pairs), dict(config.get("Labels") or {}), commands
    )


def read_image(
    engine: Engine, env: Mapping[str, str], config: Config, questions: Questions, say: Callable[[str], None]
) -> Seen:
    """Return what is in an image; `env` is the client's. Raises `UnableError` where the engine can do neither."""
    value = None if config.arch != engine.arch else _by_container(engine, env, config, questions)
    if value is None:
        why = f"it is for {config.arch}" if config.arch != engine.arch else "no Python starts in it"
        say(f"reading the image from its export, since {why}: some minutes for a big one")
        value = _by_export(engine, env, config, questions)
    return Seen(
        arch=config.arch,
        env=config.env,
        labels=config.labels,
        history=config.history,
        texts=value["texts"],
        links=value["links"],
        present=frozenset(value["present"]),
        caches=value["caches"],
    )


def _by_container(
    engine: Engine, env: Mapping[str, str], config: Config, questions: Questions
) -> dict[str, Any] | None:
    """Walk the image in a container of it; None where no Python of its own starts there."""
    name = own_name("against")
    asked = json.dumps({"suffixes": questions.suffixes, "folders": questions.folders, "exists": questions.libraries})
    # Nothing that the image's Python would load by itself: it may be what is broken.
    python = ("--env", "LD_PRELOAD=", "--entrypoint", "python3", config.id, "-I", "-S", "-", asked)
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
    return value if isinstance(value, dict) and {"texts", "links", "present", "caches"} <= value.keys() else None


def _by_export(engine: Engine, env: Mapping[str, str], config: Config, questions: Questions) -> dict[str, Any]:
    """Read the image's files out of the tar of a container that is never started, as it comes."""
    foreign = engine.foreign(config.arch)
    options = ("--network", "none", *label_words(), *(("--platform", foreign) if foreign else ()))
    made = run(engine.command("create", *options, config.id, "/none"), env=env, check=False)
    if made.returncode:
        said = client_words(made.stderr, made.returncode)
        hint = f"`docker create {config.id}` by hand has to work first; `build.py doctor` looks at the engine"
        raise UnableError(f"the engine makes no container of the image: {said}", where=config.id, hint=hint)
    container = made.stdout.strip().splitlines()[-1]
    try:
        return _exported(engine, env, container, questions)
    finally:
        run(engine.command("rm", "--force", container), env=env, check=False)


def _exported(engine: Engine, env: Mapping[str, str], container: str, questions: Questions) -> dict[str, Any]:
    look = Look(questions.suffixes, questions.folders, questions.libraries)
    command = engine.command("export", container)
    with subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        try:
            with tarfile.open(fileobj=export.stdout, mode="r|") as tar:
                look_at_tar(look, tar)
        except tarfile.TarError as error:
            export.kill()
            said = export.stderr.read().decode(errors="replace").strip() if export.stderr else ""
            raise UnableError(f"the engine's export breaks off: {said or error}", where=container) from error
        except BaseException:
            export.kill()
            raise
    return look.value()


def look_at_tar(look: Look, tar: tarfile.TarFile) -> None:
    """Look at every file of a tar of a whole system, once, in its order."""
    names: dict[str, str] = {}
    for member in tar:
        path = "/" + member.name.removeprefix("./").strip("/")
        tar.members.clear()  # type: ignore[attr-defined] # typeshed has it not; it would keep half a million of them
        if any(PRUNED.search(path[:end]) for end in _ends(path)):
            continue
        if member.issym():
            look.link(path, member.linkname)
        elif member.isfile():
            look.cached(path, member.size)
            if look.wants(path) and (data := tar.extractfile(member)) is not None:
                look.keep(path, data.read(1 << 20))
        elif member.islnk() and look.wants(path):
            names[path] = "/" + member.linkname.removeprefix("./").strip("/")
    for path, first in names.items():  # a hard link's text stands at its first name, a file of its kind
        if first in look.texts:
            look.texts[path] = look.texts[first]


def _ends(path: str) -> list[int]:
    return [index for index, sign in enumerate(path) if sign == "/" and index] + [len(path)]
