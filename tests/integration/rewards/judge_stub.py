"""A loopback judge: an HTTP server that answers as a script says and keeps what it was asked."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One HTTP answer; `reset` breaks the connection instead, `wait` is waited for before."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    reset: bool = False
    wait: threading.Event | None = None


def says(text: Any, *, total_tokens: int | None = 30, **facts: Any) -> Answer:
    """A chat completion with this text."""
    document: dict[str, Any] = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
    }
    if total_tokens is not None:
        document["usage"] = {"total_tokens": total_tokens}
    return Answer(body=json.dumps(document).encode(), **facts)


def verdict(score: Any, **facts: Any) -> Answer:
    """A chat completion that is a verdict."""
    return says(json.dumps({"reason": "because", "score": score}), **facts)


def refusal(status: int, document: Any = None, **headers: str) -> Answer:
    """An error with a JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(document or {}).encode(), named)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # the default of 5 drops connections, and each comes back after 1 s


class JudgeStub:
    """The server; `script` gets the request's number (from 0) and document, returns an Answer."""

    def __init__(self) -> None:
        self.script: Callable[[int, dict[str, Any]], Answer] = lambda _, __: verdict(1)
        self.requests: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        # A client that hangs up in the middle of an answer is part of the tests.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL to give to the judge."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answers(self, *answers: Answer) -> None:
        """Answer with these in turn; the last one stays."""
        self.script = lambda number, _: answers[min(number, len(answers) - 1)]

    def close(self) -> None:
        """Stop listening and end the thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, document: dict[str, Any], size: int, headers: dict[str, str]) -> Answer:
        """Note one request and return what it is answered."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(document)
            self.sizes.append(size)
            self.headers.append(headers)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return self.script(number, document)

    def leave(self) -> None:
        """Note that a request is answered."""
        with self._lock:
            self.in_flight -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path.endswith("/chat/completions")
                answer = stub.take(json.loads(body), len(body), dict(self.headers))
                if answer.wait is not None:
                    answer.wait.wait(30)
                stub.leave()
                if answer.reset:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
