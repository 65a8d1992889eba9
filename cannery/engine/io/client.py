"""Push, pull, save and load by a Docker engine's API, through the docker SDK's client.

The SDK's own methods for these succeed whatever the stream reports, and know no platform to push or save. So the client
is used as the HTTP session that it is, without a time-out: large layers keep an engine silent for minutes.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from cannery.engine.stream import ENGINE_PROXY, MAY_PASS, StreamState, Trouble, apply_line, trouble_of
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError
from cannery.util.addresses import split_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import docker

# Bytes that are read at once; memory stays at a few of these, whatever an image's size.
BLOCK = 1 << 20


class EngineError(Exception):
    """What an engine reported in a response or a stream, and which kind of trouble it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.trouble = trouble_of(message)

    @property
    def may_pass(self) -> bool:
        """Whether another try may help."""
        return self.trouble in MAY_PASS


class TransferView(Protocol):
    """What shows a transfer (`cannery.build.io.transfer_view` makes it); `done` as there."""

    done: int

    def state(self, state: StreamState) -> None:
        """Show what an engine reports."""

    def moved(self, count: int) -> None:
        """Show how many bytes have gone through this host so far."""


def request(client: docker.DockerClient, method: str, path: str, **more: Any) -> Any:  # noqa: ANN401 - requests' own
    """Return the engine's response to a request below its API's version; its body is not read yet.

    Raises `EngineError` for a status of trouble, and `UnableError` when the engine does not answer.
    """
    import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

    api = client.api
    try:
        # No time-out at all: the SDK's clients have one of a minute by default.
        url = f"{api.base_url}/v{api.api_version}{path}"
        response = api.request(method, url, stream=True, timeout=None, **more)
    except (requests.RequestException, OSError) as error:
        raise gone(error) from error
    if response.status_code >= 400:
        with response:
            raise EngineError(_message(response.text[:2000]) or f"HTTP {response.status_code}")
    return response


def _read(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Give parts of a response's body. Raises `UnableError` when the engine breaks off."""
    import requests  # noqa: PLC0415 - the SDK is imported when an engine is used

    try:
        yield from parts
    except (requests.RequestException, OSError) as error:
        raise gone(error) from error


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()


def gone(error: Exception) -> UnableError:
    """Return the error for an engine that does not answer, or no more."""
    words = str(error) or type(error).__name__
    return UnableError(
        f"the connection to the engine was lost: {words[:300]}",
        hint="see that it runs (`docker info`), then run the same command again",
    )


def push(
    client: docker.DockerClient, reference: str, auth: str, view: TransferView, platform: Mapping[str, str]
) -> StreamState:
    """Push a tag; `auth` is the value of `X-Registry-Auth`, `platform` the parameter of `platform_parameter`.

    Raises `EngineError`, and `UnableError` when the engine is away.
    """
    repository, tag = split_tag(reference)
    path = f"/images/{quote(repository, safe='/:')}/push"
    return _with_digest(_stream(client, view, path, {"tag": tag, **platform}, headers={"X-Registry-Auth": auth}))


def pull(client: docker.DockerClient, reference: str, platform: str, auth: str, view: TransferView) -> StreamState:
    """Pull a tag for a platform (`linux/arm64`). Raises as `push` does."""
    repository, tag = split_tag(reference)
    parameters = {"fromImage": repository, "tag": tag, "platform": platform}
    return _with_digest(_stream(client, view, "/images/create", parameters, headers={"X-Registry-Auth": auth}))


def load(client: docker.DockerClient, blocks: Iterable[bytes], view: TransferView) -> StreamState:
    """Load an archive that comes in blocks; the state names what was loaded. Raises as `push` does."""
    headers = {"Content-Type": "application/x-tar"}
    state = _stream(client, view, "/images/load", {"quiet": "0"}, headers=headers, data=counted(blocks, view))
    if not state.loaded:
        raise EngineError("invalid manifest: the engine's stream ended before it named an image")
    return state


def counted(blocks: Iterable[bytes], view: TransferView) -> Iterator[bytes]:
    """Yield blocks, and show how many bytes have gone through."""
    count = 0
    for block in blocks:
        yield block
        count += len(block)
        view.moved(count)


@contextmanager
def save(
    client: docker.DockerClient, names: Iterable[str], platform: Mapping[str, str], view: TransferView
) -> Iterator[Iterator[bytes]]:
    """Give the archive of an image by its names, in blocks. Raises as `push` does.

    An engine that fails midway writes a message in place of the rest: the reader checks that the tar has its end.
    """
    parameters = [*(("names", name) for name in names), *platform.items()]
    with request(client, "GET", "/images/get", params=parameters) as response:
        yield counted(_read(response.iter_content(BLOCK)), view)


def _stream(
    client: docker.DockerClient,
    view: TransferView,
    path: str,
    parameters: Mapping[str, str],
    **more: Any,  # noqa: ANN401 - requests' own
) -> StreamState:
    state = StreamState()
    with request(client, "POST", path, params=parameters, **more) as response:
        try:
            for line in _read(response.iter_lines(1 << 16, delimiter=b"\n")):
                if line.strip():
                    state = apply_line(state, line)
                    view.state(state)
        except UnableError:
            if not state.error:  # else the engine has reported why it ends
                raise
    if state.error:
        raise EngineError(state.error)
    return state


def _with_digest(state: StreamState) -> StreamState:
    if not state.digest:
        raise EngineError("the engine's stream ended before it named a digest")
    return state


# Huawei's SWR answers so: `400 Invalid image, fail to parse 'manifest.json'`.
OCI_REFUSED = (
    "the registry may take no OCI manifests: build the image again (`build.py image`), which makes Docker's, then push"
)
_AGAIN = "the same command goes on from here"
# What a user reads before and after the engine's message.
_REGISTRY: dict[Trouble, tuple[str, str]] = {
    Trouble.DENIED: (
        "the registry refuses access: ",
        "`docker login` there with an account that may; credentials come from docker's own settings only",
    ),
    Trouble.DAMAGED: (
        "the registry does not give all of this image: ",
        "a host that has the image repairs it with `build.py push --force`",
    ),
    Trouble.BUSY: ("", f"the registry limits the rate of requests: wait a while; {_AGAIN}"),
    Trouble.SERVER: ("", f"the registry itself has trouble, such as a full disk: see its log; then {_AGAIN}"),
}


def registry_error(error: EngineError, what: str, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the user's error for a push or pull that failed: `what` it was, on `where`."""
    message = redact(error.message)
    if error.trouble is Trouble.SPACE:
        return UnableError(f"{what}: no room: {message}", where=where, hint="free some disk, then the same again")
    # The tag was read before the pull: what is missing now is a part of its image.
    trouble = Trouble.DAMAGED if what == "pull" and error.trouble is Trouble.ABSENT else error.trouble
    words, hint = _REGISTRY.get(trouble, ("", _AGAIN))
    low = message.lower()
    if "no such host" in low:
        hint = ENGINE_PROXY
    elif what == "push" and ("manifest.json" in low or "manifest invalid" in low or "manifest_invalid" in low):
        hint = OCI_REFUSED
    return NetworkError(f"{what}: {words}{message}", where=where, hint=hint)


def load_error(error: EngineError, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the user's error for an archive that an engine does not take."""
    message = redact(error.message)
    if error.trouble is Trouble.SPACE:
        return UnableError(f"load: no room: {message}", where=where, hint="free some disk, then the same again")
    if error.trouble is Trouble.ARCHIVE or "eof" in message.lower():
        return FindingsError(f"load: the archive is broken: {message}", where=where, hint="copy or make it again")
    return UnableError(f"load: {message}", where=where)
