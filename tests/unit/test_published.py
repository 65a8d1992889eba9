from __future__ import annotations

import json

import pytest

from cannery.engine.oci import Entry, Published
from cannery.errors import UsageError
from cannery.plan import parse_tag
from cannery.ship.published import (
    DOCKER_MANIFEST,
    INDEX_TYPE,
    LIST_TYPE,
    ids_of,
    label_faults,
    merged_index,
    parse_registry,
    published_reference,
    push_fault,
)
from cannery.util.addresses import parse_reference

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TAG = parse_tag("8.5.0-910b-ubuntu22.04-py3.11-0123456789ab")


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


def entry(arch: str, digit: str, kind: str = OCI_MANIFEST, **more: object) -> Entry:
    return Entry(arch, digest(digit), digest("f"), {"mediaType": kind, "size": 7, "digest": digest(digit), **more})


def there(*entries: Entry) -> Published:
    return Published(digest("0"), INDEX_TYPE, b"{}", entries)


@pytest.mark.parametrize(
    ("registry", "host", "repository"),
    [
        ("registry.example/team", "registry.example", "team/stack"),
        ("registry.example/a/b/", "registry.example", "a/b/stack"),
        ("registry.example:5000", "registry.example:5000", "stack"),
        ("localhost", "localhost", "stack"),
        ("localhost:5000/x", "localhost:5000", "x/stack"),
        ("127.0.0.1:5000/x", "127.0.0.1:5000", "x/stack"),
        ("[::1]:5000/x", "[::1]:5000", "x/stack"),
        ("docker.io/me", "docker.io", "me/stack"),
        ("me", "docker.io", "me/stack"),
    ],
)
def test_the_registry_is_put_before_a_name_once(registry: str, host: str, repository: str) -> None:
    reference = published_reference(parse_registry(registry), f"stack:{TAG}")
    found = parse_reference(reference)
    assert (found.registry, found.repository, found.tag) == (host, repository, str(TAG))
    with pytest.raises(UsageError, match="already names a registry"):
        published_reference(parse_registry(registry), reference)


@pytest.mark.parametrize(
    "text",
    [
        *("", None, "https://registry.example/team", "registry.example/team:tag", "registry.example/Team"),
        *(f"registry.example/x@{digest('1')}", "registry.example/a b", "me@registry.example", "/team", "-"),
    ],
)
def test_no_registry(text: str | None) -> None:
    with pytest.raises(UsageError, match="REGISTRY") as caught:
        parse_registry(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        *("https://me:s3cret@registry.example/x", "me:s3cret@registry.example/x", "registry.example/x?token=s3cret"),
        *("registry.example/x#s3cret", "host:s3cret", "host/s3cret:tag", "token=s3cret", "s3cret:", "host/a=s3cret"),
        *("https%3A//u:s3cret%40h/x", f"host/s3cret{'x' * 255}", "S3cret=s3cret", "s3cret:99999/t"),
    ],
)
def test_what_may_be_secret_in_it_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="REGISTRY") as caught:
        parse_registry(text)
    assert "s3cret" not in str(caught.value)
    assert "/x" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_tag_changes_for_no_other_image() -> None:
    ours = {digest("f")}
    other = {digest("e")}
    assert push_fault(None, "amd64", ours) == ""
    assert push_fault(there(entry("arm64", "1")), "amd64", other) == ""
    assert push_fault(there(entry("amd64", "1")), "amd64", ours) == ""
    assert push_fault(there(entry("amd64", "1")), "amd64", {digest("1")}) == ""  # as containerd's store names it
    index = there(entry("arm64", "2"), entry("amd64", "1"))
    assert push_fault(index, "amd64", {index.digest}) == ""  # the same store, where it was pulled or built as an index
    fault = push_fault(index, "amd64", other)
    assert "another image" in fault
    assert digest("1")[:19] in fault


def test_an_image_is_known_by_its_digests_in_this_repository_alone() -> None:
    digests = [
        f"registry.example/x@{digest('1')}",
        f"registry.example/y@{digest('2')}",
        f"other.example/x@{digest('3')}",
    ]
    assert ids_of(digest("f"), digests, "registry.example/x:1") == {digest("f"), digest("1")}


def test_an_index_keeps_the_other_architectures() -> None:
    alone = there(entry("arm64", "2"))
    kind, body = merged_index(alone, "amd64", {"mediaType": OCI_MANIFEST, "size": 9, "digest": digest("1")})
    assert kind == INDEX_TYPE
    value = json.loads(body)
    assert value["mediaType"] == kind
    assert [(m["platform"]["architecture"], m["digest"]) for m in value["manifests"]] == [
        ("amd64", digest("1")),
        ("arm64", digest("2")),
    ]
    kind, body = merged_index(
        there(
            entry("amd64", "1", DOCKER_MANIFEST),
            entry("arm64", "2", DOCKER_MANIFEST, platform={"os": "linux", "architecture": "arm64", "variant": "v8"}),
        ),
        "amd64",
        {"mediaType": DOCKER_MANIFEST, "size": 9, "digest": digest("3")},
    )
    assert kind == LIST_TYPE
    assert [(m["platform"].get("variant"), m["digest"]) for m in json.loads(body)["manifests"]] == [
        (None, digest("3")),
        ("v8", digest("2")),
    ]


LABELS = {
    "org.opencontainers.image.version": str(TAG),
    "org.cannery.profile": "stack",
    "org.cannery.plan": TAG.plan,
    "org.cannery.target": "target",
    "org.cannery.base.kind": "real",
}


def test_labels_that_fit() -> None:
    assert label_faults(LABELS, "stack", TAG, "target") == ()


@pytest.mark.parametrize("name", [name for name in LABELS if not name.endswith("kind")])
def test_a_label_that_does_not_fit_is_named(name: str) -> None:
    for labels in ({**LABELS, name: "other"}, {k: v for k, v in LABELS.items() if k != name}):
        (fault,) = label_faults(labels, "stack", TAG, "target")
        assert name in fault


def test_a_stand_in_never_goes_under_a_real_tag() -> None:
    labels = {**LABELS, "org.cannery.base.kind": "standin"}
    assert "never pushed under the tag of a real one" in label_faults(labels, "stack", TAG, "target")[0]
    own = parse_tag(f"{TAG}-standin")
    assert label_faults({**labels, "org.opencontainers.image.version": str(own)}, "stack", own, "target") == ()
