"""A primary, its replica and a Sentinel that watches them: Redis' own, on free ports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import redis
from pool_support import OUR_CLASSES, await_true
from redis.sentinel import Sentinel

from queue_client import Output, RewardClient, Trajectory
from worker.ops import server_watch
from worker.ops.embedded import EmbeddedServer, _free_port

SERVICE = "pool"
PATIENT_MS = 60_000  # on a busy machine nobody is taken for dead who is not
QUICK = {"HEARTBEAT_S": "1", "EXPIRY_S": "8", "SWEEP_S": "1"}
LOCK = "rq:scheduler-lock:rewards"
#: A row whose `extra_info` says so waits until GO is there.
FUNCTION = """
import asyncio, os

async def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    open(f"{os.environ['GO']}.{extra_info['name']}", "w").close()
    while extra_info["waits"] and not os.path.exists(os.environ["GO"]):
        await asyncio.sleep(0.05)
    return extra_info["reward"]
"""


class Watched:
    """A context manager; `port` is where the Sentinel listens."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip("no redis-server on the PATH: the bundled Valkey has no Sentinel")
        self._binary, self._folder = Path(found), folder / "sentinel"
        self._stack = ExitStack()
        self.port = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.primary = stack.enter_context(EmbeddedServer(binary=self._binary))
            following = ("--replicaof", "127.0.0.1", str(self.primary.port))
            self.replica = stack.enter_context(
                EmbeddedServer(binary=self._binary, extra_args=following)
            )
            while not self._sentinel_started(stack):
                pass
            _await(lambda: self._facts()["num-slaves"] == 1)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def client(self, **options: Any) -> redis.Redis:
        """A client of whichever server leads; what a trainer passes as `connect`."""
        made: redis.Redis = Sentinel([("127.0.0.1", self.port)]).master_for(SERVICE, **options)
        return made

    def order(self) -> None:
        """Let the replica lead by command; the old primary takes writes for some seconds more."""

        _await(lambda: bool(self._ask("SENTINEL", "FAILOVER", SERVICE)))
        self._await_replica_leads()

    def crash(self) -> None:
        """Let the primary die; the Sentinel finds out by itself."""
        self._ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", "1000")
        self.primary.stop()
        self._await_replica_leads()
        self._ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", str(PATIENT_MS))

    def await_demoted(self) -> None:
        """Wait until the old primary, where it lives, has been told to follow the new one."""

        def follows() -> bool:
            with redis.Redis(port=self.primary.port) as old:
                return bool(old.info("replication")["role"] == "slave")

        _await(follows)

    def _await_replica_leads(self) -> None:
        _await(lambda: int(self._facts()["port"]) == self.replica.port)

    def _sentinel_started(self, stack: ExitStack) -> bool:
        """Start it; False where somebody else was quicker to take the port."""
        self.port = _free_port()
        self._folder.mkdir(exist_ok=True)
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} {PATIENT_MS}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        watcher = [sys.executable, "-I", "-S", server_watch.__file__, str(self._folder)]
        process = subprocess.Popen(
            [*watcher, str(self._binary), str(config), "--sentinel"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stack.callback(process.wait, 20)
        assert process.stdin is not None
        stack.callback(process.stdin.close)

        def answers_or_ended() -> bool:
            return process.poll() is not None or bool(self._facts())

        _await(answers_or_ended)
        return process.poll() is None

    def _facts(self) -> dict[str, Any]:
        with redis.Redis(port=self.port, decode_responses=True) as sentinel:
            facts: dict[str, Any] = sentinel.sentinel_masters()[SERVICE]
            return facts

    def _ask(self, *command: str) -> Any:
        with redis.Redis(port=self.port, decode_responses=True, protocol=2) as sentinel:
            return sentinel.execute_command(*command)


def _await(holds: Callable[[], bool]) -> None:
    """Wait until it holds; a server that is not there yet or refuses for now is no error."""

    def quietly() -> bool:
        try:
            return holds()
        except (redis.ConnectionError, redis.ResponseError):
            return False

    await_true(quietly, timeout_s=90)


@contextmanager
def worker_of(watched: Watched, folder: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`rq worker -c` with RQ's own SENTINEL setting, and a scheduler beside it."""
    (folder / "pool_config.py").write_text(
        f"SENTINEL = {{'INSTANCES': [('127.0.0.1', {watched.port})], 'MASTER_NAME': {SERVICE!r}}}\n"
    )
    (folder / "scored.py").write_text(FUNCTION)
    env = {name: value for name, value in os.environ.items() if name != "RQ_REDIS_URL"}
    env |= {f"REWARDPOOL_WORKER__{name}": value for name, value in QUICK.items()}
    env |= settings | {"GO": str(folder / "go"), "PYTHONPATH": str(folder)}
    env["REWARDPOOL_REWARD__FUNCTION"] = f"{folder}/scored.py:compute_score"
    command = [sys.executable, "-m", "rq.cli", "worker", "-c", "pool_config"]
    command += ["-w", "worker.PoolWorker", *OUR_CLASSES, "--with-scheduler", "rewards"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rows(prefix: str, *, waits: bool = False) -> list[Trajectory]:
    return [
        Trajectory(
            outputs=[Output(text="text")],
            extra_info={"name": f"{prefix}{n}", "reward": float(n), "waits": waits},
            uid=f"{prefix}{n}",
        )
        for n in range(8)
    ]


def check_failover(folder: Path, lead: Callable[[Watched], None]) -> None:
    """Rows that end before, in flight during, and sent during and after a failover are scored."""
    wanted = [float(n) for n in range(8)]
    with (
        Watched(folder) as watched,
        worker_of(watched, folder) as worker,
        RewardClient("redis://pool/0", connect=watched.client) as client,
        watched.client() as connection,
    ):
        before = client.score(rows("before"), timeout_s=90)
        assert [one.reward for one in before] == wanted, before
        await_true(lambda: connection.exists(LOCK))
        running = client.submit(rows("running", waits=True), timeout_s=150)
        await_true(lambda: len(list(folder.glob("go.running*"))) == 8)

        lead(watched)
        amid = client.submit(rows("amid"), timeout_s=150)
        if lead is Watched.order:
            watched.await_demoted()
        (folder / "go").touch()
        after = client.submit(rows("after"), timeout_s=150)

        for futures in (amid, running, after):
            outcomes = [future.result(160) for future in futures]
            assert [one.reward for one in outcomes] == wanted, outcomes
        with redis.Redis(port=watched.replica.port) as leader:
            await_true(lambda: leader.pttl(LOCK) > 0)
            assert leader.smembers("rq:workers")
        assert worker.poll() is None, (folder / "worker.log").read_text()
        worker.terminate()
        assert worker.wait(40) == 0
