"""Docker's credential helpers (`docker-credential-NAME get`), asked for no longer than a person waits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Seconds; one that asks a cloud for a token takes one or two.
PATIENCE = 10.0
# Tokens of clouds have some KB.
LONGEST = 1 << 16
INDEX = "https://index.docker.io/v1/"
# What a helper calls the user of an identity token.
TOKEN = "<token>"  # noqa: S105 - a name, and no secret
ABSENT = "credentials not found"


def ask_helper(name: str, registry: str, env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return docker's entry for `registry` from its helper `name`, {} where it has none, and why it cannot be asked.

    What it says beside that is shown to nobody: it may hold what is secret.
    """
    program = f"docker-credential-{name}"
    path = shutil.which(program, path=env.get("PATH", os.defpath))
    if path is None:
        return {}, f"{program} is not on PATH"
    server = INDEX if registry == "docker.io" else registry
    try:
        said, status = _said(path, server, env)
        if status != 0:
            return {}, "" if ABSENT in said.lower() else f"{program} failed (status {status})"
        value: Any = json.loads(said)
        user, secret = str(value["Username"]), str(value["Secret"])
    except TimeoutError:
        return {}, f"{program} does not answer ({PATIENCE:g} s)"
    except OSError as error:
        return {}, f"{program} cannot be started: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}, f"{program} does not answer as a credential helper does"
    found = {"IdentityToken": secret} if user == TOKEN else {"Username": user, "Password": secret}
    return {"ServerAddress": server, **found}, ""


def _said(path: str, server: str, env: Mapping[str, str]) -> tuple[str, int]:
    """Return what a helper prints, and its status. Raises `TimeoutError` for one that is ended, with all its children.

    One that says more than any helper has to is ended too.
    """
    pipe, late = subprocess.PIPE, threading.Event()
    with subprocess.Popen(
        (path, "get"), env=dict(env), start_new_session=True, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:

        def end() -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        def give_up() -> None:
            late.set()
            end()

        timer = threading.Timer(PATIENCE, give_up)
        timer.start()
        try:
            said = _exchange(process.stdin, process.stdout, server)
            if len(said) <= LONGEST:
                process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                end()
    if late.is_set():
        raise TimeoutError
    return said.decode("utf-8", "replace"), process.wait()


def _exchange(into: IO[bytes] | None, out: IO[bytes] | None, server: str) -> bytes:
    if into is None or out is None:
        raise OSError("no pipe")
    with suppress(BrokenPipeError), into:
        into.write(server.encode())
    return out.read(LONGEST + 1)
