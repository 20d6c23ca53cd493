"""The worker as `rq worker` starts it: rows in, outcomes out, RQ's own keys kept."""

from __future__ import annotations

from pool_support import Producer, Workers


def test_every_row_gets_one_outcome(workers: Workers, producer: Producer) -> None:
    workers.start()
    jobs = [producer.send([{"reward": i} for i in range(8)], uid=f"job{n}-") for n in range(20)]

    outcomes = producer.collect(160)

    assert producer.copies == 0
    for number, job_id in enumerate(jobs):
        assert [outcomes[job_id, row].reward for row in range(8)] == list(range(8))
        assert outcomes[job_id, 3].uid == f"job{number}-3"
        producer.await_status(job_id, "finished")
    assert set(workers.starts().values()) == {1}
