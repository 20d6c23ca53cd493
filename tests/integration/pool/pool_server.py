"""A server that keeps its data and can be stopped and started again on its port."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis
from pool_support import Producer, Workers, await_true

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


def outage(server: LastingServer, seconds: float) -> None:
    server.stop()
    time.sleep(seconds)
    server.start()


def check_outage(lasting: LastingServer, crew: Workers, seconds: float) -> None:
    """Two workers, one of them busy: rows end before, during and after the outage."""
    both = [crew.start(), crew.start()]
    with redis.Redis.from_url(lasting.url) as connection:
        producer = Producer(connection)
        producer.send([{"do": "sleep", "s": s} for s in (0, 1, seconds / 2, seconds + 2)])
        producer.collect(1)
        await_true(lambda: sum(crew.starts().values()) == 4)
        outage(lasting, seconds)
        producer.collect(4)
        assert set(crew.starts().values()) == {1}, "finished work was thrown away"

        producer.send([{}] * 8, uid="after")
        producer.collect(12, timeout_s=30)
        assert producer.copies == 0
    ended = [crew.log(worker) for worker in both if worker.poll() is not None]
    assert not ended, "\n".join(ended)
    for worker in both:
        worker.terminate()
    assert [worker.wait(20) for worker in both] == [0, 0]
