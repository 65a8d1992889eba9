"""Run the verify script in a container of an image, with the flags that `run` gives, and keep its result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.engine.io.containers import label_words, own_name
from cannery.engine.words import client_words
from cannery.errors import UnableError, VerifyFailedError
from cannery.run.container import RunRequest, make_container
from cannery.run.docker import docker_arguments
from cannery.util.io.files import sha256_bytes, write_atomic
from cannery.util.io.patience import patience
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.catalog.catalog import ChipAccess
    from cannery.catalog.image_user import ImageUser
    from cannery.context import Context
    from cannery.engine.io.find import Engine
    from cannery.host.npus import HostNpus
    from cannery.vocab import Arch

SCRIPT = "/opt/cannery/verify.py"
PYTHON = "/opt/venv/bin/python"
# What a stored report has beside its own: which levels were asked for, and for which manifest.
ASKED = "asked"
# `docker run` ends so when it is the engine that fails: 125 the daemon, 126 and 127 a command that cannot be started.
DOCKER_S_OWN = frozenset({125, 126, 127})


def script_digest(templates: Mapping[str, str]) -> str:
    """Return one hex digest of the verify script and all its modules, of {path below templates/: text}."""
    folder = f"rootfs{PurePosixPath(SCRIPT).parent}/"
    return sha256_bytes(json.dumps(sorted(item for item in templates.items() if item[0].startswith(folder))).encode())


@dataclass(frozen=True)
class VerifyRequest:
    """What is to be verified, and how.

    `script_digest` covers the script's modules; `manifest_sha256` is what the manifest in the image must be, so that an
    image cannot weaken its own proof ("" for an image of another plan); `levels` empty means all but train. `arch` is
    the image's, `user` whom it runs as, None for root.
    """

    image: str
    image_id: str
    script_digest: str
    shm_size: str
    arch: Arch
    manifest_sha256: str = ""
    levels: tuple[str, ...] = ()
    require_npu: bool = False
    again: bool = False
    user: ImageUser | None = None


@dataclass(frozen=True)
class Verified:
    """The script's report and exit code (0 passed, 1 failed, 3 unable), and whether it was remembered."""

    report: dict[str, Any]
    status: int
    reused: bool


def verify(context: Context, engine: Engine, request: VerifyRequest, access: ChipAccess, host: HostNpus) -> Verified:
    """Return the verify result of an image: a remembered pass of the same image, script and host, or a fresh run.

    Raises `VerifyFailedError` when the script gives no report at all.
    """
    options = [word for level in request.levels for word in ("--level", level)]
    options += ["--require-npu"] if request.require_npu else []
    options += ["--manifest-sha256", request.manifest_sha256] if request.manifest_sha256 else []
    key = sha256_bytes(
        json.dumps([request.script_digest, options, sorted(host.nodes | host.paths | host.hidden)]).encode()
    )[:16]
    store = context.cache / "verified" / f"{_stem(request.image_id)}-{key}.json"
    remembered = None if request.again else _remembered(store)
    if remembered is not None:
        return Verified(remembered, 0, reused=True)
    report, status = _run(context, engine, request, access, host, options)
    if status == 0:
        asked = {"levels": list(request.levels), "manifest_sha256": request.manifest_sha256}
        write_atomic(store, json.dumps({**report, ASKED: asked}, indent=1, ensure_ascii=False))
    elif status == 1:  # what it has passed before, elsewhere or at another level, is no proof any more
        for old in store.parent.glob(f"{_stem(request.image_id)}-*.json"):
            old.unlink(missing_ok=True)
    return Verified(report, status, reused=False)


def _remembered(store: Path) -> dict[str, Any] | None:
    """Return a stored report; None where there is none, or where a crash left it cut off."""
    stored = _stored(store)
    return None if stored is None else {name: value for name, value in stored.items() if name != ASKED}


def _stored(store: Path) -> dict[str, Any] | None:
    """Return a stored report with what was asked for; None as of `_remembered`."""
    try:
        report = json.loads(store.read_text())
    except (OSError, ValueError):
        return None
    # One that does not say what was asked, as they once were, is no proof for a push: it is made anew.
    if not isinstance(report, dict) or report.get("result") != "passed" or not {"counts", ASKED} <= set(report):
        return None
    return report


def has_passed(cache: Path, image_id: str, manifest_sha256: str) -> bool:
    """Whether all levels of verify have passed on this host for exactly this image, with that manifest in it.

    A host whose NPUs or drivers have changed since counts too: it is the image that is proved.
    """
    asked = {"levels": [], "manifest_sha256": manifest_sha256}
    found = map(_stored, (cache / "verified").glob(f"{_stem(image_id)}-*.json"))
    return any(stored is not None and stored[ASKED] == asked for stored in found)


def _stem(image_id: str) -> str:
    """Return how the names of an image's stored results begin."""
    return image_id.removeprefix("sha256:")[:24]


def _run(  # noqa: PLR0913, PLR0917 - one container run
    context: Context, engine: Engine, request: VerifyRequest, access: ChipAccess, host: HostNpus, options: list[str]
) -> tuple[dict[str, Any], int]:
    name = own_name("verify")
    container = make_container(
        RunRequest(
            image=request.image,
            shm_size=request.shm_size,
            npu=bool(host.cards),
            name=name,
            command=(PYTHON, SCRIPT, "--json", *options),
            user=request.user,
            platform=engine.foreign(request.arch),
        ),
        access,
        host,
    )
    # Nothing that the image needs may come over the network at start.
    first, *rest = docker_arguments(container)
    arguments = (first, "--network", "none", *label_words(), *rest)
    env = engine.client_env(context.env)
    try:
        with patience(context.say, "verifying"):  # under emulation it takes minutes
            done = run(engine.command(*arguments), env=env, check=False)
    except KeyboardInterrupt:
        run(engine.command("rm", "--force", name), env=env, check=False)
        raise
    if done.returncode in DOCKER_S_OWN and not done.stdout:
        said = client_words(done.stderr, done.returncode)
        hint = "`build.py doctor` looks at this host's engine, nodes and driver"
        raise UnableError(f"the engine cannot start the verify container: {said}", where=request.image, hint=hint)
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError as error:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise VerifyFailedError(
            f"the verify script gave no report (status {done.returncode})\n{tail}",
            where=request.image,
            hint=f"try: docker run --rm {request.image} {PYTHON} {SCRIPT}",
        ) from error
