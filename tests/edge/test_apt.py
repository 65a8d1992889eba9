"""Sources of the host in both formats, and fetching through a recorded apt-get."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from cannery.errors import NetworkError, UnableError
from cannery.standin.io import apt
from cannery.standin.io.apt import (
    HostRelease,
    Source,
    distribution_sources,
    fetch_debs,
    for_suite,
    host_release,
    source_lines,
    unpack,
)

BOOKWORM = HostRelease("debian", "bookworm")
NOBLE = HostRelease("ubuntu", "noble")

DEBIAN_SOURCES = """\
Types: deb deb-src
# a comment inside a stanza
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://old.example/debian
Suites: bookworm
Components: main
"""
VENDORS = """\
deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] https://download.example/linux/debian bookworm stable
deb [signed-by=/usr/share/keyrings/hashi.gpg] https://apt.example bookworm main
deb https://nodes.example/node_20.x nodistro main
deb https://flat.example ./
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb http://user:pass@mirror.example/debian/ bookworm main contrib # end
deb [ arch=amd64,arm64 trusted=yes ] http://mirror.example/debian-security bookworm-security main
deb-src http://mirror.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
"""


def etc_apt(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        path = folder / "sources.list" if name == "list" else folder / "sources.list.d" / name.replace("__", ".")
        path.write_text(text)
    return folder


def names(sources: tuple[Source, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(source.uris[0], source.suite, source.components) for source in sources]


def test_deb822_takes_pockets_and_leaves_vendors(tmp_path: Path) -> None:
    found = distribution_sources(BOOKWORM, etc_apt(tmp_path, debian__sources=DEBIAN_SOURCES, vendors__list=VENDORS))
    assert names(found) == [
        ("http://mirror.example/debian", "bookworm", ("main", "contrib")),
        ("http://mirror.example/debian", "bookworm-updates", ("main", "contrib")),
        ("http://mirror.example/debian-security", "bookworm-security", ("main",)),
    ]


@pytest.mark.parametrize("line", ["Types : deb\n", "Types: deb\nthis is no field\n"])
def test_a_line_of_deb822_that_is_no_header_drops_no_field(tmp_path: Path, line: str) -> None:
    text = f"{line}URIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n"
    found = distribution_sources(BOOKWORM, etc_apt(tmp_path, a__sources=text))
    assert names(found) == [("http://mirror.example/debian", "bookworm", ("main",))]


def test_one_line_format_keeps_trust_and_architectures(tmp_path: Path) -> None:
    found = distribution_sources(BOOKWORM, etc_apt(tmp_path, list=ONE_LINE))
    assert names(found) == [
        ("http://user:pass@mirror.example/debian/", "bookworm", ("main", "contrib")),
        ("http://mirror.example/debian-security", "bookworm-security", ("main",)),
    ]
    assert found[1].options == (("trusted", "yes"),)
    assert found[1].serves("arm64")
    assert not found[1].serves("riscv64")


def test_company_mirror_with_its_own_key_counts_when_alone(tmp_path: Path) -> None:
    text = "deb [signed-by=/etc/apt/keyrings/acme.gpg] http://apt.acme.example/debian bookworm main\n"
    (source,) = distribution_sources(BOOKWORM, etc_apt(tmp_path, list=text))
    assert source.signed_by == "/etc/apt/keyrings/acme.gpg"


def test_inline_key_becomes_a_file(tmp_path: Path) -> None:
    text = (
        "Types: deb\nURIs: http://apt.acme.example/debian\nSuites: bookworm\nComponents: main\nSigned-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )
    (source,) = distribution_sources(BOOKWORM, etc_apt(tmp_path, a__sources=text))
    lines = ["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", "mQINBF", "-----END PGP PUBLIC KEY BLOCK-----"]
    assert source.signed_by.splitlines() == lines
    folder = apt._apt_folder((source,), "bookworm", "amd64", tmp_path / "cache")
    rendered = (folder / "sources.list").read_text()
    key = Path(rendered.partition("signed-by=")[2].partition(" ")[0])
    assert key.read_text().splitlines() == lines


def test_any_name_of_a_cache_can_stand_in_the_configuration(tmp_path: Path) -> None:
    (source,) = distribution_sources(BOOKWORM, etc_apt(tmp_path, list="deb http://m.example/debian bookworm main\n"))
    folder = apt._apt_folder((source,), "bookworm", "amd64", tmp_path / 'it\'s "my" 100%; cache')
    words = dict(line.rstrip(";").split(" ", 1) for line in (folder / "apt.conf").read_text().splitlines())
    assert unquote(words["Dir::State"]) == f"{folder}/state"
    assert not set(words["Dir::State"]) & set(" \"';")
    assert (folder / "state/status").is_file()


def test_ubuntu_and_mirror_list_file(tmp_path: Path) -> None:
    text = (
        "Types: deb\nURIs: mirror+file:/etc/apt/mirrors/u.list\nSuites: noble noble-updates\n"
        "Components: main universe\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
    )
    folder = etc_apt(tmp_path, ubuntu__sources=text)
    (folder / "mirrors").mkdir()
    (folder / "mirrors/u.list").write_text("http://one.example/ubuntu\tpriority:1\n# no\nhttp://two.example/ubuntu\n")
    found = distribution_sources(NOBLE, folder)
    assert [source.uris for source in found] == [("http://one.example/ubuntu", "http://two.example/ubuntu")] * 2


def test_rolling_suite_names_count_when_no_codename_does(tmp_path: Path) -> None:
    found = distribution_sources(
        HostRelease("debian", "forky"), etc_apt(tmp_path, list="deb http://m.example/debian testing main\n")
    )
    assert source_lines("forky", found) == "deb http://m.example/debian forky main\n"


def test_no_source_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="debian bookworm"):
        distribution_sources(BOOKWORM, etc_apt(tmp_path, vendors__list="deb https://x.example bookworm stable\n"))


def test_source_lines_map_the_release_and_keep_credentials(tmp_path: Path) -> None:
    found = distribution_sources(BOOKWORM, etc_apt(tmp_path, list=ONE_LINE))
    assert source_lines("trixie", found, signed_by="/k.gpg") == (
        "deb [signed-by=/k.gpg] http://user:pass@mirror.example/debian/ trixie main contrib\n"
        "deb [trusted=yes signed-by=/k.gpg] http://mirror.example/debian-security trixie-security main\n"
    )
    assert [source.suite for source in for_suite(found, "sid")] == ["sid"]
    assert for_suite(found, "trixie", arch="riscv64")[0].suite == "trixie"
    assert for_suite(found, "trixie", components=("contrib",))[0].components == ("contrib",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', BOOKWORM),
        ("ID=ubuntu\nVERSION_ID='24.04'\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n", NOBLE),
        ("ID=linuxmint\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n", HostRelease("ubuntu", "noble")),
    ],
)
def test_host_release(tmp_path: Path, text: str, expected: HostRelease) -> None:
    (tmp_path / "os-release").write_text(text)
    assert host_release(tmp_path) == expected


def test_other_distributions_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('ID=openEuler\nPRETTY_NAME="openEuler 24.03"\n')
    with pytest.raises(UnableError, match=r"openEuler 24\.03"):
        host_release(tmp_path)


# ---- fetching ---------------------------------------------------------------------------------------------------

FAKE_APT = """\
#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
plan = json.loads((here / "plan.json").read_text())
with (here / "calls").open("a") as stream:
    print(json.dumps(sys.argv[1:]), file=stream)
step = "uris" if "--print-uris" in sys.argv else next(w for w in sys.argv if w in ("update", "download"))
if step in plan.get("fail", {}):
    print(plan["fail"][step], file=sys.stderr)
    sys.exit(100)
if step == "uris":
    print(plan["install"] if "install" in sys.argv and "install" in plan else plan["uris"])
if step == "download":
    for name, text in plan["files"].items():
        pathlib.Path(name).write_text(text)
"""
RUNC = "runc_1.1%3a5+b1_amd64.deb"
SOURCES = (Source(("http://user:pass@mirror.example/debian",), "bookworm", ("main",), "/k.gpg"),)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apt-get").write_text(FAKE_APT)
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(apt, "host_release", lambda: BOOKWORM)
    monkeypatch.setattr(apt, "distribution_sources", lambda _release: SOURCES)
    return folder


def plan(folder: Path, *, delivered: str = "whole", **fail: str) -> None:
    uris = f"Reading lists...\n'http://mirror.example/debian/pool/r/{RUNC}' {RUNC} 5 SHA256:0\n"
    files = {RUNC: delivered} if delivered else {}
    (folder / "plan.json").write_text(json.dumps({"uris": uris, "files": files, "fail": fail}))


def fetch(tmp_path: Path, *, dependencies: bool = False) -> tuple[Path, ...]:
    return fetch_debs(["runc"], suite="trixie", arch="arm64", cache=tmp_path / "c", dependencies=dependencies)


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_fetch_downloads_once_and_only_into_the_cache(fake: Path, tmp_path: Path) -> None:
    plan(fake)
    (deb,) = fetch(tmp_path)
    assert deb.parent.parent.parent == tmp_path / "c/apt"
    assert deb.read_text() == "whole"
    assert [call[3] for call in calls(fake)] == ["update", "download", "download"]
    assert calls(fake)[-1][-1] == "runc=1.1:5+b1"
    config = Path(calls(fake)[0][2])
    assert config.is_relative_to(tmp_path / "c")
    text = config.read_text()
    assert 'APT::Architecture "arm64"' in text
    assert 'Dir::Etc::sourceparts "/dev/null"' in text
    assert f"Dir::State {config.parent}/state;" in text
    sources = config.parent / "sources.list"
    assert sources.read_text() == (
        "deb [signed-by=/k.gpg lang=none target=Packages] http://user:pass@mirror.example/debian trixie main\n"
    )
    assert sources.stat().st_mode & 0o077 == 0
    assert fetch(tmp_path) == (deb,)
    assert [call[3] for call in calls(fake)][3:] == ["update", "download"]  # the second is --print-uris


def test_dependencies_are_asked_of_an_empty_system(fake: Path, tmp_path: Path) -> None:
    plan(fake)
    fetch(tmp_path, dependencies=True)
    assert calls(fake)[1][3:] == ["install", "--yes", "--download-only", "--print-uris", "runc"]


def test_index_with_sha256_alone_loses_no_package(fake: Path, tmp_path: Path) -> None:
    """As bookworm does: `install --print-uris` prints MD5 where the index has it, and nothing for bookworm-security."""
    plan(fake)
    secure = "libc6_2.36-9+deb12u14_amd64.deb"
    security = f"'http://mirror.example/debian-security/pool/{secure}' {secure} 4"
    main = f"'http://mirror.example/debian/pool/r/{RUNC}' {RUNC} 5"
    install = f"Reading package lists...\n{main} MD5Sum:0\n{security} \n"
    both = json.loads((fake / "plan.json").read_text()) | {"install": install, "files": {RUNC: "whole", secure: "safe"}}
    (fake / "plan.json").write_text(json.dumps(both))
    debs = fetch(tmp_path, dependencies=True)
    assert {deb.name: deb.read_text() for deb in debs} == {RUNC: "whole", secure: "safe"}
    assert calls(fake)[2][3:] == ["download", "runc=1.1:5+b1", "libc6=2.36-9+deb12u14"]


def test_a_download_that_does_not_arrive_is_an_error_and_comes_the_next_time(fake: Path, tmp_path: Path) -> None:
    plan(fake, delivered="")
    with pytest.raises(NetworkError, match="did not arrive"):
        fetch(tmp_path)
    plan(fake)
    assert fetch(tmp_path)[0].read_text() == "whole"


@pytest.mark.parametrize(
    ("step", "words", "kind", "message"),
    [
        (
            "update",
            "W: Failed to fetch http://user:pass@mirror.example/debian/dists/trixie/InRelease  Could not connect",
            NetworkError,
            "Could not connect",
        ),
        ("uris", "E: Unable to locate package runc", UnableError, "trixie has no package runc"),
        ("update", "W: GPG error: http://mirror.example trixie InRelease: NO_PUBKEY 6ED0", UnableError, "signature"),
        (
            "update",
            "E: The repository 'http://m trixie Release' does not have a Release file.",
            UnableError,
            "does not have a Release file",
        ),
        ("download", "E: Write error - write (28: No space left on device)", UnableError, "No space left"),
        ("download", "E: something new", UnableError, "something new"),
    ],
)
def test_failures_name_the_mirror_without_credentials(
    fake: Path, tmp_path: Path, step: str, words: str, kind: type[Exception], message: str
) -> None:
    plan(fake, **{step: words})
    with pytest.raises(kind, match=message) as caught:
        fetch(tmp_path)
    assert "pass" not in str(caught.value)
    if kind is NetworkError:
        assert "mirror.example/debian" in str(caught.value)


def runs(number: str) -> bool:
    """Whether a process is there, and is none that nobody has waited for yet."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_apt_ends_with_the_run_that_started_it(fake: Path, tmp_path: Path) -> None:
    """One that goes on would hold apt's lock, and the next run would fail."""
    (fake / "apt-get").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 30\n")
    code = (
        "import sys; from pathlib import Path; from cannery.standin.io.apt import _apt\n"
        f"_apt(Path({str(tmp_path)!r}), 'update', timeout=60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        pid = tmp_path / "pid"
        until = time.monotonic() + 20
        while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.05)
        number = pid.read_text().strip()
        assert runs(number)
        child.kill()
        child.wait()
        while runs(number) and time.monotonic() < until:
            time.sleep(0.05)
    assert not runs(number)


def test_unpack_runs_no_script(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/tool").write_text("tool")
    (tree / "DEBIAN/control").write_text(
        "Package: t\nVersion: 1\nArchitecture: all\nMaintainer: m <m@x>\nDescription: d\n"
    )
    script = tree / "DEBIAN/postinst"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    deb = tmp_path / "t.deb"
    subprocess.run(["dpkg-deb", "-b", tree, deb], check=True, capture_output=True)
    unpack(deb, tmp_path / "out")
    assert (tmp_path / "out/usr/bin/tool").read_text() == "tool"
    assert not (tmp_path / "ran").exists()
    deb.write_bytes(b"no package")
    with pytest.raises(UnableError, match=r"t\.deb cannot be unpacked"):
        unpack(deb, tmp_path / "out2")
