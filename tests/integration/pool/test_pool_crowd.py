"""Several producers and workers at once, and long runs: nothing is mixed up, nothing grows."""

from __future__ import annotations

import random
import threading

import redis
from pool_growth import check_flat, run_many
from pool_support import Producer, Workers, await_true

QUICK = {"heartbeat_s": 1, "expiry_s": 4, "sweep_s": 1}


def test_each_producer_gets_its_own_rows_in_order_while_a_worker_is_killed(
    workers: Workers, redis_url: str
) -> None:
    crew = [workers.start(**QUICK) for _ in range(3)]
    failures: list[BaseException] = []

    def produce(number: int) -> None:
        chance = random.Random(number)
        with redis.Redis.from_url(redis_url) as connection:
            producer = Producer(connection)
            sent = {}
            for batch in range(20):
                naps = [chance.random() * 0.3 for _ in range(50)]
                rows = [{"do": "sleep", "s": s, "reward": number * 1000 + batch * 50 + i}
                        for i, s in enumerate(naps)]  # fmt: skip
                sent[producer.send(rows, uid=f"p{number}b{batch}r")] = batch
            outcomes = producer.collect(1000, timeout_s=120)
            assert producer.copies == 0
            assert {job_id for job_id, _ in outcomes} == set(sent)
            for (job_id, row), outcome in outcomes.items():
                assert outcome.reward == number * 1000 + sent[job_id] * 50 + row
                assert outcome.uid == f"p{number}b{sent[job_id]}r{row}"

    def guarded(number: int) -> None:
        try:
            produce(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    await_true(lambda: sum(workers.starts().values()) > 300)
    crew[0].kill()
    for thread in threads:
        thread.join(130)
    assert not failures, failures


def test_five_thousand_jobs_leave_nothing_behind(
    workers: Workers, producer: Producer, connection: redis.Redis
) -> None:
    check_flat(run_many(workers, producer, connection, 5_000))

    for key in connection.scan_iter(count=1000):
        kind = key.split(b":")[1]
        indexes = (b"queues", b"queue", b"workers", b"wip", b"finished", b"failed")
        assert connection.ttl(key) > 0 or kind in indexes, key
