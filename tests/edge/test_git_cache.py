"""The git cache: what it asks which host for, what it says when none has it, and what a killed run leaves."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from git_trees import Repo, closed_port, file_host, git_cache, git_env, hosts, served, silent, web

from cannery.errors import NetworkError, UnableError, UsageError
from cannery.sources.io.git import has, quiet_env
from cannery.util.io.locks import StoppedError

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.sources.io.git_cache import Found

NAME = {"here": "owner/name"}
ABSENT = "0123456789" * 4


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "work")


def commits(found: Found) -> int:
    """How many commits of it there are in the repository."""
    command = ("git", f"--git-dir={found.git_dir}", "rev-list", "--count", found.commit)
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_one_commit_is_fetched_alone_and_once(tmp_path: Path, repo: Repo) -> None:
    wanted = [repo.commit({"a": str(i)}) for i in range(3)][1]
    bare = served(repo, tmp_path / "host", "owner/name.git")
    cache, lines = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    found = cache.obtain("verl", wanted, NAME)
    assert (found.commit, found.repository) == (wanted, "here/owner/name")
    assert found.git_dir == tmp_path / f"cache/git/owner/name/{wanted}.git"
    assert commits(found) == 1
    assert lines == [f"verl: fetching owner/name {wanted[:12]} from here"]
    shutil.rmtree(bare)
    again = cache.obtain("verl", wanted, NAME)
    assert again.repository == "here/owner/name"
    assert len(lines) == 1, "a commit that is there is not asked for again"


def test_a_host_that_gives_no_single_commits_is_named_with_the_ways_out(tmp_path: Path, repo: Repo) -> None:
    wanted = [repo.commit({"a": str(i)}) for i in range(3)][1]
    served(repo, tmp_path / "host", "owner/name.git")
    env = git_env(tmp_path, protocol_version="0")  # as git before 2.26 asks
    cache, _ = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")}, env=env)
    with pytest.raises(NetworkError, match="it does not serve single commits") as caught:
        cache.obtain("verl", wanted, NAME)
    assert "GIT_MIRROR" in (caught.value.hint or "")


def test_the_next_host_is_asked_and_the_failed_one_last_from_then_on(tmp_path: Path, repo: Repo) -> None:
    first, second = repo.commit({"a": "1"}), repo.commit({"a": "2"})
    served(repo, tmp_path / "host", "Owner/Name.git")
    known = {**hosts(down=f"{closed_port()}/{{repository}}.git"), "up": file_host(tmp_path / "host")}
    cache, lines = git_cache(tmp_path / "cache", known)
    names = {"down": "owner/name", "up": "Owner/Name"}
    assert cache.obtain("verl", first, names).repository == "up/Owner/Name"
    assert [line.rpartition(" ")[2] for line in lines] == ["down", "up"]
    assert cache.obtain("verl", second, names).repository == "up/Owner/Name"
    assert [line.rpartition(" ")[2] for line in lines] == ["down", "up", "up"]


def test_every_host_is_named_with_its_reason(tmp_path: Path, repo: Repo) -> None:
    repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    with web(tmp_path, 404) as gone, web(tmp_path, 401) as private, web(tmp_path, 503) as ill, silent() as mute:
        urls = {"refused": closed_port(), "gone": gone, "private": private, "ill": ill, "mute": mute}
        known = hosts(**{host: f"{url.replace('//', '//me:s3cret@')}/{{repository}}.git" for host, url in urls.items()})
        known |= hosts(unknown="https://cannery.invalid/{repository}.git") | {"other": file_host(tmp_path / "host")}
        cache, lines = git_cache(tmp_path / "cache", known, silence=1.0)
        with pytest.raises(NetworkError) as caught:
            cache.obtain("verl", ABSENT, dict.fromkeys(known, "owner/name"))
    what = caught.value.what
    assert int(caught.value.code) == 7
    assert "\n" not in what
    assert what.removeprefix(f"verl: commit {ABSENT} cannot be fetched from ").split("; ") == [
        "refused (owner/name): connection refused",
        "gone (owner/name): no such repository",
        "private (owner/name): it asks for a login, or has no such repository",
        "ill (owner/name): server error: 503",
        "mute (owner/name): time-out: no output within 1 s",
        "unknown (owner/name): host name not found: cannery.invalid",
        "other (owner/name): it has no such commit",
    ]
    assert "GIT_MIRROR=dir (--git-mirror dir)" in caught.value.hint
    assert "SRC_<name>=dir (--src <name>=dir)" in caught.value.hint
    assert cache.slow == {"refused", "mute", "unknown"}
    assert "s3cret" not in "".join([what, *lines])


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path: Path, repo: Repo) -> None:
    first, second = repo.commit({"a": "1"}), repo.commit({"a": "2"})
    served(repo, tmp_path / "host", "owner/name.git")
    cache, _ = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    git_dir = cache.obtain("verl", first, NAME).git_dir
    part = git_dir.with_name(f"{second}.part")
    shutil.copytree(git_dir, part)
    for name in ("shallow.lock", "packed-refs.lock", "config.lock", "objects/pack/tmp_pack_x"):
        (part / name).touch()
    assert cache.obtain("verl", second, NAME).commit == second
    assert sorted(path.name for path in git_dir.parent.iterdir()) == sorted([f"{first}.git", f"{second}.git"])


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path, repo: Repo) -> None:
    repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    cache, _ = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    with pytest.raises(NetworkError, match="it has no such commit"):
        cache.obtain("verl", ABSENT, NAME)
    assert list((tmp_path / "cache/git/owner/name").iterdir()) == []


@pytest.mark.parametrize("damage", ["half made", "objects", "ref", "HEAD", "config"])
def test_a_damaged_repository_is_made_anew(tmp_path: Path, repo: Repo, damage: str) -> None:
    wanted = repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    cache, lines = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    git_dir = cache.obtain("verl", wanted, NAME).git_dir
    match damage:
        case "half made":
            shutil.rmtree(git_dir)
            (git_dir / "objects").mkdir(parents=True)
        case "objects":
            shutil.rmtree(git_dir / "objects")
            (git_dir / "objects").mkdir()
        case "ref":
            subprocess.run(("git", f"--git-dir={git_dir}", "update-ref", "-d", "refs/cannery/here"), check=True)
        case _:
            (git_dir / damage).write_text("[" if damage == "config" else "")
    assert cache.obtain("verl", wanted, NAME).repository == "here/owner/name"
    assert len(lines) == 2
    assert has(git_dir, f"{wanted}:a", cache.env)


def test_a_commit_in_the_cache_of_0_1_0_is_taken(tmp_path: Path, repo: Repo) -> None:
    wanted, other = repo.commit({"a": "1"}), repo.commit({"a": "2"})
    bare = served(repo, tmp_path / "cache/git", "owner/name.git")
    ref = f"refs/cannery/at/{wanted}/there"
    subprocess.run(("git", f"--git-dir={bare}", "update-ref", ref, wanted), check=True)
    served(repo, tmp_path / "host", "owner/name.git")
    cache, lines = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    found = cache.obtain("verl", wanted, NAME)
    assert (found.git_dir, found.repository, lines) == (bare, "there/owner/name", [])
    assert cache.obtain("verl", other, NAME).git_dir == tmp_path / f"cache/git/owner/name/{other}.git"


def test_a_stopped_run_ends_its_child_at_once(tmp_path: Path) -> None:
    stop = threading.Event()
    with silent() as url:
        cache, _ = git_cache(tmp_path / "cache", hosts(here=f"{url}/{{repository}}.git"), stop=stop)
        threading.Timer(0.5, stop.set).start()
        began = time.monotonic()
        with pytest.raises(StoppedError):
            cache.obtain("verl", ABSENT, NAME)
    assert time.monotonic() - began < 5


def test_two_at_once_fetch_once(tmp_path: Path, repo: Repo) -> None:
    wanted = repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    cache, lines = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    found: list[Found] = []
    threads = [threading.Thread(target=lambda: found.append(cache.obtain("verl", wanted, NAME))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert [line for line in lines if ": fetching " in line] == [f"verl: fetching owner/name {wanted[:12]} from here"]


def test_the_users_own_git_settings_apply(tmp_path: Path, repo: Repo) -> None:
    wanted = repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    (tmp_path / "gitconfig").write_text(f'[url "file://{tmp_path}/host/"]\n  insteadOf = https://cannery.invalid/\n')
    env = git_env(tmp_path) | {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    cache, _ = git_cache(tmp_path / "cache", hosts(here="https://cannery.invalid/{repository}.git"), env=env)
    assert cache.obtain("verl", wanted, NAME).repository == "here/owner/name"


def test_no_askpass_is_run_and_no_hook_around_it_counts(tmp_path: Path) -> None:
    askpass = tmp_path / "askpass"
    askpass.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho x\n")
    askpass.chmod(0o755)
    asking = dict.fromkeys(("GIT_ASKPASS", "SSH_ASKPASS"), str(askpass))
    env = (
        git_env(tmp_path, **{"core.askPass": str(askpass)}) | asking | {"GIT_DIR": "/nowhere", "LC_ALL": "de_DE.UTF-8"}
    )
    with web(tmp_path, 401) as url:
        cache, _ = git_cache(tmp_path / "cache", hosts(here=f"{url}/{{repository}}.git"), env=env)
        with pytest.raises(NetworkError, match="it asks for a login"):
            cache.obtain("verl", ABSENT, NAME)
    assert not (tmp_path / "asked").exists()
    assert {name: quiet_env(env)[name] for name in ("LC_ALL", "GIT_TERMINAL_PROMPT")} == {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
    }
    assert "GIT_DIR" not in quiet_env(env)


def test_no_tidying_up_takes_a_commit_away(tmp_path: Path, repo: Repo) -> None:
    wanted = repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    cache, _ = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")})
    git_dir = cache.obtain("verl", wanted, NAME).git_dir
    subprocess.run(("git", f"--git-dir={git_dir}", "gc", "--quiet", "--prune=now"), check=True)
    assert cache.obtain("verl", wanted, NAME).commit == wanted


def test_hosts_without_a_url_and_machines_without_git_are_reported(tmp_path: Path) -> None:
    cache, _ = git_cache(tmp_path / "cache", hosts(github="https://cannery.invalid/{repository}"))
    with pytest.raises(UsageError, match="verl: host 'here' has no URL") as caught:
        cache.obtain("verl", ABSENT, NAME)
    assert caught.value.hint == "known: github"
    with pytest.raises(UsageError, match="verl: no host is named"):
        cache.obtain("verl", ABSENT, {})
    cache, _ = git_cache(tmp_path / "cache", hosts(here="file:///x/{repository}"), env={"PATH": str(tmp_path)})
    with pytest.raises(UnableError, match="program not found: git"):
        cache.obtain("verl", ABSENT, NAME)


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/git").write_text("a file")
    cache, _ = git_cache(tmp_path / "cache", hosts(here="file:///x/{repository}"))
    with pytest.raises(UnableError, match="cannot be written"):
        cache.obtain("verl", ABSENT, NAME)


@pytest.mark.parametrize("place", ["owner/name.git", "owner/name", "owner+name/repo"])
def test_a_mirror_is_read_in_place_and_never_written(tmp_path: Path, repo: Repo, place: str) -> None:
    wanted = repo.commit({"a": "1"})
    bare = served(repo, tmp_path / "mirror", place)
    before = {path: path.stat().st_mtime_ns for path in bare.rglob("*")}
    cache, lines = git_cache(tmp_path / "cache", {}, mirror=tmp_path / "mirror")
    found = cache.obtain("verl", wanted, {"one": "else/where", "two": "owner/name"})
    assert (found.git_dir, found.repository, found.is_whole) == (bare, "mirror/owner/name", False)
    assert {path: path.stat().st_mtime_ns for path in bare.rglob("*")} == before
    assert lines == []
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_clone_with_a_work_tree_is_a_mirror_too(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "mirror/owner/name")
    cache, _ = git_cache(tmp_path / "cache", {}, mirror=tmp_path / "mirror")
    assert cache.obtain("verl", repo.commit({"a": "1"}), NAME).git_dir == tmp_path / "mirror/owner/name/.git"


def test_a_mirror_without_the_commit_says_where_it_looked_and_asks_no_host(tmp_path: Path, repo: Repo) -> None:
    wanted = repo.commit({"a": "1"})
    served(repo, tmp_path / "host", "owner/name.git")
    served(repo, tmp_path / "mirror", "owner+name/repo")
    other = repo.commit({"a": "2"})
    cache, lines = git_cache(tmp_path / "cache", {"here": file_host(tmp_path / "host")}, mirror=tmp_path / "mirror")
    assert cache.obtain("verl", wanted, NAME)
    with pytest.raises(NetworkError) as caught:
        cache.obtain("verl", other, NAME)
    assert caught.value.what == (
        f"verl: commit {other} is in no local repository: owner/name.git (not there), owner/name (not there), "
        "owner+name/repo (without the commit)"
    )
    assert caught.value.where == f"GIT_MIRROR={tmp_path}/mirror"
    assert lines == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("config", "bad config line 1 in file owner/name.git/config)"),
        ("pack", "is far too short to be a packfile)"),
        ("index", ".idx is too small)"),
        ("bytes", " is corrupt)"),
    ],
)
def test_a_mirror_that_git_cannot_read_is_reported_with_gits_reason(
    tmp_path: Path, repo: Repo, damage: str, says: str
) -> None:
    wanted = repo.commit({"a": "1"})
    bare = served(repo, tmp_path / "mirror", "owner/name.git")
    subprocess.run(("git", f"--git-dir={bare}", "repack", "-adq"), check=True)
    (pack,) = (bare / "objects/pack").glob("*.pack")
    file = {"config": bare / "config", "index": pack.with_suffix(".idx")}.get(damage, pack)
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes({"config": b"[core\n", "bytes": data[:14] + bytes(len(data) - 34) + data[-20:]}.get(damage, b"x"))
    cache, _ = git_cache(tmp_path / "cache", {}, mirror=tmp_path / "mirror")
    with pytest.raises(NetworkError) as caught:
        cache.obtain("verl", wanted, NAME)
    assert f"commit {wanted} is in no local repository: owner/name.git (git cannot read it: " in caught.value.what
    assert says in caught.value.what
    assert "without the commit" not in caught.value.what
    assert (
        caught.value.hint
        == "repair that repository, or put another copy there, or leave GIT_MIRROR (--git-mirror) out to fetch it"
    )
