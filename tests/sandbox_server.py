"""A Sandbox Fusion server on loopback: the captured shapes, over programs that really run."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from worker.sandbox.local import LocalRunner
from worker.sandbox.program import LANGUAGES, SERVER_CUT_BYTES, CommandResult, Program, RunReport

#: What the real server does with output: cut quietly, or never drained until the time is up.
HANGS_BYTES = 1_000_000


@dataclass
class Answer:
    """A scripted answer: an HTTP status with a body, a reset, or a pause before either."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    sleep_s: float = 0.0
    reset: bool = False


@dataclass
class Seen:
    """One request as it came."""

    at: float
    body: dict[str, Any]


class SandboxServer:
    """Answers what is scripted first, then runs programs; counts what is in flight."""

    def __init__(self, runner: LocalRunner | None = None) -> None:
        self.runner = runner
        self.scripted: deque[Answer] = deque()
        self.answering: Callable[[dict[str, Any]], Answer | None] = lambda body: None
        self.seen: list[Seen] = []
        self.in_flight = self.most_in_flight = self.connections = 0
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/run_code"

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any]) -> Answer:
        """Return what to say to a request."""
        with self.lock:
            self.seen.append(Seen(time.monotonic(), body))
            if self.scripted:
                return self.scripted.popleft()
        special = self.answering(body)
        if special is not None:
            return special
        missing = "code" not in body
        if missing or body.get("language", "python") not in LANGUAGES:
            kind, place = ("missing", "code") if missing else ("literal_error", "language")
            return Answer(422, {"detail": [{"type": kind, "loc": ["body", place], "msg": kind}]})
        assert self.runner is not None, "this server runs nothing"
        return Answer(200, as_server(self.runner.run_sync(program_of(body))).to_body())

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def setup(self) -> None:
                with server.lock:
                    server.connections += 1
                super().setup()

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with server.lock:
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                try:
                    answer = self.answer_to(raw)
                    time.sleep(answer.sleep_s)
                finally:
                    with server.lock:
                        server.in_flight -= 1
                self.send(answer)

            def answer_to(self, raw: bytes) -> Answer:
                try:
                    body = json.loads(raw)
                except ValueError:
                    return Answer(422, {"detail": [{"type": "json_invalid", "loc": ["body"]}]})
                return server.answer(body)

            def send(self, answer: Answer) -> None:
                if answer.reset:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                    self.connection.close()
                    return
                body = answer.body
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # the client has gone

            def finish(self) -> None:
                with suppress(OSError):
                    super().finish()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def program_of(body: dict[str, Any]) -> Program:
    """The request as a program, with the server's defaults."""
    return Program(
        code=body["code"],
        language=body.get("language", "python"),
        stdin=body.get("stdin"),
        compile_timeout_s=body.get("compile_timeout", 10),
        run_timeout_s=body.get("run_timeout", 10),
        memory_limit_mb=body.get("memory_limit_MB", -1),
        files={path: base64.b64decode(text) for path, text in body.get("files", {}).items()},
        fetch_files=body.get("fetch_files", []),
    )


def as_server(report: RunReport) -> RunReport:
    """What the real server would have made of a program's output."""
    ran = report.run_result
    if ran is None or ran.stdout_bytes <= SERVER_CUT_BYTES:
        return report
    if ran.flooded or ran.stdout_bytes >= HANGS_BYTES:
        stdout = ran.stdout[:HANGS_BYTES]
        hung = CommandResult("TimeLimitExceeded", ran.execution_time, None, stdout)
        return RunReport("Failed", run_result=hung)
    cut = ran.stdout.encode()[:SERVER_CUT_BYTES].decode("utf-8", "ignore")
    kept = CommandResult(ran.status, ran.execution_time, ran.return_code, cut, ran.stderr)
    return RunReport(report.status, report.message, report.compile_result, kept, report.files)


@contextmanager
def serving(runner: LocalRunner | None = None) -> Iterator[SandboxServer]:
    """A server for the length of a block."""
    server = SandboxServer(runner)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ran(
    status: str = "Success",
    run: str | None = "Finished",
    code: int | None = 0,
    stdout: str | None = "",
    *,
    compiled: dict[str, Any] | None = None,
    stderr: str | None = "",
    message: str = "",
) -> dict[str, Any]:
    """A body in the captured shape."""
    result = {
        "status": run,
        "execution_time": 0.02,
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
    }
    return {
        "status": status,
        "message": message,
        "compile_result": compiled,
        "run_result": None if run is None else result,
        "executor_pod_name": None,
        "files": {},
    }
