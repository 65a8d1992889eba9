"""Repositories for tests: made on the spot, with a git that no setting of this machine reaches."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

from cannery.catalog.addresses import Host
from cannery.sources.io.git_cache import GitCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

EPOCH = 1735689600


def git_env(home: Path, **settings: str) -> dict[str, str]:
    """The environment of a user in `home`; `settings` are git's own (`protocol_version` is protocol.version)."""
    config = {"protocol.file.allow": "always", **{name.replace("_", "."): value for name, value in settings.items()}}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.invalid",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.invalid",
        "no_proxy": "*",
        "GIT_CONFIG_COUNT": str(len(config)),
        **{f"GIT_CONFIG_KEY_{i}": name for i, name in enumerate(config)},
        **{f"GIT_CONFIG_VALUE_{i}": value for i, value in enumerate(config.values())},
    }


class Repo:
    """A repository with a work tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.env = git_env(path.parent)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        command = ("git", "-C", str(self.path), *arguments)
        done = subprocess.run(command, env=self.env, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(errors="surrogateescape").strip()

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes] | None = None) -> str:
        """Write `files`, commit everything there is, return the commit."""
        self.write(files or {})
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message=x")
        return self.git("rev-parse", "HEAD")

    def gitlink(self, path: str, commit: str) -> str:
        """Commit a submodule's place; the submodule itself stays away."""
        self.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        self.git("commit", "--quiet", "--message=link")
        return self.git("rev-parse", "HEAD")

    def commit_tree(self, listing: str) -> str:
        """Commit a tree of these lines of `git ls-tree`, whatever stands in them. Returns the commit."""
        entries = []
        for line in listing.splitlines():
            head, name = line.split("\t")
            mode, _, oid = head.split(" ")
            entries.append(f"{mode} {name}\0".encode() + bytes.fromhex(oid))
        tree = self.git("hash-object", "-t", "tree", "--literally", "-w", "--stdin", stdin=b"".join(entries))
        return self.git("commit-tree", "-m", "x", tree)

    def blob(self, content: str) -> str:
        return self.git("hash-object", "-w", "--stdin", stdin=content.encode())


def served(repo: Repo, root: Path, name: str) -> Path:
    """A bare copy of `repo` at `root`/`name`."""
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    repo.git("clone", "--quiet", "--bare", "--no-local", str(repo.path), str(target))
    return target


def hosts(**urls: str) -> dict[str, Host]:
    """Hosts as they are, credentials in their addresses included, which images/hosts.yaml may not have."""
    return {name: Host.model_construct(url=url) for name, url in urls.items()}


def file_host(root: Path) -> Host:
    return Host(url=f"file://{root}/{{repository}}.git")


def git_cache(cache: Path, known: Mapping[str, Host], **changes: object) -> tuple[GitCache, list[str]]:
    """A git cache, with the list of what it says."""
    lines: list[str] = []
    cache.mkdir(exist_ok=True)
    values: dict[str, object] = {
        "env": git_env(cache),
        "mirror": None,
        "say": lines.append,
        "stop": threading.Event(),
        **changes,
    }
    return GitCache(cache, known, **values), lines  # type: ignore[arg-type]  # each test names what it changes


@contextlib.contextmanager
def web(root: Path, status: int | None = None) -> Iterator[str]:
    """A server of the files below `root`, or one that answers everything with `status`. Yields its URL."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                super().do_GET()
                return
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections and never answers. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def closed_port() -> str:
    """The URL of a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"
