"""A container registry on loopback that takes images as Docker's does, and that can misbehave."""

# ruff: noqa: ANN401 - requests are of a class that is made below

from __future__ import annotations

import base64
import json
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from stub_registry import sha
from stub_server import StubHttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator

UPLOADS = re.compile(r"/v2/(.+)/blobs/uploads/(.*)")
REFERRERS = re.compile(r"/v2/(.+)/referrers/([^/]+)")
TAGS = re.compile(r"/v2/(.+)/tags/list")
PARTS = re.compile(r"/v2/(.+)/(blobs|manifests)/([^/]+)")


@dataclass
class StoringRegistry(StubHttpServer):
    """`blobs` and `manifests` are {(repository, digest or tag): bytes}; may be changed while it runs.

    `login` ("user:password") is needed where it is set. `mounts` says what comes of a request to mount: "yes", "no"
    (202, as where the source does not have it) or "refused" (404). `api` is that it lists referrers itself, so many
    a page; `refuses_oci` is what Huawei's SWR does. `cuts` are bytes after which the next upload or download loses
    its connection; `forgets` an upload then; where `late` ends with True it is still writing that. `lies` is sent
    in place of a blob. `redirects` is that each upload is sent on to another URL.
    """

    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    busy: defaultdict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    numbers: Iterator[int] = field(default_factory=count)
    login: str = ""
    mounts: str = "yes"
    cuts: list[int] = field(default_factory=list)
    late: list[bool] = field(default_factory=lambda: [False] * 100)
    forgets: bool = False
    ranges: bool = True
    lies: bytes | None = None
    redirects: bool = False
    api: int = 0
    refuses_oci: bool = False
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: stub.answer(self)
                raise AttributeError(name)

            def log_message(self, *_args: object) -> None:
                """Quiet."""

        return self.serve(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def count(self, method: str, words: str) -> int:
        return sum(line.startswith(method) and words in line for line in self.seen)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.seen.append(f"{request.command} {request.path}")
        login = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and request.headers.get("Authorization") != login:
            self._send(request, 401, {"WWW-Authenticate": 'Basic realm="stub"'})
            return
        url = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if found := UPLOADS.fullmatch(url.path):
            with self.busy[found[2]]:  # the bytes of a lost connection have all arrived before the next answer
                getattr(self, f"_upload_{request.command.lower()}")(request, found[1], found[2], query)
        elif found := PARTS.fullmatch(url.path):
            self._part(request, found[1], found[2], found[3])
        elif found := TAGS.fullmatch(url.path):
            tags = [name for repository, name in self.manifests if repository == found[1] and ":" not in name]
            body = json.dumps({"name": found[1], "tags": tags}).encode()
            self._send(request, 200 if tags else 404, {}, body if tags else b"")
        elif self.api and (found := REFERRERS.fullmatch(url.path)):
            self._referrers(request, found[1], found[2], int(query.get("from", "0")))
        else:
            self._send(request, 404)

    def _upload_post(self, request: Any, repository: str, _name: str, query: dict[str, str]) -> None:
        source = (query.get("from", ""), query.get("mount", ""))
        if query and self.mounts == "refused":
            self._send(request, 404)
        elif query and self.mounts == "yes" and source in self.blobs:
            self.blobs[repository, query["mount"]] = self.blobs[source]
            self._send(request, 201)
        else:
            self.uploads[name := f"u{next(self.numbers)}"] = bytearray()
            self._send(request, 202, {"Location": f"/v2/{repository}/blobs/uploads/{name}?state=0"})

    def _upload_patch(self, request: Any, repository: str, name: str, query: dict[str, str]) -> None:
        data = self.uploads[name]
        start = int(request.headers.get("Content-Range", "0-0").partition("-")[0])
        if self.redirects and not query.get("on"):
            request.rfile.read(int(request.headers["Content-Length"]))
            self._send(request, 307, {"Location": f"/v2/{repository}/blobs/uploads/{name}?on=1"})
            return
        if start != len(data) or (start and self.late.pop()):
            self._send(request, 416)
            return
        left = int(request.headers["Content-Length"])
        keep = min(left, self.cuts.pop(0)) if self.cuts else left
        data += request.rfile.read(keep)
        if keep < left:
            if self.forgets:
                del self.uploads[name]
            request.connection.close()
            return
        self._send(request, 202, {"Location": f"/v2/{repository}/blobs/uploads/{name}?state=1"})

    def _upload_get(self, request: Any, _repository: str, name: str, _query: dict[str, str]) -> None:
        if name not in self.uploads:
            self._send(request, 404)
        else:
            self._send(request, 204, {"Range": f"0-{max(0, len(self.uploads[name]) - 1)}"})

    def _upload_put(self, request: Any, repository: str, name: str, query: dict[str, str]) -> None:
        data = bytes(self.uploads.pop(name)) + request.rfile.read(int(request.headers["Content-Length"] or 0))
        if sha(data) != query["digest"]:
            self._error(request, "DIGEST_INVALID")
            return
        self.blobs[repository, query["digest"]] = data
        self._send(request, 201)

    def _part(self, request: Any, repository: str, kind: str, name: str) -> None:
        if kind == "manifests" and request.command == "PUT":
            body = request.rfile.read(int(request.headers["Content-Length"]))
            value = json.loads(body)
            if self.refuses_oci and "vnd.oci." in request.headers["Content-Type"]:
                self._error(request, "MANIFEST_INVALID")
                return
            parts = [value["config"], *value["layers"]] if "config" in value else []
            if not all((repository, part["digest"]) in self.blobs for part in parts):
                self._error(request, "MANIFEST_BLOB_UNKNOWN")
                return
            self.manifests[repository, name] = self.manifests[repository, sha(body)] = (
                request.headers["Content-Type"],
                body,
            )
            subject = value.get("subject", {}).get("digest")
            self._send(request, 201, {"OCI-Subject": subject} if self.api and subject else {})
        elif kind == "manifests" and (repository, name) in self.manifests:
            media, body = self.manifests[repository, name]
            self._send(request, 200, {"Content-Type": media}, body)
        elif kind == "blobs" and (repository, name) in self.blobs:
            data = self.lies if self.lies is not None else self.blobs[repository, name]
            start = int((request.headers.get("Range") or "bytes=0-")[6:-1]) if self.ranges else 0
            more = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
            self._send(request, 206 if start else 200, more, data[start:])
        else:
            self._send(request, 404)

    def _referrers(self, request: Any, repository: str, subject: str, start: int) -> None:
        of = {digest: text for (where, digest), (_, text) in self.manifests.items() if where == repository}
        tables = {digest: json.loads(text) for digest, text in of.items() if digest.startswith("sha256:")}
        found = [
            {"mediaType": one["mediaType"], "digest": digest, "size": len(of[digest]), "artifactType": kind}
            for digest, one in tables.items()
            if (one.get("subject") or {}).get("digest") == subject and (kind := one["artifactType"])
        ]
        end = start + self.api
        more = {"Link": f'<{request.path.partition("?")[0]}?from={end}>; rel="next"'} if end < len(found) else {}
        value = {"schemaVersion": 2, "manifests": found[start:end]}
        self._send(
            request,
            200,
            {"Content-Type": "application/vnd.oci.image.index.v1+json", **more},
            json.dumps(value).encode(),
        )

    def _error(self, request: BaseHTTPRequestHandler, code: str) -> None:
        self._send(request, 400, {}, json.dumps({"errors": [{"code": code}]}).encode())

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str] | None = None, data: bytes = b""
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            is_cut = self.cuts and request.command == "GET" and "/blobs/sha256" in request.path
            request.wfile.write(data[: self.cuts.pop(0)] if is_cut else data)
