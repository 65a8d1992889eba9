"""pip's settings, as pip tells them, and in uv's words."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from cannery.errors import UnableError, UsageError
from cannery.lock.io.indexes import default_place
from cannery.util.addresses import environment_secrets, without_credentials
from cannery.util.io import pip_settings
from cannery.util.io.pip_settings import (
    PipSettings,
    index_credentials,
    parse_pip_settings,
    read_pip_settings,
    uv_environment,
)

if TYPE_CHECKING:
    from pathlib import Path

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


def test_sections_and_lists() -> None:
    settings = parse_pip_settings(LISTING, {"HTTPS_PROXY": "http://p:pr0xy@proxy.example:3128"})
    assert settings.extra_index_urls == ("file:///a/simple", "https://tok3n@extra.example/simple")
    assert settings.find_links == ("/other",)
    assert (settings.timeout, settings.cert) == (7.0, "/ca.pem")
    assert settings.notes == (
        "pip's `constraint` setting is ignored: the lock decides versions",
        "warning: pip's setting global.extra-index-url names file:///a/simple, which is not there: it is left out",
        "warning: pip's setting install.find-links names /other, which is not there: it is left out",
    )
    assert parse_pip_settings("", {}) == PipSettings()
    assert parse_pip_settings("global.timeout='x'\nnonsense\n=\n", {}).timeout == 15.0


def test_credentials_stay_out_of_texts() -> None:
    settings = parse_pip_settings(LISTING, {"HTTPS_PROXY": "http://p:pr0xy@proxy.example:3128"})
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
        parse_pip_settings(line + "\n", {})
    text = str(caught.value)
    section, key = line.partition("=")[0].rsplit(".", 1)
    setting = f"PIP_{key.upper().replace('-', '_')}" if section == ":env:" else f"pip's setting {section}.{key}"
    assert text.startswith(f"{setting}: ")
    assert says in text
    assert f"→ change {setting}" in text
    assert not {"QZX", "ZX"} & set(text.replace("@", " ").replace(":", " ").split())


def test_an_index_may_be_a_folder_and_one_with_a_view(tmp_path: Path) -> None:
    listing = f"global.index-url={str(tmp_path)!r}\nglobal.extra-index-url='https://h.example/feed@view/simple'\n"
    settings = parse_pip_settings(listing, {})
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


def test_pip_is_asked_and_its_precedence_counts(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://file.example/simple\nextra-index-url =\n  https://a/s\n  https://b/s\n"
    )
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("PIP_")}, "HOME": str(tmp_path)}
    env |= {"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": "/x /y"}
    settings = read_pip_settings(env)
    assert settings.index_url == "https://file.example/simple"
    assert settings.extra_index_urls == ("https://a/s", "https://b/s")
    assert settings.find_links == ("/x", "/y")
    assert read_pip_settings({**env, "PIP_INDEX_URL": "https://env.example/s"}).index_url == "https://env.example/s"


def with_file(folder: Path) -> dict[str, str]:
    """Make a home with a file of pip's: only then is pip asked."""
    (folder / "home/.pip").mkdir(parents=True)
    (folder / "home/.pip/pip.conf").write_text("[global]\n")
    return {"HOME": str(folder / "home")}


def test_variables_alone_are_read_as_pip_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "PIP_INDEX_URL": "https://a:b@c.example/it's",
        "PIP_EXTRA_INDEX_URL": "https://d.example/s https://e.example/s",
        "PIP_DEFAULT_TIMEOUT": "7",
        "PIP_TRUSTED_HOST": "d.example",
        "PIP_NO_INDEX": "1",
    }
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), **values}
    monkeypatch.setattr(pip_settings, "pip_files", lambda _env: [tmp_path])
    asked = read_pip_settings(env)
    monkeypatch.setattr(pip_settings, "pip_files", lambda _env: [tmp_path / "none"])
    monkeypatch.setattr(pip_settings, "run", lambda *_, **__: pytest.fail("pip was asked"))
    found = read_pip_settings(env)  # what this machine's own files set is in the other alone
    for name in ("index_url", "extra_index_urls", "timeout", "trusted_hosts", "notes"):
        assert getattr(found, name) == getattr(asked, name)
    assert asked.index_url == values["PIP_INDEX_URL"]
    assert asked.timeout == 7


def test_an_empty_variable_leaves_the_files_value_as_pip_does() -> None:
    listing = "global.index-url='https://a.example/s'\n:env:.index-url=''\n"
    assert parse_pip_settings(listing, {"PIP_INDEX_URL": ""}).index_url == "https://a.example/s"


@pytest.mark.parametrize("name", [".pip", ".config/pip", "xdg/pip", "named"])
def test_pip_is_asked_where_it_has_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "pip.conf").write_text("[global]\nproxy = p:1\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_DIRS": f"/none:{tmp_path}/xdg"}
    env |= {"PIP_CONFIG_FILE": str(tmp_path / "named/pip.conf")} if name == "named" else {}
    assert read_pip_settings(env).proxy == "p:1"


class Host:
    """A host whose pip is asked, with a file of settings; counts how often."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.cache, self.asked = folder / "pip.conf", folder / "cache", 0
        self.env = {"HOME": str(folder), "PATH": ""}
        self.listing = "global.index-url='https://a.example/s'\nother.token='secret'\n"
        self.file.write_text("[global]\n")
        monkeypatch.setattr(pip_settings, "pip_files", lambda _env: [self.file])
        monkeypatch.setattr(pip_settings, "_config_list", self.list)

    def list(self, _env: object) -> str:
        self.asked += 1
        return self.listing

    @property
    def url(self) -> str:
        return read_pip_settings(self.env, self.cache).index_url


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_pips_answer_is_kept_until_a_setting_changes(host: Host) -> None:
    assert (host.url, host.url, host.asked) == ("https://a.example/s", "https://a.example/s", 1)
    (kept,) = (host.cache / "pip").iterdir()
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("global.index-url='https://a.example/s'\n", 0o600)
    host.listing = "global.index-url='https://b.example/s'\n"
    host.file.write_text("[global]\n# another\n")
    assert (host.url, host.asked) == ("https://b.example/s", 2)
    host.env["PIP_PROXY"] = "p:1"
    assert (host.url, host.asked) == ("https://b.example/s", 3)
    host.file.unlink()
    assert (host.url, host.asked) == ("https://b.example/s", 4)


@pytest.mark.parametrize("url", ["https://me:secret@a.example/s", "https://a.example/s?token=secret"])
def test_an_answer_with_credentials_is_not_kept(host: Host, url: str) -> None:
    host.listing = f"global.extra-index-url={url!r}\n"
    assert (host.url, host.url, host.asked) == ("", "", 2)
    assert not host.cache.exists()


def test_python_without_pip_falls_back_to_the_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    monkeypatch.setattr(sys, "executable", program("none", "echo No module named pip >&2; exit 1"))
    program("python3", "echo \"global.index-url='https://path.example/s'\"")
    home = with_file(tmp_path)
    assert read_pip_settings({"PATH": str(tmp_path), **home}).index_url == "https://path.example/s"
    with pytest.raises(UnableError, match="No module named pip"):
        read_pip_settings({"PATH": "", **home})


def test_an_environment_without_pip_leaves_it_to_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active .venv that has no pip is first on PATH; the host's python3 is behind it."""
    texts = {"venv": "echo no pip >&2; exit 1", "host": "echo \"global.proxy='p:1'\""}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        python = tmp_path / name / "python3"
        python.write_text(f"#!/bin/sh\n{text}\n")
        python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "venv/python3"))
    env = {"PATH": f"{tmp_path}/venv:{tmp_path}/host:/usr/bin:/bin", **with_file(tmp_path)}
    assert read_pip_settings(env).proxy == "p:1"
