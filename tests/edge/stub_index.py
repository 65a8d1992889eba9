"""A package index on loopback that can misbehave, and wheels small enough to make in a test."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name
from stub_server import StubHttpServer

if TYPE_CHECKING:
    from collections.abc import Sequence

TIME = "2026-01-02T03:04:05Z"


def make_wheel(
    name: str,
    version: str,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    payload: bytes = b"",
    requires_python: str = "",
) -> tuple[str, bytes]:
    """File name and bytes of a wheel that installers take."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Python: {requires_python}\n" if requires_python else ""
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    entries = {
        f"{name.replace('-', '_')}.py": b"X = 1\n" + b"# " + payload.hex().encode() + b"\n",
        f"{stem}.dist-info/METADATA": metadata.encode(),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    record = "".join(f"{path},,\n" for path in entries) + f"{stem}.dist-info/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for path, data in {**entries, f"{stem}.dist-info/RECORD": record.encode()}.items():
            wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data)
    return f"{stem}-{tag}.whl", buffer.getvalue()


def make_sdist(name: str, version: str, builds_with: Sequence[str] = ()) -> tuple[str, bytes]:
    """File name and bytes of an sdist. Its metadata is static (2.2), unless a build with packages has to make it."""
    stem = f"{name.replace('-', '_')}-{version}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        texts = {
            "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
            "pyproject.toml": f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = []\n'
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
        }
        if builds_with:
            texts = {"pyproject.toml": f"[build-system]\nrequires = {json.dumps(list(builds_with))}\n"}
        for path, text in texts.items():
            info = tarfile.TarInfo(f"{stem}/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return f"{stem}.tar.gz", buffer.getvalue()


@dataclass
class StubIndex(StubHttpServer):
    """What the index has and how it misbehaves; may be changed while it runs.

    `status` answers every page, `page_status` those of some projects, `file_status` every file, the first `failures`
    file requests with 502; `cut` closes the connection after so many bytes of a file, `cuts` times; `stall` waits so
    many seconds before every answer. `pythons` and `yanked` (with the reason) are by file name; `headers` go with every
    answer.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    json: bool = True
    hashes: bool = True
    sizes: bool = True
    dated: bool = True
    ranges: bool = True
    status: int = 200
    page_status: dict[str, int] = field(default_factory=dict)
    pythons: dict[str, str] = field(default_factory=dict)
    yanked: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    file_status: int = 200
    failures: int = 0
    cut: int = 0
    cuts: int = 0
    stall: float = 0.0
    slow: float = 0.0
    auth: str = ""
    body: dict[str, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    ranges_seen: list[str] = field(default_factory=list)

    def add(self, made: tuple[str, bytes], uploaded: str = TIME) -> str:
        """List a file; return its name."""
        file, data = made
        project = file.split("-")[0] if file.endswith(".whl") else file.rpartition("-")[0]
        self.files.setdefault(canonicalize_name(project), {})[file] = data
        self.times[file] = uploaded
        return file

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.answer(self)

            def do_HEAD(self) -> None:
                stub.answer(self)

            def log_message(self, *_args: object) -> None:
                """Quiet."""

        return self.serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(request.path)
        self.seen.append(path)
        time.sleep(self.stall)
        expected = "Basic " + base64.b64encode(self.auth.encode()).decode()
        if self.auth and request.headers.get("Authorization") != expected:
            request.send_response(401)
            request.send_header("WWW-Authenticate", "Basic")
            request.send_header("Content-Length", "0")
            request.end_headers()
        elif path.startswith("/simple/"):
            self._page(request, path.removeprefix("/simple/").strip("/"))
        else:
            self._file(request, path.rpartition("/")[2])

    def _page(self, request: BaseHTTPRequestHandler, project: str) -> None:
        status = self.page_status.get(project, self.status)
        if status != 200 or project not in self.files:
            self._send(request, b"", "text/html", status if status != 200 else 404)
            return
        if self.json:
            self._send(request, json.dumps(self._json(project)).encode(), "application/vnd.pypi.simple.v1+json")
            return
        links = "".join(
            f'<a href="/files/{quote(file)}{self._fragment(data)}">{file}</a><br>'
            for file, data in self.files[project].items()
        )
        self._send(request, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")

    def _fragment(self, data: bytes) -> str:
        return f"#sha256={hashlib.sha256(data).hexdigest()}" if self.hashes else ""

    def _json(self, project: str) -> dict[str, object]:
        files = [
            {
                "filename": file,
                "url": f"/files/{quote(file)}",
                "hashes": {"sha256": hashlib.sha256(data).hexdigest()} if self.hashes else {},
                **({"size": len(data)} if self.sizes else {}),
                **({"upload-time": self.times[file]} if self.dated else {}),
                **({"requires-python": self.pythons[file]} if file in self.pythons else {}),
                **({"yanked": self.yanked[file]} if file in self.yanked else {}),
            }
            for file, data in self.files[project].items()
        ]
        return {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": files}

    def _file(self, request: BaseHTTPRequestHandler, file: str) -> None:
        data = self.body.get(file) or next((files[file] for files in self.files.values() if file in files), None)
        if self.failures > 0:
            self.failures -= 1
            self._send(request, b"", "text/html", 502)
        elif data is None or self.file_status != 200:
            self._send(request, b"", "text/html", 404 if data is None else self.file_status)
        else:
            self._send_file(request, data)

    def _send_file(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        wanted = request.headers.get("Range", "")
        start, end = 0, len(data)
        if wanted:
            self.ranges_seen.append(wanted)
        if wanted.startswith("bytes=") and self.ranges and request.command == "GET":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            end = min(len(data), int(last) + 1) if first and last else len(data)
        whole = (start, end) == (0, len(data))
        request.send_response(200 if whole else 206)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(end - start))
        if self.ranges:
            request.send_header("Accept-Ranges", "bytes")
        if not whole:
            request.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        request.end_headers()
        if request.command == "HEAD":
            return
        body = data[start:end]
        if self.cuts > 0 and self.cut < len(body):
            self.cuts -= 1
            request.wfile.write(body[: self.cut])
            request.close_connection = True
            return
        for offset in range(0, len(body), 65536):
            request.wfile.write(body[offset : offset + 65536])
            time.sleep(self.slow)

    def _send(self, request: BaseHTTPRequestHandler, data: bytes, kind: str, status: int = 200) -> None:
        request.send_response(status)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)
