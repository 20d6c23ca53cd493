"""A server that keeps its data and can be stopped and started again on its port."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis

from worker.ops.embedded import _free_port, find_server


class LastingServer:
    """Valkey with an append-only file; `stop` and `start` as often as wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        lasting = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self._process = subprocess.Popen(
            [str(find_server(prefer_embedded=True)), *options, *lasting],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with redis.Redis(port=self.port) as client:
            end = time.monotonic() + 20
            while True:
                try:
                    client.ping()
                    return
                except redis.exceptions.RedisError:
                    assert time.monotonic() < end, "the server did not come back"
                    time.sleep(0.05)

    def stop(self) -> None:
        """Kill it; the append-only file is what is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
