from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cannery.build.io import secrets
from cannery.build.io.secrets import MAX_SECRET, Secrets, host_secrets
from cannery.context import Context
from cannery.errors import UsageError
from cannery.render.render import NO_SECRET, SECRETS
from cannery.standin.io.apt import HostRelease, Source
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

ROOT = Path(__file__).parents[2]
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


def secrets_of(context: Context, suite: str | None, **system: str) -> tuple[Secrets, dict[str, str]]:
    """The secrets while a build runs, and the texts of the files that are made for it; checks their modes."""
    mirrors = {name: (place,) for name, place in system.items()}
    with host_secrets(context.cache, context.env, context.pip, suite, mirrors) as found:
        paths = {name: Path(path) for name, path in found.env.items() if path.startswith(str(context.cache))}
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths.values())
        texts = {name: path.read_text() for name, path in paths.items()}
    assert list((context.cache / "secrets").iterdir()) == []
    return found, texts


def test_a_host_without_settings_has_nothing_to_hide(tmp_path: Path) -> None:
    found, texts = secrets_of(context(tmp_path), None)
    assert found.env == dict.fromkeys(SECRETS.values(), NO_SECRET)
    assert (found.values, texts) == ((), {})


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_usual_variables_name_the_bundle(tmp_path: Path, name: str) -> None:
    path = bundle(tmp_path, CERTIFICATE)
    assert secrets_of(context(tmp_path, **{name: path}), None)[0].env[CA] == path


def test_pips_own_bundle_comes_first(tmp_path: Path) -> None:
    path = bundle(tmp_path, CERTIFICATE)
    assert secrets_of(context(tmp_path, PipSettings(cert=path), SSL_CERT_FILE="/no"), None)[0].env[CA] == path


def test_a_bundle_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the CA bundle cannot be read") as caught:
        secrets_of(context(tmp_path, SSL_CERT_FILE=str(tmp_path / "no.crt")), None)
    assert "no.crt" in caught.value.what
    assert "pip config list" in caught.value.hint


def test_a_bundle_that_is_too_large_is_said_before_the_build(tmp_path: Path) -> None:
    many = CERTIFICATE * (MAX_SECRET // len(CERTIFICATE) + 2)
    with pytest.raises(UsageError, match="larger than BuildKit allows"):
        secrets_of(context(tmp_path, SSL_CERT_FILE=bundle(tmp_path, many)), None)
    fits = bundle(tmp_path, "x" * MAX_SECRET)
    assert secrets_of(context(tmp_path, SSL_CERT_FILE=fits), None)[0].env[CA] == fits


def test_proxies_of_either_case_are_passed_and_their_passwords_are_hidden(tmp_path: Path) -> None:
    env = {"HTTP_PROXY": "http://me:hush@proxy:1", "https_proxy": "http://proxy:2", "no_proxy": "x"}
    found, texts = secrets_of(context(tmp_path, **env), None)
    lines = ["export http_proxy=http://me:hush@proxy:1", "export https_proxy=http://proxy:2", "export no_proxy=x"]
    assert texts[SECRETS["proxies"]].splitlines() == lines
    assert "hush" in found.values
    # As a proxy without its scheme, which curl takes too.
    assert "hush" in secrets_of(context(tmp_path, http_proxy="me:hush@proxy:1"), None)[0].values


def test_the_number_of_jobs_reaches_the_build_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    assert secrets_of(context(tmp_path, MAX_JOBS="12"), None)[1] == {SECRETS["jobs"]: "12"}
    assert SECRETS["jobs"] not in secrets_of(context(tmp_path), None)[1]
    for text in ("0", "many", "-j4", "2;id"):
        with pytest.raises(UsageError, match="MAX_JOBS"):
            secrets_of(context(tmp_path, MAX_JOBS=text), None)


def test_a_proxy_is_quoted_for_the_shell(tmp_path: Path) -> None:
    _, texts = secrets_of(context(tmp_path, http_proxy="http://a:b$(id)';c@p:1"), None)
    shell = ["sh", "-c", f'{texts[SECRETS["proxies"]]}printf %s "$http_proxy"']
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout == "http://a:b$(id)';c@p:1"


def test_mirrors_of_system_packages_take_the_place_of_the_bases_sources(tmp_path: Path) -> None:
    system = {
        "http://ports.ubuntu.com/ubuntu-ports": "https://m.example/ports",
        "http://ports.ubuntu.com": "https://other.example",
        "http://a.example": "https://x.example/a&b",
    }
    _, texts = secrets_of(context(tmp_path), None, **system)
    script = tmp_path / "script"
    script.write_text(texts[SECRETS["system_mirrors"]])
    before = """\
deb http://ports.ubuntu.com/ubuntu-ports jammy main
deb http://ports.ubuntu.com/ubuntu-ports/ jammy main
URIs: http://ports.ubuntu.com
deb http://portsxubuntu.com/x jammy main
baseurl=http://a.example/OS/$basearch/
baseurl=http://a.example.org/OS
"""
    after = """\
deb https://m.example/ports jammy main
deb https://m.example/ports/ jammy main
URIs: https://other.example
deb http://portsxubuntu.com/x jammy main
baseurl=https://x.example/a&b/OS/$basearch/
baseurl=http://a.example.org/OS
"""
    done = subprocess.run(["sed", "-f", script], input=before, capture_output=True, text=True, check=True)
    assert done.stdout == after


REPO = """\
[OS]
name=OS
baseurl=http://repo.example/24.03/OS/$basearch/
metalink=https://lists.example/metalink?repo=OS
[own]
baseurl=http://own.example/rpm/
"""


def test_a_mirror_of_the_repositories_of_dnf_is_for_the_step_alone(tmp_path: Path) -> None:
    """The functions of system.sh, on folders of this test and a dnf that prints what it is given."""
    secrets_folder, repos, scratch, programs = (tmp_path / name for name in ("secrets", "repos", "scratch", "bin"))
    for folder in (secrets_folder, repos, scratch, programs):
        folder.mkdir()
    (repos / "base.repo").write_text(REPO)
    (repos / "other.repo").write_text("[other]\nbaseurl=http://third.example/\nmetalink=http://third.example/list\n")
    _, texts = secrets_of(context(tmp_path), None, **{"http://repo.example": "https://m.example/openeuler"})
    (secrets_folder / "system_mirrors").write_text(texts[SECRETS["system_mirrors"]])
    dnf = programs / "dnf"
    dnf.write_text('#!/bin/sh\necho "$@"\n')
    dnf.chmod(0o755)
    text = (ROOT / "templates/tools/system.sh").read_text()
    functions = text[text.index("with_mirrors() {") : text.index("fail() {")]
    for own, here in (("/run/secrets", secrets_folder), ("/etc/yum.repos.d", repos)):
        functions = functions.replace(own, str(here))
    script = f"set -eu; scratch={scratch}\n{functions}\ninstall_dnf -- iproute jemalloc"
    shell = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=shell, capture_output=True, text=True, check=True)
    options = f"-y --setopt=install_weak_deps=False --setopt=reposdir={scratch}/repos install iproute jemalloc"
    assert done.stdout.splitlines() == [options, "clean all"]
    mirrored = "https://m.example/openeuler/24.03/OS/$basearch/"
    wanted = REPO.replace("http://repo.example/24.03/OS/$basearch/", mirrored)
    assert (scratch / "repos/base.repo").read_text() == "".join(
        line for line in wanted.splitlines(True) if not line.startswith("metalink")
    )
    assert "metalink" in (scratch / "repos/other.repo").read_text(), "it has no mirror"
    assert (repos / "base.repo").read_text() == REPO


def test_credentials_of_the_index_are_hidden(tmp_path: Path) -> None:
    settings = PipSettings(index_url="https://user:secretword@index.example/simple")
    assert "secretword" in secrets_of(context(tmp_path, settings), None)[0].values


def test_the_hosts_mirror_is_asked_for_the_bases_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "host_release", lambda: HostRelease("debian", "trixie"))
    source = Source(("https://user:pw@mirror.example/debian",), "trixie", ("main",))
    monkeypatch.setattr(secrets, "distribution_sources", lambda _: (source,))
    text = secrets_of(context(tmp_path), "bookworm")[1][APT]
    assert "https://user:pw@mirror.example/debian bookworm main" in text
    assert "trixie" not in text
