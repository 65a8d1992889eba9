"""Addresses in the catalog: what may stand there, and that no message shows a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cannery.catalog.addresses import Host, Index, Registries, reference_fault
from cannery.catalog.errors import faults, without_secrets

if TYPE_CHECKING:
    from cannery.catalog.component import Closed

PASSWORD = "s3cr3t"


def said(model: type[Closed], **values: object) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    # Of a list whose only item is wrong, pydantic also reports that it is too short: that one is left out.
    (fault,) = faults(caught.value, model)
    return f"{fault.what}; {fault.hint}"


@pytest.mark.parametrize(
    "url",
    [
        "https://host/simple",
        "http://127.0.0.1:8080/simple/",
        "http://[::1]:80/x",
        "file:///srv/wheels",
        "https://h/a%40b",
    ],
)
def test_urls_of_an_index(url: str) -> None:
    assert Index(urls=(url,)).urls == (url,)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://[bad/simple", "is not a URL: Invalid IPv6 URL; written like https://host/simple"),
        ("https://host:port/simple", "is not a URL: Port could not be cast to integer"),
        ("https://host:99999/simple", "is not a URL: Port out of range"),
        ("https:///simple", "'https:///simple' is not a URL; written like https://host/simple"),
        ("https://ho st/simple", "is not a URL; written like"),
        ("ftp://host/simple", "is not a URL of https or http or file; written like"),
        ("host/simple", "'host/simple' is not a URL of https or http or file; written like https://host/simple"),
        ("file://host/simple", "names no absolute path"),
        ("https://host/simple?x=1", "'https://host/simple' has a query or a fragment behind it; leave it out"),
        ("", "'' is not a URL of https or http or file; written like https://host/simple"),
    ],
)
def test_no_url_of_an_index(url: str, says: str) -> None:
    assert says in said(Index, urls=[url])


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/{repository}.git",
        "http://127.0.0.1:1/{repository}",
        "ssh://git@host:22/{repository}.git",
        "git@host:{repository}.git",
        "file:///srv/git/{repository}",
    ],
)
def test_urls_of_a_git_host(url: str) -> None:
    assert Host(url=url).url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://host/{x}", "has to contain {repository} once, for owner/name, and no other braces"),
        ("https://host/", "has to contain {repository} once"),
        ("https://host/{repository}/{repository}", "has to contain {repository} once"),
        ("https://host/{repository}{", "has to contain {repository} once"),
        ("https://host/{ repository }", "has to contain {repository} once"),
        ("http://[bad/{repository}", "is not a URL: Invalid IPv6 URL"),
        (
            "host/{repository}",
            "is not a URL of https or http or ssh or file; written like https://host/{repository}.git",
        ),
    ],
)
def test_no_url_of_a_git_host(url: str, says: str) -> None:
    assert says in said(Host, url=url)


@pytest.mark.parametrize("text", ["quay.io/ascend/cann", "127.0.0.1:5000/cann", "registry.example/cann"])
def test_repositories_of_a_registry(text: str) -> None:
    assert Registries(repositories=(text,), source="s").repositories == (text,)


@pytest.mark.parametrize("text", ["", "a b", "quay.io/Ascend", "quay.io/cann:tag", "https://quay.io/cann", "quay.io/"])
def test_no_repository_of_a_registry(text: str) -> None:
    assert "registry" in said(Registries, repositories=[text], source="s")


passwords = st.text(st.characters(codec="ascii", exclude_categories=["C"], exclude_characters=" "), max_size=8).map(
    lambda text: f"{text}{PASSWORD}{text}"
)


@given(
    st.sampled_from(["https://", "http://", "git+https://", ""]),
    st.sampled_from(["user:", ":", "user:p/", "u:1#"]),
    passwords,
)
def test_no_credentials_are_taken_nor_shown(scheme: str, user: str, password: str) -> None:
    address = f"{scheme}{user}{password}@host/simple"
    for model, values in (
        (Index, {"urls": [address]}),
        (Host, {"url": f"{address}/{{repository}}"}),
        (Registries, {"repositories": [address], "source": "s"}),
    ):
        text = said(model, **values)
        assert PASSWORD not in text
        assert "leave them out" in text
    assert PASSWORD not in reference_fault(address)
    assert reference_fault(address)


@given(st.sampled_from(["https://", "http://", "ssh://"]), st.sampled_from(["user:", "user:p/"]), passwords)
def test_what_quotes_an_address_is_masked(scheme: str, user: str, password: str) -> None:
    text = f"field: '{scheme}{user}{password}@host/x' is no list; in brackets: [{user}{password}@host]"
    assert PASSWORD not in without_secrets(text)
    assert without_secrets(text).startswith("field: '")


@pytest.mark.parametrize("text", ["images/a.yaml: x: 'b' is no c", "known: a, b: c", "me@host", "ray @ file"])
def test_what_has_no_password_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("standin", ""),
        ("me/cann:1", ""),
        (f"me/cann@sha256:{'0' * 64}", ""),
        (f"http://user:{PASSWORD}@host/repo", "an image reference has no scheme (https://) and no credentials"),
        ("https://host/repo", "an image reference has no scheme (https://)"),
        (f"user:{PASSWORD}@host/repo", "it has credentials in it"),
        (f"host/x:1?token={PASSWORD}", "an image reference has no query or fragment (? or #)"),
        (f"host/x#{PASSWORD}", "an image reference has no query or fragment (? or #)"),
        (f"user:{PASSWORD}@host/repo@sha256:{'0' * 64}", "it has credentials in it"),
    ],
)
def test_image_references(text: str, fault: str) -> None:
    assert reference_fault(text) == fault
