"""Real `rq worker` processes for tests of the client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import redis
from client_consumer import until

#: A row says in `extra_info` what it scores, `reward`, after `sleep_s`. STARTS is a file.
FUNCTION = """
import asyncio, os

LOG = os.open(os.environ["STARTS"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)

async def compute_score(data_source, solution_str, ground_truth, extra_info=None, uid=None):
    os.write(LOG, f"{extra_info['name']}\\n".encode())
    await asyncio.sleep(extra_info.get("sleep_s", 0))
    return extra_info["reward"]
"""
#: A dead worker's jobs run elsewhere within seconds, not half a minute.
QUICK = {"HEARTBEAT_S": "1", "EXPIRY_S": "8", "SWEEP_S": "1"}


class Workers:
    """A context manager; `starts()` lists the names of rows in the order they were started."""

    def __init__(self, url: str, folder: Path, *, settings: dict[str, str] | None = None) -> None:
        self.url, self._folder = url, folder
        self._settings = QUICK if settings is None else settings
        self._starts = folder / "starts.txt"
        self._starts.touch()
        (folder / "scored.py").write_text(FUNCTION)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int = 1, *queues: str) -> None:
        """Start some and wait until they listen."""
        for _ in range(count):
            self._spawn(queues or ("rewards",))
        with redis.Redis.from_url(self.url) as connection:
            until(lambda: self._listening(connection) >= len(self._alive()), timeout_s=90)

    def starts(self) -> list[str]:
        """The names of the rows that were started."""
        return self._starts.read_text().split()

    def log(self) -> str:
        """What all of them wrote."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("worker*.log")))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._alive():
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _alive(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self.processes if process.poll() is None]

    def _listening(self, connection: redis.Redis) -> int:
        pids = {str(process.pid).encode() for process in self._alive()}
        keys = connection.smembers("rq:workers")
        return sum(connection.hget(key, "pid") in pids for key in keys)

    def _spawn(self, queues: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "rq.cli", "worker", "-u", self.url]
        command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
        command += ["-S", "queue_client.wire.Serializer", *queues]
        env = dict(os.environ, STARTS=str(self._starts), REWARDPOOL_REDIS__URL=self.url)
        env["REWARDPOOL_REWARD__FUNCTION"] = f"{self._folder}/scored.py:compute_score"
        env |= {f"REWARDPOOL_WORKER__{name}": value for name, value in self._settings.items()}
        log = self._folder / f"worker{len(self.processes)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=env, stdout=out, stderr=subprocess.STDOUT, cwd=self._folder
            )
        self.processes.append(process)
