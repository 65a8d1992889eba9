"""Errors of the engine and of docker's SDK that no command has better words for."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cannery.errors import UnableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from cannery.context import Context
    from cannery.errors import ExitCode


def as_errors(
    command: Callable[[argparse.Namespace, Context], ExitCode],
) -> Callable[[argparse.Namespace, Context], ExitCode]:
    """Return a command whose errors are those of `engine_errors`."""

    @functools.wraps(command)
    def guarded(arguments: argparse.Namespace, context: Context) -> ExitCode:
        with engine_errors(context):
            return command(arguments, context)

    return guarded


@contextmanager
def engine_errors(context: Context) -> Iterator[None]:
    """Raise `UnableError` in place of the engine's and the SDK's errors."""
    import docker.errors
    import requests

    from cannery.engine.io.client import EngineError, gone

    try:
        yield
    except EngineError as error:
        raise UnableError(f"the engine: {context.pip.redact(error.message)}") from error
    except docker.errors.APIError as error:
        raise UnableError(f"the engine: {context.pip.redact(str(error.explanation or error))}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise gone(error) from error
