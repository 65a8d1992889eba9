"""Push, pull, save and load by a Docker engine's API: streams that are read to their end, whatever it takes.

The docker SDK's own methods give up after 60 s of silence and end well whatever the stream says. So its client is used
as the HTTP session that it is, without a time-out: large layers keep an engine silent for minutes. What an engine tells
in the stream decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from cannery.engine.io.client import StreamError, checked, gone, request
from cannery.engine.stream import LineBuffer, StreamState, apply_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import docker

# Bytes that are asked for at once; memory stays at a few of these, whatever an image's size.
BLOCK = 1 << 20


class StreamView(Protocol):
    """What shows a transfer (`cannery.build.io.transfer_view` makes them)."""

    def state(self, state: StreamState) -> None:
        """Show what an engine tells."""

    def moved(self, count: int) -> None:
        """Show how many bytes have gone through this host so far."""


def push(
    client: docker.DockerClient, reference: str, auth: str, view: StreamView, platform: Mapping[str, str]
) -> StreamState:
    """Push a tag. `auth` is the registry's header. Raises `StreamError`, and `UnableError` when the engine is away."""
    repository, _, tag = reference.rpartition(":")
    path = f"/images/{quote(repository, safe='/:')}/push"
    headers = {"X-Registry-Auth": auth}
    state = _stream(client, view, path, {"tag": tag, **platform}, headers=headers)
    if not state.digest:
        raise StreamError("the engine's stream ended before it named a digest")
    return state


def pull(client: docker.DockerClient, reference: str, platform: str, auth: str, view: StreamView) -> StreamState:
    """Pull a tag for a platform (`linux/arm64`). Raises as `push` does."""
    repository, _, tag = reference.rpartition(":")
    parameters = {"fromImage": repository, "tag": tag, "platform": platform}
    state = _stream(client, view, "/images/create", parameters, headers={"X-Registry-Auth": auth})
    if not state.digest:
        raise StreamError("the engine's stream ended before it named a digest")
    return state


def load(client: docker.DockerClient, blocks: Iterable[bytes], view: StreamView) -> StreamState:
    """Load an archive that comes in blocks. Raises as `push` does; the engine names what it has loaded."""
    headers = {"Content-Type": "application/x-tar"}
    state = _stream(client, view, "/images/load", {"quiet": "0"}, headers=headers, data=_counted(blocks, view))
    if not state.loaded:
        raise StreamError("invalid manifest: the engine's stream ended before it named an image")
    return state


def save(
    client: docker.DockerClient, names: Iterable[str], platform: Mapping[str, str]
) -> AbstractContextManager[Iterator[bytes]]:
    """Open the archive of an image by its names, as blocks. Raises `UnableError` when the engine is away.

    An engine that fails midway writes words in the place of the rest: whoever reads looks whether the tar has its end.
    """
    parameters = [*(("names", name) for name in names), *platform.items()]
    return _Blocks(checked(request(client, "GET", "/images/get", params=parameters)))


class _Blocks:
    """The body of an answer, in blocks."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - requests' own
        self._response = response

    def __enter__(self) -> Iterator[bytes]:
        return self._read()

    def __exit__(self, *_exc: object) -> None:
        self._response.close()

    def _read(self) -> Iterator[bytes]:
        import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

        try:
            yield from self._response.iter_content(BLOCK)
        except (requests.RequestException, OSError) as error:
            raise gone(error) from error


def _counted(blocks: Iterable[bytes], view: StreamView) -> Iterator[bytes]:
    sent = 0
    for block in blocks:
        yield block
        sent += len(block)
        view.moved(sent)


def _stream(
    client: docker.DockerClient,
    view: StreamView,
    path: str,
    parameters: Mapping[str, str],
    **more: Any,  # noqa: ANN401
) -> StreamState:
    import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

    state, buffer = StreamState(), LineBuffer()
    with checked(request(client, "POST", path, params=parameters, **more)) as response:
        try:
            for data in response.iter_content(1 << 16):
                for line in buffer.feed(data):
                    state = apply_line(state, line)
                view.state(state)
            for line in buffer.rest():
                state = apply_line(state, line)
        except (requests.RequestException, OSError, ValueError) as error:
            if state.error:  # it has said why it ends
                raise StreamError(state.error) from error
            raise gone(error) from error
    if state.error:
        raise StreamError(state.error)
    return state
