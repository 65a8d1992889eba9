"""No output of a command holds a password of pip's settings, however its address is written."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_checkout import Small, make_small
from stub_index import StubIndex

from cannery.errors import ExitCode
from cannery.util.io import pip_settings as pipconf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Letters that stand in no message and no hash, and every sign that a URL parser may stop at.
PASSWORDS = st.text(alphabet="QZXJV/#?@:%[]&=+$!'\"\\", min_size=6, max_size=14)
SHAPES = (
    "http://user:{}@{}/simple",
    "user:{}@{}/simple",
    "http://{}@{}/simple",
    "http://user:{}@[bad/{}/simple",
    "http://{1}/simple?token={0}",
)
SETTINGS = ("index-url", "extra-index-url", "find-links", "proxy")


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def everything(folder: Path, *texts: str) -> str:
    """What a command printed, and every file that it may have written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*texts, *(path.read_bytes().decode("utf-8", "replace") for path in files)])


def left(password: str, text: str) -> list[str]:
    return [piece for piece in re.findall("[QZXJV]{4,}", password) if piece in text]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    password=PASSWORDS,
    shape=st.sampled_from(SHAPES),
    key=st.sampled_from(SETTINGS),
    words=st.sampled_from([("lock", "stack"), ("check", "stack", "--json", "--pin", "lib==9")]),
)
def test_lock_and_check_print_no_password(
    small: Small, tmp_path: Path, password: str, shape: str, key: str, words: tuple[str, ...]
) -> None:
    """pip's answer is made here: to start pip for each try would take most of the time."""
    url = shape.format(password, small.index.host)
    index = "" if key == "index-url" else f":env:.index-url={small.index.url!r}\n"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(pipconf, "_config_list", lambda _env: f"{index}:env:.{key}={url!r}\n")
        done = small(*words)
    assert left(password, everything(tmp_path, done.out, done.err)) == [], (url, done)


@pytest.mark.parametrize(
    ("variable", "code"),
    [
        ("PIP_INDEX_URL", ExitCode.USAGE),
        ("PIP_EXTRA_INDEX_URL", ExitCode.USAGE),
        ("PIP_FIND_LINKS", ExitCode.USAGE),
        ("PIP_PROXY", ExitCode.NETWORK),
        ("http_proxy", ExitCode.NETWORK),
    ],
)
def test_a_broken_address_is_reported_by_the_name_of_its_setting(
    small: Small, monkeypatch: pytest.MonkeyPatch, variable: str, code: ExitCode
) -> None:
    """With the real pip. A loopback address has no proxy, so the main index is another one."""
    if variable.lower().endswith("proxy"):
        monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
    monkeypatch.setenv(variable, "http://user:QZXJVQ@[bad/simple")
    done = small("lock", "stack")
    named = "pip's setting `proxy`" if variable == "PIP_PROXY" else variable
    assert (done.code, named in done.err) == (code, True), done
    assert "http://[bad/simple" in done.err
    assert "host or port that cannot be read" in done.err
    assert "QZXJVQ" not in done.out + done.err
    as_json = small("check", "stack", "--json", "--pin", "lib==9")
    assert "QZXJVQ" not in as_json.out + as_json.err
    assert as_json.code == code


def test_pip_s_own_complaint_is_passed_on_without_the_line_that_it_quotes(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("index-url = http://user:QZXJ/VQ@index.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    done = small("lock", "stack")
    assert done.code == ExitCode.UNABLE
    assert "no pip answers with its settings" in done.err
    assert left("QZXJ/VQ", done.out + done.err) == []


def test_a_lock_made_with_a_password_holds_nothing_of_it(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "QZXJ@VQ/#?:%JX"
    small.index.auth = f"user:{password}"
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:{quote(password, safe='')}@{small.index.host}/simple")
    monkeypatch.setenv("CANNERY_DEBUG", "1")
    done = small("lock", "stack", "--pin", "lib==1.0")
    assert done.code == 0, done
    small.index.auth = "user:another"
    refused = small("lock", "stack", "--pin", "lib==2.0")
    assert refused.code == ExitCode.NETWORK
    text = everything(tmp_path, done.out, done.err, refused.out, refused.err)
    assert left(password, text) == []
    assert quote(password, safe="") not in text
    assert os.environ["CANNERY_CACHE"] == str(tmp_path / "cache")


def test_a_missing_folder_is_reported_by_the_name_of_its_setting(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/none")
    done = small("lock", "stack")
    assert done.code == 0
    assert f"warning: PIP_FIND_LINKS names {tmp_path}/none, which is not there: it is left out\n" in done.err
    assert not [name for name, data in small.files().items() if str(tmp_path).encode() in data]


@pytest.mark.parametrize(
    "words",
    [
        ("check", "stack", "--base", "{}/cann:1"),
        ("check", "stack", "--pin", "{}"),
        ("check", "{}"),
        ("check", "stack", "--wheelhouse", "{}"),
        ("check", "stack", "--src", "a={}"),
        ("plan", "stack", "--git-mirror", "{}/x"),
        ("pull", "stack", "--registry", "{}/team"),
        ("verify", "--image", "{}/x:1", "stack"),
        ("base", "add", "9.2.0", "{}/cann:9.2.0"),
    ],
)
def test_no_argument_is_echoed_with_its_password(small: Small, words: tuple[str, ...]) -> None:
    done = small(*(word.format("joe:S3CRET@reg.example") for word in words))
    assert done.code != 0
    assert "S3CRET" not in done.out + done.err


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "DOCKER_HOST", "CANNERY_REGISTRY", "PIP_INDEX_URL"])
def test_no_variable_is_echoed_with_its_password(
    small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv(name, "joe:S3CRET@proxy.example:3128")
    for words in (("engine", "status"), ("show", "--settings"), ("lock", "stack", "--pin", "lib==9")):
        done = small(*words)
        assert "S3CRET" not in everything(tmp_path, done.out, done.err), words
