"""A Docker engine that only answers, and a docker client that only records, for the tests of engine discovery."""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = {
    "Version": "27.3.1",
    "ApiVersion": "1.47",
    "Os": "linux",
    "Arch": "arm64",
    "Components": [{"Name": "Engine"}],
}
CLIENT = """\
#!/usr/bin/env python3
import json, pathlib, sys
answers = json.loads((pathlib.Path(__file__).parent / "answers.json").read_text())
for key, text in answers.items():
    if " ".join(sys.argv[1:]).startswith(key):
        print(text)
        sys.exit(0)
print("docker: unknown command", file=sys.stderr)
sys.exit(1)
"""


@contextmanager
def serve(socket_path: Path, answers: dict[str, Any]) -> Iterator[None]:
    """Answer GET on a unix socket: JSON for known paths, raw bytes for bytes, 404 else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in answers
            answer = answers.get(self.path, {"message": "page not found"})
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

        def address_string(self) -> str:
            return "unix"

    server = socketserver.ThreadingUnixStreamServer(str(socket_path), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def docker_client(folder: Path, answers: dict[str, str]) -> Path:
    """A `docker` program in `folder` that prints what `answers` says for the beginning of its arguments."""
    folder.mkdir(exist_ok=True)
    program = folder / "docker"
    program.write_text(CLIENT)
    program.chmod(0o755)
    (folder / "answers.json").write_text(json.dumps(answers))
    return program
