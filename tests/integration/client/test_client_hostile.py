"""Whoever can write to Redis gets no code run and no memory filled in the producer."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import msgpack
import pytest
from client_consumer import Consumer, rows, until

from queue_client import Outcome
from queue_client import listeners as listeners_module
from queue_client import reconcile as reconcile_module
from queue_client import sender as sender_module
from queue_client.connecting import MAX_REPLY_BYTES
from queue_client.jobs import job_key, queue_key
from queue_client.protocol import outcomes_key, reply_key
from queue_client.wire import encode_outcome


class Touch:
    """A pickle of this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def hostile_values(trap: Path) -> list[bytes]:
    attack = pickle.dumps(Touch(trap))
    return [
        attack,
        zlib.compress(attack),
        b"",
        b"\x00",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array that says it has 2**32 items
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5000,  # nested too deep
        msgpack.packb([1, "outcome", ["scored", attack] + [None] * 8]),
        msgpack.packb(msgpack.ExtType(4, attack)),
        encode_outcome(Outcome.scored(1.0))[:-1],
        encode_outcome(Outcome.scored(1.0)) + b"x",
        b"\xdd\x00\x0f\xff\xf0" + b"\x80" * 0xFFFF0,  # a million empty maps
    ]


def test_hostile_replies_run_nothing_and_stop_nothing(redis_url, client, connection, trap):
    futures = client.submit(rows(20), timeout_s=60)
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    job_id = connection.lindex(queue_key("rewards"), 0).decode()
    stream = reply_key(client._tie.get().producer)
    for value in hostile_values(trap):
        connection.xadd(stream, {"job": job_id, "0": value})
        connection.xadd(stream, {"job": value, "0": value})
        connection.xadd(stream, {value: value, "job": job_id, "message": value})
        connection.xadd(stream, {"job": job_id, "99999": value, "-1": value, "1e3": value})
    connection.xadd(stream, {"nothing": "known"})
    connection.xadd(stream, {"job": "somebody_else", "failed": "worker_lost"})
    with Consumer(redis_url):
        assert [future.result(60).reward for future in futures] == [float(r) for r in range(20)]
    assert not trap.exists()


def test_an_end_of_unknown_kind_is_worker_lost(client, connection):
    [future] = client.submit(rows(1))
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    job_id = connection.lindex(queue_key("rewards"), 0).decode()
    stream = reply_key(client._tie.get().producer)
    connection.xadd(stream, {"job": job_id, "failed": b"\xff" * 100, "message": b"\xfe" * 9000})
    connection.expire(stream, 60)
    outcome = future.result(30)
    assert outcome.kind == "worker_lost"
    assert len(outcome.message) <= 2000


def test_a_reply_key_of_another_type_is_put_right(redis_url, client, connection):
    client._tie.get()
    stream = reply_key(client._tie.get().producer)
    connection.set(stream, pickle.dumps(1), ex=60)
    futures = client.submit(rows(2), timeout_s=60)
    with Consumer(redis_url):
        assert [future.result(60).reward for future in futures] == [0.0, 1.0]


def test_job_keys_of_another_type_end_their_rows(client, connection, monkeypatch):
    monkeypatch.setattr(sender_module, "CHORES_EVERY_S", 0.1)
    monkeypatch.setattr(reconcile_module, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(reconcile_module, "CONFIRM_S", 0.1)
    futures = client.submit(rows(1))
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    job_id = connection.lindex(queue_key("rewards"), 0).decode()
    connection.delete(job_key(job_id))
    connection.set(job_key(job_id), "x", ex=60)
    connection.set(outcomes_key(job_id), "x", ex=60)
    assert futures[0].result(60).kind == "worker_lost"


def test_huge_names_of_workers_stop_nothing(redis_url, client, connection, monkeypatch):
    monkeypatch.setattr(sender_module, "CHORES_EVERY_S", 0.1)
    monkeypatch.setattr(listeners_module, "NO_WORKER_AFTER_S", 0.2)
    monkeypatch.setattr(listeners_module, "LOOK_EVERY_S", 0.1)
    connection.sadd("rq:workers:rewards", b"x" * (MAX_REPLY_BYTES + 1))
    futures = client.submit(rows(2), timeout_s=60)
    until(lambda: connection.llen(queue_key("rewards")) == 1)
    time.sleep(0.5)
    with Consumer(redis_url):
        assert [future.result(60).reward for future in futures] == [0.0, 1.0]


MEMORY = """
    import sys
    from queue_client import Output, RewardClient, Trajectory

    def peak_mb():
        # the most memory since `forget`; Linux
        [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024

    def forget():
        with open("/proc/self/clear_refs", "w") as switch:
            switch.write("5")

    client = RewardClient(sys.argv[1])
    client.score([Trajectory(outputs=[Output(text="x")])], timeout_s=60)
    forget()
    before = peak_mb()
    futures = client.submit([Trajectory(outputs=[Output(text="x" * n)]) for n in range(3)])
    print(client._tie.get().producer, flush=True)
    rewards = [future.result(100).reward for future in futures]
    assert rewards == [0.0, 1.0, 2.0], rewards
    print(peak_mb() - before, flush=True)
"""


def test_huge_replies_are_stepped_over_in_bounded_memory(redis_url, connection):
    with Consumer(redis_url) as consumer:
        consumer.score = lambda one: (
            consumer_waits(connection) or Outcome.scored(float(len(one.outputs[0].text)))
        )
        connection.set("go", 1, ex=60)
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MEMORY), redis_url],
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            until(lambda: consumer.scored)
            connection.delete("go")
            producer = process.stdout.readline().strip()
            stream = reply_key(producer)
            for _ in range(3):
                connection.xadd(stream, {"job": "x", "0": b"\x91" * (3 * MAX_REPLY_BYTES)})
            connection.expire(stream, 600)
            connection.set("go", 1, ex=60)
            grown_mb = float(process.stdout.readline())

    assert grown_mb < 200
    assert process.returncode == 0


def consumer_waits(connection) -> None:
    until(lambda: connection.exists("go"), timeout_s=60)
