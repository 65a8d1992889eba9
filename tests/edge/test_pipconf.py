"""pip's settings, as pip reads them, and in uv's words."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cannery.errors import UsageError
from cannery.lock.io.indexes import default_place
from cannery.util.addresses import environment_secrets, without_credentials
from cannery.util.io.pip_settings import (
    PipSettings,
    index_credentials,
    parse_pip_settings,
    read_pip_settings,
    uv_environment,
)

LISTING = """\
global.index-url='https://me:s3cr%40t@mirror.example/simple'
global.extra-index-url='\\nfile:///a/simple\\nhttps://tok3n@extra.example/simple'
global.find-links='/wheels'
global.timeout='60'
global.constraint='/c.txt'
install.find-links='/other'
download.find-links='/never'
:env:.default-timeout='7'
:env:.cert='/ca.pem'
"""


def given(listing: str) -> list[tuple[str, str, str]]:
    """Return (section, option, text) of what `pip config list` prints."""
    found = (line.partition("=") for line in listing.splitlines())
    return [(*name.rpartition(".")[::2], ast.literal_eval(text)) for name, _, text in found]


def test_sections_and_lists() -> None:
    settings = parse_pip_settings(given(LISTING), {"HTTPS_PROXY": "http://p:pr0xy@proxy.example:3128"})
    assert settings.extra_index_urls == ("file:///a/simple", "https://tok3n@extra.example/simple")
    assert settings.find_links == ("/other",)
    assert (settings.timeout, settings.cert) == (7.0, "/ca.pem")
    assert settings.notes == (
        "pip's `constraint` setting is ignored: the lock decides versions",
        "warning: pip's setting global.extra-index-url names file:///a/simple, which is not there: it is left out",
        "warning: pip's setting install.find-links names /other, which is not there: it is left out",
    )
    assert parse_pip_settings((), {}) == PipSettings()
    assert parse_pip_settings([("global", "timeout", "x"), ("", "timeout", "3")], {}).timeout == 15.0


def test_credentials_stay_out_of_texts() -> None:
    settings = parse_pip_settings(given(LISTING), {"HTTPS_PROXY": "http://p:pr0xy@proxy.example:3128"})
    secrets = settings.credentials()
    assert {"s3cr%40t", "s3cr@t", "tok3n", "pr0xy", "me:s3cr%40t"} <= {*secrets}
    text = f"{settings.index_url} {settings.extra_index_urls} s3cr@t pr0xy"
    assert not any(secret in settings.redact(text) for secret in secrets)
    assert not any(secret in repr(settings) for secret in secrets)
    assert without_credentials(settings.index_url) == "https://mirror.example/simple"
    assert index_credentials("extra-1", settings.index_url) == {
        "UV_INDEX_EXTRA_1_USERNAME": "me",
        "UV_INDEX_EXTRA_1_PASSWORD": "s3cr@t",
    }
    assert index_credentials("default", "https://mirror.example/simple") == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("global.index-url='http://u:QZX@[bad/simple'", "the address http://[bad/simple has a host or port that"),
        (":env:.index-url='u:QZX@h.example/simple'", "the address h.example/simple has no scheme"),
        (":env:.extra-index-url='http://ok.example http://u:Q/ZX@h.example'", "http://***@h.example has an @ behind"),
        ("install.find-links='gopher://u:QZX@h.example'", "gopher://h.example has a scheme that is none of"),
    ],
)
def test_an_address_that_is_none_is_refused_by_the_name_of_its_setting(line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pip_settings(given(line), {})
    text = str(caught.value)
    section, key = line.partition("=")[0].rsplit(".", 1)
    setting = f"PIP_{key.upper().replace('-', '_')}" if section == ":env:" else f"pip's setting {section}.{key}"
    assert text.startswith(f"{setting}: ")
    assert says in text
    assert f"→ change {setting}" in text
    assert not {"QZX", "ZX"} & set(text.replace("@", " ").replace(":", " ").split())


def test_an_index_may_be_a_folder_and_one_with_a_view(tmp_path: Path) -> None:
    listing = f"global.index-url={str(tmp_path)!r}\nglobal.extra-index-url='https://h.example/feed@view/simple'\n"
    settings = parse_pip_settings(given(listing), {})
    assert (settings.index_url, settings.notes) == (str(tmp_path), ())
    assert settings.credentials() == ()
    assert default_place(settings).folder == tmp_path


def test_secrets_of_the_environment_are_known_before_pip_is_asked() -> None:
    env = {"PIP_INDEX_URL": "http://u:Q/ZX@h.example/s", "https_proxy": "u:JVJV@p.example:1", "HOME": "/home/a@b"}
    assert {*environment_secrets(env)} == {"u:Q/ZX", "Q/ZX", "u:JVJV", "JVJV"}


def test_uv_environment(tmp_path: Path) -> None:
    settings = PipSettings(cert="/ca.pem", proxy="http://p.example:1", timeout=180, trusted_hosts=("a.example",))
    env = uv_environment(settings, {"PATH": "/bin", "UV_INDEX_URL": "https://no.example", "http_proxy": "http://old"})
    assert env["PATH"] == "/bin"
    assert "UV_INDEX_URL" not in env
    assert (env["SSL_CERT_FILE"], env["UV_HTTP_TIMEOUT"], env["UV_INSECURE_HOST"]) == ("/ca.pem", "30", "a.example")
    assert env["http_proxy"] == env["HTTPS_PROXY"] == "http://p.example:1"
    assert uv_environment(PipSettings(cert=str(tmp_path)), {})["SSL_CERT_DIR"] == str(tmp_path)


def test_files_and_variables_and_their_precedence(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://file.example/simple\nextra_index_url =\n  https://a/s\n  https://b/s\n"
        "cert = /first.pem\n[install]\ncert = /second.pem\n"
    )
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text("[global]\nindex-url = https://home.example/s\nproxy = p:1\n")
    env = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "none"), "PATH": ""}
    env |= {"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": "/x /y"}
    settings = read_pip_settings(env)
    assert settings.index_url == "https://file.example/simple"
    assert settings.extra_index_urls == ("https://a/s", "https://b/s")
    assert settings.find_links == ("/x", "/y")
    assert (settings.cert, settings.proxy) == ("/second.pem", "p:1")
    assert read_pip_settings({**env, "PIP_INDEX_URL": "https://env.example/s"}).index_url == "https://env.example/s"
    assert read_pip_settings({**env, "PIP_CONFIG_FILE": os.devnull}).proxy == ""


def test_they_are_read_as_pip_itself_reads_them(tmp_path: Path) -> None:
    texts = {
        "xdg/pip": "[global]\nproxy = xdg:1\ntimeout = 1\n",
        ".pip": "[global]\nproxy = home:1\ntimeout = 2\n[install]\ntrusted-host = a.example\n",
        ".config/pip": "[global]\nproxy = config:1\ntrusted-host = never.example\n[download]\nproxy = no:1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pip.conf").write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_DIRS": f"/none:{tmp_path}/xdg"}
    env |= {"PIP_DEFAULT_TIMEOUT": "7", "PIP_EXTRA_INDEX_URL": "https://d.example/s https://e.example/it's"}
    python = Path(sys.base_prefix, "bin/python3")  # a virtual environment may have no pip
    listed = subprocess.run(
        (python, "-m", "pip", "config", "list"), env=env, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this Python has no pip")
    assert read_pip_settings(env) == parse_pip_settings(given(listed.stdout), env)
    assert read_pip_settings(env).proxy == "config:1"


@pytest.mark.parametrize(
    "text", [b"index-url = https://u:s3cret@h/s\n", b"[global]\ns3cret\n", b"[global]\nx = \xff\n"]
)
def test_a_file_that_pip_cannot_read_is_named_without_its_text(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "pip.conf").write_bytes(text)
    with pytest.raises(UsageError) as caught:
        read_pip_settings({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert caught.value.where == str(tmp_path / "pip.conf")
    assert "s3cret" not in str(caught.value)
