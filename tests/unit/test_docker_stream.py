from __future__ import annotations

import json

import pytest

from cannery.engine.stream import StreamState, Trouble, apply_line, trouble_of

DIGEST = f"sha256:{'1' * 64}"


def state_after(*events: object) -> StreamState:
    state = StreamState()
    for event in events:
        state = apply_line(state, event if isinstance(event, bytes) else json.dumps(event).encode())
    return state


def test_a_push() -> None:
    state = state_after(
        {"status": "The push refers to repository [r/x]"},
        {"status": "Preparing", "progressDetail": {}, "id": "aaa"},
        {"status": "Preparing", "progressDetail": {}, "id": "bbb"},
        {"status": "Pushing", "progressDetail": {"current": 512, "total": 2048}, "progress": "[=>]", "id": "aaa"},
        {"status": "Layer already exists", "progressDetail": {}, "id": "bbb"},
    )
    assert (state.moved, state.counts, state.digest) == ((512, 2048), (1, 2), "")
    state = apply_line(state, b'{"status":"Pushed","progressDetail":{},"id":"aaa"}')
    assert (state.moved, state.counts) == ((2048, 2048), (2, 2))
    state = apply_line(state, json.dumps({"aux": {"Tag": "1", "Digest": DIGEST, "Size": 7}}).encode())
    assert (state.digest, state.error) == (DIGEST, "")


def test_an_engine_that_pushes_more_than_announced() -> None:
    state = state_after({"status": "Pushing", "progressDetail": {"current": 3000, "total": 2048}, "id": "a"})
    assert state.moved == (3000, 3000)


def test_a_pull_and_a_load() -> None:
    assert state_after({"status": "1.0", "id": "x"}, {"status": f"Digest: {DIGEST}"}).digest == DIGEST
    loaded = state_after(
        {"status": "Loading layer", "progressDetail": {"current": 1, "total": 4}, "id": "aaa"},
        {"stream": "Loaded image: a:1\n"},
        {"stream": f"Loaded image ID: {DIGEST}\n"},
    )
    assert (loaded.loaded, loaded.counts) == (("a:1", DIGEST), (0, 1))
    last = b'{"status": "Loading layer", "progressDetail": {"current": 4, "total": 4}, "id": "aaa"}'
    assert apply_line(loaded, last).counts == (1, 1)


@pytest.mark.parametrize(
    "event",
    [
        {"errorDetail": {"message": "denied: no"}, "error": "denied: no"},
        {"error": "denied: no"},
        {"errorDetail": {"code": 1, "message": "denied: no"}},
    ],
)
def test_an_error_stays_whatever_comes_behind_it(event: object) -> None:
    state = state_after(event, {"aux": {"Digest": DIGEST}}, {"error": "another"})
    assert state.error == "denied: no"


@pytest.mark.parametrize("line", [b"<html>", b"[1]", b"\xff", b'{"status": "cut'])
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    assert "broken" in state_after(line).error


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("unauthorized: authentication required", Trouble.DENIED),
        ("no basic auth credentials", Trouble.DENIED),
        ("denied: requested access to the resource is denied", Trouble.DENIED),
        (
            "pull access denied for x, repository does not exist or may require 'docker login': denied",
            Trouble.DENIED,
        ),
        ("toomanyrequests: You have reached your pull rate limit", Trouble.BUSY),
        ("received unexpected HTTP status: 503 Service Unavailable", Trouble.SERVER),
        ("received unexpected HTTP status: 507 Insufficient Storage", Trouble.SERVER),
        ("error parsing HTTP 500 response body: no space left on device", Trouble.SERVER),
        ("unexpected status from PUT request to https://r/v2/x/: 507 Insufficient Storage", Trouble.SERVER),
        ("unexpected status code https://r/v2/x: 429 Too Many Requests", Trouble.BUSY),
        ("filesystem layer verification failed for digest sha256:1", Trouble.DAMAGED),
        ("unknown blob", Trouble.DAMAGED),
        ('Put "https://r/v2/": read tcp 1.2.3.4:5->6.7.8.9:443: read: connection reset by peer', Trouble.PASSING),
        ("EOF", Trouble.PASSING),
        ("net/http: TLS handshake timeout", Trouble.PASSING),
        ("blob upload unknown", Trouble.PASSING),
        ("write /var/lib/docker/tmp/x: no space left on device", Trouble.SPACE),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", Trouble.REFUSED),
        ("manifest unknown: manifest unknown", Trouble.ABSENT),
        ("manifest for r/x:1 not found: manifest unknown", Trouble.ABSENT),
        ('invalid diffID for layer 1: expected "sha256:1", got "sha256:2"', Trouble.ARCHIVE),
        ("open /var/lib/docker/tmp/docker-import-1/blobs/sha256/aa: no such file or directory", Trouble.ARCHIVE),
        ("http: server gave HTTP response to HTTPS client", Trouble.REFUSED),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", Trouble.REFUSED),
        ("unknown: configured as an immutable tag: tag v1 is immutable", Trouble.REFUSED),
    ],
)
def test_kinds_of_trouble(message: str, wanted: Trouble) -> None:
    assert trouble_of(message) is wanted
