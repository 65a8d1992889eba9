from __future__ import annotations

from pathlib import Path

import pytest

from cannery.build.io import secrets
from cannery.build.io.secrets import MAX_SECRET, Secrets, build_secrets
from cannery.context import Context
from cannery.engine.own.apt import HostRelease, Source
from cannery.errors import UsageError
from cannery.render.render import NO_SECRET, PROXIES, SECRETS
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CA, APT = SECRETS["ca"], SECRETS["apt_sources"]


def context(tmp_path: Path, settings: PipSettings | None = None, **env: str) -> Context:
    made = Context(tmp_path, tmp_path / "cache", env, Arch.AMD64, is_terminal=False)
    made.__dict__["pip"] = settings or PipSettings()
    return made


def bundle(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ca.crt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def secrets_of(context: Context, suite: str | None) -> Secrets:
    return build_secrets(context.cache, context.env, context.pip, suite)


def test_a_host_without_settings_has_nothing_to_hide(tmp_path: Path) -> None:
    found = secrets_of(context(tmp_path), None)
    assert found.env == {CA: NO_SECRET, APT: NO_SECRET, **dict.fromkeys(PROXIES, "")}
    assert found.values == ()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_usual_variables_name_the_bundle(tmp_path: Path, name: str) -> None:
    path = bundle(tmp_path, CERTIFICATE)
    assert secrets_of(context(tmp_path, **{name: path}), None).env[CA] == path


def test_pips_own_bundle_comes_first(tmp_path: Path) -> None:
    path = bundle(tmp_path, CERTIFICATE)
    assert secrets_of(context(tmp_path, PipSettings(cert=path), SSL_CERT_FILE="/no"), None).env[CA] == path


def test_a_bundle_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the CA bundle cannot be read") as caught:
        secrets_of(context(tmp_path, SSL_CERT_FILE=str(tmp_path / "no.crt")), None)
    assert "no.crt" in caught.value.what
    assert "pip config list" in caught.value.hint


@pytest.mark.parametrize("comment", ["x" * MAX_SECRET, "ü" * (MAX_SECRET // 2)])
def test_a_bundle_too_large_for_buildkit_loses_its_comments(tmp_path: Path, comment: str) -> None:
    path = bundle(tmp_path, f"# {comment}\n{CERTIFICATE}# more\n{CERTIFICATE}")
    found = Path(secrets_of(context(tmp_path, SSL_CERT_FILE=path), None).env[CA])
    assert found.read_text() == CERTIFICATE * 2
    assert found.stat().st_mode & 0o777 == 0o600


def test_a_bundle_that_stays_too_large_is_said_before_the_build(tmp_path: Path) -> None:
    many = CERTIFICATE * (MAX_SECRET // len(CERTIFICATE) + 2)
    with pytest.raises(UsageError, match="larger than BuildKit takes"):
        secrets_of(context(tmp_path, SSL_CERT_FILE=bundle(tmp_path, many)), None)


def test_proxies_of_either_case_are_passed_and_their_passwords_are_hidden(tmp_path: Path) -> None:
    env = {"HTTP_PROXY": "http://me:hush@proxy:1", "https_proxy": "http://proxy:2", "no_proxy": "x"}
    found = secrets_of(context(tmp_path, **env), None)
    assert [found.env[name] for name in PROXIES] == ["http://me:hush@proxy:1", "http://proxy:2", "x"]
    assert "hush" in found.values


def test_credentials_of_the_index_are_hidden(tmp_path: Path) -> None:
    settings = PipSettings(index_url="https://user:secretword@index.example/simple")
    assert "secretword" in secrets_of(context(tmp_path, settings), None).values


def test_the_hosts_mirror_is_asked_for_the_bases_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "host_release", lambda: HostRelease("debian", "trixie", "13"))
    source = Source(("https://user:pw@mirror.example/debian",), "trixie", ("main",))
    monkeypatch.setattr(secrets, "distribution_sources", lambda _: (source,))
    path = Path(secrets_of(context(tmp_path), "bookworm").env[APT])
    text = path.read_text()
    assert "https://user:pw@mirror.example/debian bookworm main" in text
    assert "trixie" not in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.is_relative_to(tmp_path / "cache")
