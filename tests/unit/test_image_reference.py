"""References as docker reads them."""

from __future__ import annotations

import pytest

from cannery.errors import UsageError
from cannery.util.addresses import ImageReference, is_loopback, parse_reference, pinned, split_digest

DIGEST = f"sha256:{'0f' * 32}"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("cann", "docker.io", "library/cann", "latest", None),
        ("me/cann:1", "docker.io", "me/cann", "1", None),
        ("docker.io/cann:1", "docker.io", "library/cann", "1", None),
        ("quay.io/a/b/c:8.5.0-A2_x", "quay.io", "a/b/c", "8.5.0-A2_x", None),
        ("localhost/cann", "localhost", "cann", "latest", None),
        ("host:5000/cann:1", "host:5000", "cann", "1", None),
        ("[::1]:5000/cann", "[::1]:5000", "cann", "latest", None),
        (f"a.b/c@{DIGEST}", "a.b", "c", "latest", DIGEST),
        (f"a.b/c:1@{DIGEST}", "a.b", "c", "1", DIGEST),
        ("a.b:65535/c", "a.b:65535", "c", "latest", None),
        (f"a.b/{'c' * 251}:{'1' * 128}", "a.b", "c" * 251, "1" * 128, None),
        ("a.b/c-d__e.f--g", "a.b", "c-d__e.f--g", "latest", None),
    ],
)
def test_parts(text: str, registry: str, repository: str, tag: str, digest: str | None) -> None:
    found = parse_reference(text)
    assert found == ImageReference(registry, repository, tag, digest)
    assert found.wanted == (digest or tag)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "me/Cann:1",
        "me/cann:",
        "me/cann:-1",
        "me/cann@sha256:00",
        f"me/cann@{DIGEST}0",
        "me/cann@",
        "http://a.b/c",
        "a.b/",
        "a.b//c",
        "a.b:port/c",
        "-a.b/c",
        "me/cann:1 --privileged",
        "me/cann:1\nRUN x",
        "a.b/c..d",
        "a.b/../c",
        "user@a.b/c",
        "a.b:5000000/c",
        "a.b:99999/c",
        f"a.b/{'c' * 252}:1",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not an image reference") as caught:
        parse_reference(text)
    assert caught.value.what.startswith("BASE: ")


def test_digests_come_off_and_go_on() -> None:
    assert split_digest(f"a.b/c:1@{DIGEST}") == ("a.b/c:1", DIGEST)
    assert split_digest("a.b/c:1") == ("a.b/c:1", None)
    assert pinned("a.b/c:1", DIGEST) == f"a.b/c:1@{DIGEST}"
    assert pinned("a.b/c:1@sha256:old", DIGEST) == f"a.b/c:1@{DIGEST}"
    assert pinned("a.b/c:1", None) == "a.b/c:1"


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1:5000", "127.8.0.1", "[::1]:5000"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["docker.io", "127.0.0.1.example", "10.0.0.1:5000", "localhost.example", "[fe80::1]"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
