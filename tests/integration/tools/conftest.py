"""A sandbox server and a retrieval service for the tools' tests."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sandbox_server import SandboxServer, serving

from queue_client.tools.places import places
from worker.sandbox.errors import NoIsolation
from worker.sandbox.local import LocalRunner


@pytest.fixture(autouse=True)
def _fresh_places() -> Iterator[None]:
    """Limits are kept by name: each test gets its own."""
    places.cache_clear()
    yield
    places.cache_clear()


@pytest.fixture(scope="session")
def runner() -> LocalRunner:
    """The local runner; tests are skipped where nothing walls programs off."""
    try:
        return LocalRunner(max_running=4)
    except NoIsolation as error:
        pytest.skip(str(error))


@pytest.fixture
def sandbox(runner: LocalRunner) -> Iterator[SandboxServer]:
    """A Sandbox Fusion server on loopback that really runs programs."""
    with serving(runner) as server:
        yield server


@pytest.fixture
def stub() -> Iterator[SandboxServer]:
    """A server that gives scripted answers."""
    with serving() as server:
        yield server


class Retrieval:
    """A retrieval service: scripted statuses first, then passages that name their query."""

    def __init__(self) -> None:
        self.scripted: deque[int] = deque()
        self.seen: list[dict[str, Any]] = []
        self.body: Any = None
        self.in_flight = self.most_in_flight = 0
        self.sleep_s = 0.0
        lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    service.seen.append(body)
                    service.in_flight += 1
                    service.most_in_flight = max(service.most_in_flight, service.in_flight)
                    status = service.scripted.popleft() if service.scripted else 200
                time.sleep(service.sleep_s)
                with lock:
                    service.in_flight -= 1
                answer = service.body if service.body is not None else found(body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/retrieve"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def found(body: dict[str, Any]) -> dict[str, Any]:
    """As many passages for each query as were asked for."""
    return {
        "result": [
            [
                {"document": {"contents": f"{query} {n}\nAbout {query}.\nMore."}, "score": 0.9}
                for n in range(body["topk"])
            ]
            for query in body["queries"]
        ]
    }


@pytest.fixture
def retrieval() -> Iterator[Retrieval]:
    """A retrieval service on loopback."""
    service = Retrieval()
    yield service
    service.stop()
