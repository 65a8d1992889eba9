"""URLs as users write them: what may be shown of them, what is secret, what is wrong."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cannery.util.addresses import (
    PROXY_SCHEMES,
    file_path,
    redactor,
    shown,
    url_credentials,
    url_problem,
    url_secrets,
    without_credentials,
)

# Letters that stand in no message, and every sign that a URL parser may stop at.
PASSWORDS = st.text(alphabet="QZXJV/#?@:%[]&=+$!'\"\\;,", min_size=6, max_size=16)
SHAPES = (
    "http://user:{}@index.example/simple",
    "https://{}@index.example/simple",
    "user:{}@index.example/simple",
    "{}@index.example:8080/simple",
    "http:/user:{}@index.example/simple",
    "socks5h://user:{}@[::1]:1080",
)


def pieces(password: str) -> list[str]:
    """Runs of letters that are long enough to tell something."""
    return re.findall("[QZXJV]{3,}", password)


@given(password=PASSWORDS, shape=st.sampled_from(SHAPES))
def test_no_password_is_shown_whatever_it_holds(password: str, shape: str) -> None:
    # Without a scheme, what begins with one of these is a path, and its name may hold an @.
    assume(not (shape.startswith("{") and password.startswith(("/", ".", "~"))))
    for written in (password, quote(password), quote(password, safe="")):
        url = shape.format(written)
        assert not [piece for piece in pieces(password) if piece in shown(url)]
        assert not [piece for piece in pieces(password) if piece in url_problem(url)]


@example(password='"\\JJJJ', shape=SHAPES[0])
@example(password="'\"\\JJJJ", shape=SHAPES[0])
@example(password="::JJJJ", shape=SHAPES[4])
@given(password=PASSWORDS, shape=st.sampled_from(SHAPES))
def test_what_is_secret_is_masked_in_every_text(password: str, shape: str) -> None:
    assume(not (shape.startswith("{") and password.startswith(("/", ".", "~"))))
    url = shape.format(password)
    redact = redactor(url_secrets(url))
    for text in (
        url,
        f"GET {url} failed",
        f"the password {password} is wrong",
        repr(url),
        f"'{quote(password, safe='')}'",
    ):
        assert not [piece for piece in pieces(password) if len(piece) > 3 and piece in redact(text)], (
            text,
            redact(text),
        )


@given(password=PASSWORDS)
def test_an_encoded_password_is_understood(password: str) -> None:
    url = f"https://user:{quote(password, safe='')}@index.example/simple"
    assert url_problem(url) == ""
    assert url_credentials(url) == ("user", password)
    assert without_credentials(url) == "https://index.example/simple"
    assert shown(url) == "https://index.example/simple"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://index.example/simple", "https://index.example/simple"),
        ("https://u:p@index.example:8080/simple", "https://index.example:8080/simple"),
        ("https://u:p@w@index.example/simple", "https://index.example/simple"),
        ("https://u:p/w@index.example/simple", "https://***@index.example/simple"),
        ("https://u:p#w@index.example/simple", "https://***@index.example/simple"),
        ("u:p@index.example/simple", "index.example/simple"),
        ("http://u:p@[bad/simple", "http://[bad/simple"),
        ("http://[::1]:8080/simple", "http://[::1]:8080/simple"),
        ("http://user:secret/simple", "http://user:***/simple"),
        ("https://index.example/simple?token=t", "https://index.example/simple?***"),
        ("file:///home/a@b/wheels", "file:///home/a@b/wheels"),
        ("/home/a@b/wheels", "/home/a@b/wheels"),
        ("~/a@b", "~/a@b"),
    ],
)
def test_what_is_shown(url: str, text: str) -> None:
    assert shown(url) == text


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://index.example/simple", ""),
        ("https://u:p@index.example/simple", ""),
        # An index's view: no user stands in front of it.
        ("https://index.example/feed@view/simple", ""),
        ("http://localhost:80/a@b", ""),
        ("http://[::1]:80/a@b", ""),
        ("file:///srv/wheels", ""),
        ("index.example/simple", "has no scheme, as in https://HOST/…"),
        ("user:p@index.example/simple", "has no scheme, as in https://HOST/…"),
        ("gopher://index.example", "has a scheme that is none of http, https, file"),
        ("http://[bad/simple", "has a host or port that cannot be read"),
        ("http://u:p@[bad/simple", "has a host or port that cannot be read"),
        ("http://user:secret/simple", "has a host or port that cannot be read"),
        ("http://index.example:99999/", "has a host or port that cannot be read"),
        ("http://u:12/34@index.example/", "has an @ behind a /, # or ? that ends the host"),
        ("http://u:a b@index.example/", "has a blank or backslash in it"),
        ("http:///simple", "names no host"),
    ],
)
def test_what_is_wrong_with_an_address(url: str, says: str) -> None:
    problem = url_problem(url)
    assert problem.startswith(says)
    assert bool(problem) is bool(says)


def test_addresses_of_proxies() -> None:
    assert url_problem("socks5://p.example:1080", PROXY_SCHEMES) == ""
    assert url_problem("file:///x", PROXY_SCHEMES).startswith("has a scheme that is none of http, https, socks4")
    assert url_problem("http://", PROXY_SCHEMES) == "names no host"


def test_secrets_of_a_url() -> None:
    assert url_secrets("https://u:a%40b@h.example/s?token=t#f") == {"u:a%40b", "a%40b", "a@b", "token=t"}
    assert url_secrets("https://tok3n@h.example/s") == {"tok3n"}
    assert url_secrets("https://index.example/feed@view/simple") == frozenset()
    assert url_secrets("file:///home/a@b/wheels") == frozenset()
    assert url_credentials("http://u:p@[bad/simple") is None
    assert url_credentials("https://index.example/simple") is None
    assert file_path("file:///a%20b/c") == "/a b/c"


def test_the_user_part_of_urls_in_any_text() -> None:
    redact = redactor()
    assert redact("GET https://u:p/w#x@h.example/simple failed") == "GET https://***@h.example/simple failed"
    # A port and a path with an @ are a host's.
    assert redact("git+https://h.example:8443/o/p@main") == "git+https://h.example:8443/o/p@main"
    assert redact("git+https://h.example/o/p@main") == "git+https://h.example/o/p@main"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("HTTPS_PROXY 'joe:S3cret@proxy.example:3128' is none", "HTTPS_PROXY '***@proxy.example:3128' is none"),
        ("--registry=joe:S3cret@reg.example/team", "--registry=***@reg.example/team"),
        ("joe:p/w@x:1@[::1]:80/simple", "***@[::1]:80/simple"),
        ('{"url": "j.o-e:1234@h"}', '{"url": "***@h"}'),
        ("fetch joe:S3cret@git.example:owner/name.git", "fetch ***@git.example:owner/name.git"),
        # References with a digest, git's addresses, mail, mounts and pins have no password.
        ("quay.io/ascend/cann:8.5.0@sha256:0a1b", "quay.io/ascend/cann:8.5.0@sha256:0a1b"),
        ("localhost:5000/team/x:1@sha256:0a1b", "localhost:5000/team/x:1@sha256:0a1b"),
        (
            "pkg:pypi/torch@2.9.0%2Bcpu pkg:github/own/engine@0a1b",
            "pkg:pypi/torch@2.9.0%2Bcpu pkg:github/own/engine@0a1b",
        ),
        ("pkg:pa/ss@h.example", "***@h.example"),
        ("git@github.com:owner/name@main", "git@github.com:owner/name@main"),
        ("mail: joe@h.example", "mail: joe@h.example"),
        ("-v /data:/x@y -v /a/b:/c@d", "-v /data:/x@y -v /a/b:/c@d"),
        ("verl @ git+https://h.example/o/p@main", "verl @ git+https://h.example/o/p@main"),
    ],
)
def test_a_user_and_password_without_a_scheme(text: str, masked: str) -> None:
    assert redactor()(text) == masked


def test_a_secret_is_masked_as_json_has_it_and_a_tiny_one_is_not() -> None:
    assert redactor(['a"b\\c'])('{"x": "a\\"b\\\\c"}') == '{"x": "***"}'
    assert redactor(["ab"])("a cab http://u:ab@h.example") == "a cab http://***@h.example"
