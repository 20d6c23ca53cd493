"""A loopback judge for the demo: OpenAI-compatible, with a quota of its own.

It enforces requests a minute with a continuously refilling bucket of one minute, as providers do,
and answers 429 with Retry-After beyond it. Its verdict is a plain rule, so that rewards are known:
an answer is right when it holds the reference.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LATENCY_S = 0.05

#: Where the default template puts the reference, and the answer between its fences.
_ASKED = re.compile(
    r"Reference answer:\n(?P<reference>.+?)\n\n"
    r"(?P<fence>-----\w+-----)\n(?P<answer>.*?)\n(?P=fence)\n",
    re.DOTALL,
)


class JudgeStub:
    """A server on a free loopback port; a context manager. Counts what it saw."""

    def __init__(self, *, rpm: int) -> None:
        self.rpm = rpm
        self.calls = self.refused = self.in_flight = self.most_in_flight = 0
        self._level, self._seen = float(rpm), time.monotonic()
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            #: Headers and body leave at once; the client must not wait for a delayed ACK.
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub._answer(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: prompts and responses stay out of logs."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> JudgeStub:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        wait_s = self._admit()
        if wait_s > 0:
            error = {"message": f"Rate limit reached: {self.rpm} requests a minute"}
            _send(handler, 429, {"error": error}, {"Retry-After": str(math.ceil(wait_s))})
            return
        try:
            time.sleep(LATENCY_S)
            _send(handler, 200, _completion(json.loads(body)), {})
        finally:
            with self._lock:
                self.in_flight -= 1

    def _admit(self) -> float:
        """Take one request from the bucket, or return the seconds until there is one."""
        with self._lock:
            now = time.monotonic()
            self._level = min(float(self.rpm), self._level + (now - self._seen) * self.rpm / 60)
            self._seen = now
            self.calls += 1
            if self._level < 1:
                self.refused += 1
                return (1 - self._level) * 60 / self.rpm
            self._level -= 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            return 0.0


def _send(
    handler: BaseHTTPRequestHandler, status: int, content: dict[str, Any], headers: dict[str, str]
) -> None:
    payload = json.dumps(content).encode()
    handler.send_response(status)
    for name, value in {**headers, "Content-Type": "application/json"}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(payload)))
    handler.end_headers()
    handler.wfile.write(payload)


def _completion(request: dict[str, Any]) -> dict[str, Any]:
    asked = str(request["messages"][-1]["content"])
    found = _ASKED.search(asked)
    right = found is not None and found["reference"].lower() in found["answer"].lower()
    verdict = json.dumps({"reason": "by the stub's rule", "score": float(right)})
    prompt_tokens = len(asked) // 4
    return {
        "object": "chat.completion",
        "model": request.get("model"),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": verdict}}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(verdict) // 4,
            "total_tokens": prompt_tokens + len(verdict) // 4,
        },
    }
