"""A Docker engine on a unix socket that answers what a test has written, as late and as broken as it says."""

from __future__ import annotations

import json
import socketserver
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from stub_server import StubServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = {
    "Version": "26.1.5",
    "ApiVersion": "1.45",
    "Os": "linux",
    "Arch": "amd64",
    "Components": [{"Name": "Engine"}],
}


@dataclass(frozen=True)
class Answer:
    """One answer: parts are bytes, or seconds of silence; `cut` ends the connection in the place of an orderly end."""

    parts: Sequence[bytes | float] = ()
    status: int = 200
    cut: bool = False


def message(text: str, status: int) -> Answer:
    """An engine's plain error."""
    return Answer([json.dumps({"message": text}).encode()], status)


@dataclass
class FakeDaemon(StubServer):
    """`answers` are {"METHOD /path without version": answers, one a request, the last one for all after it}."""

    socket: Path
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str], int]] = field(default_factory=list)

    def __enter__(self) -> Self:
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                daemon._answer(self)

            def do_POST(self) -> None:
                daemon._answer(self)

            def log_message(self, *args: object) -> None:
                pass

            def address_string(self) -> str:
                return "unix"

        return self.serve(socketserver.ThreadingUnixStreamServer(str(self.socket), Handler), 0.01)

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    def paths(self, method: str) -> list[str]:
        return [path for verb, path, _, _ in self.seen if verb == method]

    def _answer(self, request: Any) -> None:  # noqa: ANN401 - a handler
        path = urlsplit(request.path).path
        path = path if not path.startswith("/v1.") else "/" + path.split("/", 2)[2]
        size = _read_body(request)
        self.seen.append((request.command, request.path, dict(request.headers), size))
        if path == "/version":
            self._send(request, Answer([json.dumps(VERSION).encode()]))
            return
        waiting = self.answers.get(f"{request.command} {path}", [message("page not found", 404)])
        self._send(request, waiting.pop(0) if len(waiting) > 1 else waiting[0])

    def _send(self, request: Any, answer: Answer) -> None:  # noqa: ANN401 - a handler
        request.send_response(answer.status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for part in answer.parts:
            if isinstance(part, float):
                request.wfile.flush()
                time.sleep(part)
            else:
                request.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if answer.cut:
            request.close_connection = True
        else:
            request.wfile.write(b"0\r\n\r\n")
        request.wfile.flush()


def _read_body(request: Any) -> int:  # noqa: ANN401 - a handler
    if request.headers.get("Transfer-Encoding") != "chunked":
        return len(request.rfile.read(int(request.headers.get("Content-Length") or 0)))
    total = 0
    while size := int(request.rfile.readline(), 16):
        total += len(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return total
