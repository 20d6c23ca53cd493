"""Trajectories are cut into jobs, and a bad row is told apart."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_client import Output, Trajectory
from queue_client import jobs as jobs_module
from queue_client.connecting import RedisClock
from queue_client.flight import Job
from queue_client.futures import RewardFuture
from queue_client.jobs import BadRow, Parcel, chunks, enqueue_call, pack, rq_fields
from queue_client.protocol import JOB_TTL_SLACK_S, MAX_JOB_TTL_S, ROWS_FIELD, producer_of
from queue_client.wire import decode_batch


def futures(count: int, *, deadline: float | None = None, text: str = "x") -> list[RewardFuture]:
    return [
        RewardFuture(Trajectory(outputs=[Output(text=text)], uid=str(n)), deadline=deadline)
        for n in range(count)
    ]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 100), max_size=5), st.integers(1, 64))
def test_chunks_keep_every_row_in_order_and_are_even(sizes, rows_per_job):
    parcels = [Parcel("rewards", futures(size)) for size in sizes]
    cut = list(chunks(parcels, rows_per_job))
    assert [f for part in cut for f in part.futures] == [f for p in parcels for f in p.futures]
    lengths = [len(part.futures) for part in cut]
    assert all(0 < length <= rows_per_job for length in lengths)
    assert not lengths or max(lengths) - min(lengths) <= 1


def test_queues_and_far_deadlines_do_not_mix():
    now = time.monotonic()
    parcels = [
        Parcel("a", futures(2)),
        Parcel("b", futures(2)),
        Parcel("a", futures(2, deadline=now + 10)),
        Parcel("a", futures(2, deadline=now + 1000)),
        Parcel("a", futures(2)),
    ]
    found = [(part.queue, len(part.futures)) for part in chunks(parcels, 32)]
    assert sorted(found) == [("a", 2), ("a", 2), ("a", 4), ("b", 2)]


def test_rows_that_were_given_up_are_left_out():
    some = futures(3)
    some[1].cancel()
    [part] = chunks([Parcel("rewards", some)], 32)
    assert part.futures == [some[0], some[2]]
    assert list(chunks([Parcel("rewards", some[1:2])], 32)) == []


def test_a_job_encodes_its_rows_and_names_its_producer():
    [job] = pack(Parcel("rewards", futures(3)), "producer")
    assert isinstance(job, Job)
    assert producer_of(job.id) == "producer"
    assert [t.uid for t in decode_batch(job.payload).trajectories] == ["0", "1", "2"]
    assert [future.row for future in job.futures if future] == [0, 1, 2]


def test_bad_rows_are_told_apart():
    some = futures(3)
    some[1].trajectory = Trajectory(outputs=[Output(response_ids=["no"])])
    found = list(pack(Parcel("rewards", some), "producer"))
    bad = [piece for piece in found if isinstance(piece, BadRow)]
    assert [piece.future for piece in bad] == [some[1]]
    assert "response_ids" in bad[0].reason
    assert sum(isinstance(piece, Job) for piece in found) == 2


def test_large_jobs_are_halved_and_a_row_beyond_all_measure_is_refused(monkeypatch):
    monkeypatch.setattr(jobs_module, "SPLIT_BYTES", 5_000)
    monkeypatch.setattr(jobs_module, "MAX_PAYLOAD_BYTES", 8_000)
    found = list(pack(Parcel("rewards", futures(8, text="x" * 1_000)), "producer"))
    assert all(isinstance(piece, Job) and len(piece.payload) <= 5_000 for piece in found)
    assert sum(len(piece.futures) for piece in found if isinstance(piece, Job)) == 8
    [refused] = pack(Parcel("rewards", futures(1, text="x" * 9_000)), "producer")
    assert isinstance(refused, BadRow)
    assert "8000 at most" in refused.reason


def test_a_job_lives_past_its_deadline_so_that_timeouts_can_be_said():
    clock = RedisClock(0.0)
    [job] = pack(Parcel("rewards", futures(1, deadline=time.monotonic() + 100)), "producer")
    assert isinstance(job, Job)
    _, args = enqueue_call(job, "producer", clock)
    payload_s, hash_s = args[2], args[3]
    assert 100 + JOB_TTL_SLACK_S <= payload_s <= 102 + JOB_TTL_SLACK_S
    assert hash_s == payload_s + 60
    [endless] = pack(Parcel("rewards", futures(1)), "producer")
    assert isinstance(endless, Job)
    assert enqueue_call(endless, "producer", clock)[1][2] == MAX_JOB_TTL_S


def test_the_description_holds_no_prompt_and_no_response():
    [job] = pack(Parcel("rewards", futures(1, text="a secret answer")), "producer")
    assert isinstance(job, Job)
    fields = rq_fields(job, 60, RedisClock(0.0))
    assert fields[ROWS_FIELD] == 1
    assert not any("secret" in str(value) for value in fields.values())
