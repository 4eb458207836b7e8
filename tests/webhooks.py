"""A server that records what it receives, and answers as a test wants."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """Its address, its answers, and the requests that it got."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)  # one per request, then 200
    redirect: str = ""
    drip: float = 0  # seconds between the bytes of an answer without end
    requests: list[tuple[str, Message, Any]] = field(default_factory=list)  # path, headers, body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(wrap: Callable[[socket.socket], socket.socket] | None = None) -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.requests.append((self.path, self.headers, json.loads(body)))
            try:
                for _ in range(100 if server.drip else 0):
                    self.wfile.write(b"H")
                    time.sleep(server.drip)
                status = server.statuses.pop(0) if server.statuses else 200
                self.send_response(status)
                if server.redirect and 300 <= status < 400:
                    self.send_header("Location", server.redirect)
                self.end_headers()
            except OSError:  # the client has left
                pass

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if wrap:
        listening.socket = wrap(listening.socket)
    server.port = listening.server_port
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    listening.shutdown()
