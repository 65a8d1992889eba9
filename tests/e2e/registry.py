"""Debian's docker-registry on loopback, with a login."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from cannery.standin.io.apt import fetch_debs, host_release, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

USER, PASSWORD = "me", "open-sesame"
# Of PASSWORD, by bcrypt, which is the only form that the registry takes.
HTPASSWD = "me:$2b$04$abcdefghijklmnopqrstuuXcjcm5avyCiJoD2uS24xa2lb6fjMB3G\n"
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: "{root}"}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: cannery, path: "{htpasswd}"}}}}
log: {{level: warn}}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Registry:
    """Debian's docker-registry, unpacked and started on loopback; it wants a login for everything."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        release = host_release()
        arch = subprocess.run(("dpkg", "--print-architecture"), check=True, capture_output=True, text=True).stdout
        (deb,) = fetch_debs(("docker-registry",), suite=release.codename, arch=arch.strip(), cache=cache)
        unpack(deb, folder / "program")
        self.port = free_port()
        (folder / "htpasswd").write_text(HTPASSWD)
        config = folder / "config.yml"
        config.write_text(CONFIG.format(root=folder / "data", port=self.port, htpasswd=folder / "htpasswd"))
        self.command = (str(folder / "program/usr/bin/docker-registry"), "serve", str(config))

    def __enter__(self) -> Self:
        with (self.folder / "log").open("w") as log:
            env = {"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"}
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=env)
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return self
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def __exit__(self, *_exc: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


def login(folder: Path, hosts: Sequence[str], password: str = PASSWORD) -> Path:
    """A folder with docker's settings, logged in at `hosts`."""
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth} for host in hosts}}))
    return folder
