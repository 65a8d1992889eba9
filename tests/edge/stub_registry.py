"""A container registry on loopback that can misbehave, and the images in it."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from stub_server import StubHttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

REPOSITORY, TAG = "ascend/cann", "8.5.0"
INDEX = "application/vnd.oci.image.index.v1+json"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYERS = [{"digest": f"sha256:{'1' * 64}", "size": 6_000_000_000}, {"digest": f"sha256:{'2' * 64}", "size": 2_000}]


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class StubRegistry(StubHttpServer):
    """What the registry has and how it misbehaves; may be changed while it runs.

    `auth` is "", "basic" or "bearer"; `login` ("user:password") is then needed for what anyone may not read. `status`
    and `body` answer every manifest, `blob_status` every blob, `token_status` and `token_body` the token service;
    `stall` waits before every answer, `drip` before every tenth of one; `moved` redirects manifests and
    blobs to that base URL. `seen` are paths, each with its Authorization.
    """

    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    auth: str = ""
    login: str = ""
    realm: str = ""
    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    blob_status: int = 200
    token_status: int = 200
    token_body: bytes = b'{"token": "let-me-in"}'
    stall: float = 0.0
    drip: float = 0.0
    moved: str = ""
    context: ssl.SSLContext | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)
    # Tags that are listed, a page of so many; `link` is what a page names as its next one in the place of the real one.
    tags: list[str] = field(default_factory=list)
    page: int = 1000
    link: str = ""
    # As Huawei's SWR: no OCI manifest and no OCI index is taken.
    refuses_oci: bool = False

    def add(
        self, arches: Sequence[str] = ("amd64", "arm64"), config: Mapping[str, Any] | None = None, *, kind: str = INDEX
    ) -> str:
        """Put an image under `TAG`: an index (`kind` says of which make), or one manifest; return its digest."""
        entries = []
        for arch in arches:
            data = json.dumps({"architecture": arch, "os": "linux", "config": config or {}}).encode()
            self.blobs[sha(data)] = data
            image = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"digest": sha(data)}, "layers": LAYERS}
            body = json.dumps(image).encode()
            self.manifests[sha(body)] = (MANIFEST, body)
            entries.append({"digest": sha(body), "platform": {"os": "linux", "architecture": arch}})
        # What buildx adds beside images.
        entries.append({"digest": sha(b"proof"), "platform": {"os": "unknown", "architecture": "unknown"}})
        if kind != MANIFEST:
            body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
        self.manifests[TAG] = self.manifests[sha(body)] = (kind, body)
        return sha(body)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.answer(self)

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub.answer(self, body)

            def log_message(self, *_args: object) -> None:
                """Quiet."""

        if self.context:
            return self.serve(_TlsServer(self.context, Handler))
        return self.serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def repository(self) -> str:
        return f"{self.host}/{REPOSITORY}"

    @property
    def reference(self) -> str:
        return f"{self.repository}:{TAG}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def answer(self, request: BaseHTTPRequestHandler, put: bytes | None = None) -> None:
        url, login = urlsplit(request.path), request.headers.get("Authorization", "")
        self.seen.append((request.path, login))
        time.sleep(self.stall)
        if url.path == "/token":
            good = not self.login or login == self._basic
            self._send(request, self.token_status if good else 401, "application/json", self.token_body)
        elif self.auth and login != (self._basic if self.auth == "basic" else "Bearer let-me-in"):
            scheme = "https" if self.context else "http"
            realm = self.realm or f"{scheme}://{self.host}/token"
            challenge = f'Bearer realm="{realm}",service="stub, of a registry",scope="repository:{REPOSITORY}:pull"'
            challenge = 'Basic realm="stub"' if self.auth == "basic" else challenge
            self._send(request, 401, "application/json", b'{"errors": []}', {"WWW-Authenticate": challenge})
        elif self.moved:
            self._send(request, 307, "text/html", b"", {"Location": self.moved + request.path})
        elif put is not None and self.refuses_oci and "vnd.oci." in request.headers["Content-Type"] + put.decode():
            error = {"code": "MANIFEST_INVALID", "message": "Invalid image, fail to parse 'manifest.json'"}
            self._send(request, 400, "application/json", json.dumps({"errors": [error]}).encode())
        elif put is not None:
            self.manifests[url.path.rpartition("/")[2]] = (request.headers["Content-Type"], put)
            self._send(request, 201, "text/plain", b"", {"Docker-Content-Digest": sha(put)})
        elif url.path.endswith("/tags/list"):
            self._tags(request, parse_qs(url.query))
        else:
            self._image(request, url.path.removeprefix(f"/v2/{REPOSITORY}/"))

    def _tags(self, request: BaseHTTPRequestHandler, query: Mapping[str, Sequence[str]]) -> None:
        start = int(query.get("last", ["0"])[0])
        page = self.tags[start : start + self.page]
        following = self.link or f"/v2/{REPOSITORY}/tags/list?last={start + self.page}"
        more = {"Link": f'<{following}>; rel="next"'} if start + self.page < len(self.tags) else {}
        self._send(request, self.status, "application/json", json.dumps({"tags": page or None}).encode(), more)

    def _image(self, request: BaseHTTPRequestHandler, path: str) -> None:
        kind, _, name = path.partition("/")
        if kind == "manifests" and name in self.manifests:
            media, body = self.manifests[name]
            accepted = media in ", ".join(request.headers.get_all("Accept", []))
            self._send(request, self.status if accepted else 406, media, self.body or body, self.headers)
        elif kind == "blobs" and name in self.blobs:
            self._send(request, self.blob_status, "application/octet-stream", self.blobs[name])
        else:
            self._send(request, self.status if self.status != 200 else 404, "application/json", b'{"errors": []}')

    @property
    def _basic(self) -> str:
        return "Basic " + base64.b64encode(self.login.encode()).decode()

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        kind: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        size = max(1, len(data) // 10) if self.drip else len(data) or 1
        for offset in range(0, len(data) if request.command != "HEAD" else 0, size):
            time.sleep(self.drip)
            request.wfile.write(data[offset : offset + size])


class _TlsServer(ThreadingHTTPServer):
    """A server with TLS that leaves no socket open when a client has gone before it was accepted.

    `SSLContext.wrap_socket` of Python 3.11.7 leaves it open, and its ResourceWarning fails some later test.
    """

    def __init__(self, context: ssl.SSLContext, handler: type[BaseHTTPRequestHandler]) -> None:
        self._context = context
        super().__init__(("127.0.0.1", 0), handler)

    def get_request(self) -> tuple[ssl.SSLSocket, tuple[str, int]]:
        plain, address = self.socket.accept()
        try:
            plain.getpeername()
        except OSError:
            plain.close()
            raise
        return self._context.wrap_socket(plain, server_side=True), address


def tokens_asked(stub: StubRegistry) -> list[dict[str, list[str]]]:
    """The queries of the requests to the token service."""
    return [parse_qs(urlsplit(path).query) for path in stub.paths if path.startswith("/token")]


def make_certificate(folder: Path, name: str = "IP:127.0.0.1") -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for `name` (which is its own CA), and the context of a server that shows it."""
    import subprocess  # noqa: PLC0415 - few tests need it

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=stub", "-addext", f"subjectAltName={name}", "-days", "2"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context
