"""A Docker engine's API as the docker SDK's client reaches it, without the SDK's time-out, and errors in its words."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from cannery.engine.stream import Trouble, trouble_of
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import docker

    from cannery.context import Context
    from cannery.errors import ExitCode


class StreamError(Exception):
    """What an engine told in its stream, and which kind of trouble it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.trouble = trouble_of(message)


def request(client: docker.DockerClient, method: str, path: str, **more: Any) -> Any:  # noqa: ANN401 - requests' own
    """Ask the engine for `path` below its API's version; the answer's body is not read yet."""
    import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

    api = client.api
    try:
        # No time-out at all: the SDK's clients are made with one of a minute by default.
        return api.request(method, f"{api.base_url}/v{api.api_version}{path}", stream=True, timeout=None, **more)
    except (requests.RequestException, OSError) as error:
        raise gone(error) from error


def answer(response: Any) -> dict[str, Any]:  # noqa: ANN401 - requests' own
    """Return the JSON table that an answer holds."""
    import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

    try:
        value = checked(response).json()
    except (requests.RequestException, ValueError) as error:
        raise gone(error) from error
    if not isinstance(value, dict):
        raise UnableError("the engine does not answer as Docker does")
    return value


def checked(response: Any) -> Any:  # noqa: ANN401 - requests' own
    """Return an answer that is one; raise `StreamError` with the engine's words for a status of trouble."""
    if response.status_code < 400:
        return response
    with response:
        text = response.text[:2000]
    try:
        text = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        text = text.strip() or f"HTTP {response.status_code}"
    raise StreamError(text)


def gone(error: Exception) -> UnableError:
    """Return the error for an engine that does not answer, or no more."""
    words = str(error) or type(error).__name__
    return UnableError(
        f"the engine went away in the middle: {words[:300]}",
        hint="see that it runs (`build.py engine status`), then run the same command again",
    )


def told(error: StreamError, what: str, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the error that a user sees for what an engine told: `what` failed, on `where`."""
    message = redact(error.message)
    match error.trouble:
        case Trouble.DENIED:
            hint = "`docker login` there with an account that may; credentials come from docker's own settings only"
            return NetworkError(f"{what}: the registry refuses access: {message}", where=where, hint=hint)
        case Trouble.SPACE:
            return UnableError(f"{what}: no room: {message}", where=where, hint="free some disk, then the same again")
        case Trouble.ARCHIVE:
            return FindingsError(f"{what}: the archive is broken: {message}", where=where, hint="copy or make it again")
        case Trouble.PLATFORM:
            return NetworkError(f"{what}: it is not there for this platform: {message}", where=where)
        case _:
            hint = "the same command goes on from here"
            if "HTTP status: 5" in message:
                hint = f"the registry has trouble of its own, such as a full disk: its log says which; then {hint}"
            return NetworkError(f"{what}: {message}", where=where, hint=hint)


def loading(error: StreamError, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the error that a user sees where an engine does not take an archive: no registry has a part in that."""
    message = redact(error.message)
    if error.trouble is Trouble.SPACE:
        return UnableError(f"load: no room: {message}", where=where, hint="free some disk, then the same again")
    if error.trouble is Trouble.ARCHIVE or "eof" in message.lower():
        return FindingsError(f"load: the archive is broken: {message}", where=where, hint="copy or make it again")
    return UnableError(f"load: {message}", where=where)


def as_errors(
    command: Callable[[argparse.Namespace, Context], ExitCode],
) -> Callable[[argparse.Namespace, Context], ExitCode]:
    """Return a command whose engine's and SDK's errors, where nothing has better words for them, are our own."""

    @functools.wraps(command)
    def guarded(arguments: argparse.Namespace, context: Context) -> ExitCode:
        import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
        import requests  # noqa: PLC0415

        try:
            return command(arguments, context)
        except StreamError as error:
            raise UnableError(f"the engine: {context.pip.redact(error.message)}") from error
        except docker.errors.APIError as error:
            raise UnableError(f"the engine: {context.pip.redact(str(error.explanation or error))}") from error
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise gone(error) from error

    return guarded
