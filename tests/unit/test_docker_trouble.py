from __future__ import annotations

import pytest

from cannery.engine.stream import Trouble, trouble_of


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
        ('Put "https://r/v2/": read tcp 1.2.3.4:5->6.7.8.9:443: read: connection reset by peer', None),
        ("EOF", None),
        ("net/http: TLS handshake timeout", None),
        ("blob upload unknown", None),
        ("write /var/lib/docker/tmp/x: no space left on device", Trouble.SPACE),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", None),
        ("manifest unknown: manifest unknown", Trouble.ABSENT),
        ("manifest for r/x:1 not found: manifest unknown", Trouble.ABSENT),
        ('invalid diffID for layer 1: expected "sha256:1", got "sha256:2"', Trouble.ARCHIVE),
        ("open /var/lib/docker/tmp/docker-import-1/blobs/sha256/aa: no such file or directory", Trouble.ARCHIVE),
        ("http: server gave HTTP response to HTTPS client", None),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", None),
        ("unknown: configured as an immutable tag: tag v1 is immutable", None),
    ],
)
def test_kinds_of_trouble(message: str, wanted: Trouble | None) -> None:
    assert trouble_of(message) is wanted
