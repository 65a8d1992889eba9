"""What the servers of tests have in common: a thread that answers, and an end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer
    from socketserver import BaseServer


class StubServer:
    """A context manager whose server runs from `serve` to the end of the context."""

    server: BaseServer

    def serve(self, server: BaseServer, poll_interval: float = 0.02) -> Self:
        """Answer in a thread. What goes wrong with a client that has gone away is not printed."""
        server.daemon_threads = True  # type: ignore[attr-defined] # of the threading ones, which all are
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.server = server
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": poll_interval}, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class StubHttpServer(StubServer):
    """One on a port of loopback."""

    server: ThreadingHTTPServer

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"
