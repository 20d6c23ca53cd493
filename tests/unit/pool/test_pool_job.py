"""Reading a job with suspicion: any field may hold anything."""

from __future__ import annotations

import zlib

import fakeredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_client import protocol
from queue_client.wire import Serializer
from worker.pool import jobs
from worker.pool.job import _CHECKS, REGISTERED, BadJob, PoolJob
from worker.pool.safety import MAX_JOB_DATA, TooLarge, inflate

JOB_ID = "producer_1"


def job(**fields: bytes) -> PoolJob:
    read = PoolJob(JOB_ID, connection=fakeredis.FakeRedis(), serializer=Serializer)
    sound = {b"data": zlib.compress(call()), b"status": b"queued", b"origin": b"q"}
    read.restore({**sound, **{name.encode(): value for name, value in fields.items()}})
    return read


def call(**changes: object) -> bytes:
    parts = {"function": protocol.SCORE_FUNCTION, "instance": None,
             "args": protocol.Reference(JOB_ID, 2).args(), "kwargs": {}, **changes}  # fmt: skip
    return bytes(Serializer.dumps(tuple(parts.values())))


def test_a_sound_job_names_its_function_and_reference() -> None:
    assert job().call() == (protocol.SCORE_FUNCTION, protocol.Reference(JOB_ID, 2))


def test_uncompressed_data_is_read_too() -> None:
    assert job(data=call()).call()[1].rows == 2


@pytest.mark.parametrize("function", ["os.system", "", None, 3, ["worker.pool.jobs.score_batch"]])
def test_other_functions_are_refused(function: object) -> None:
    with pytest.raises(BadJob, match="function"):
        job(data=call(function=function)).call()


@pytest.mark.parametrize("change", [{"instance": {"a": 1}}, {"kwargs": {"a": 1}}])
def test_instances_and_keywords_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadJob, match="no instance and no keyword"):
        job(data=call(**change)).call()


def test_registered_functions_exist_and_refuse_stock_workers() -> None:
    for name in REGISTERED:
        with pytest.raises(jobs.WrongWorker):
            jobs.resolve(name)({})


def test_callbacks_and_webhooks_are_never_there() -> None:
    read = job(success_callback_name=b"os.system", webhooks=b"[]")
    assert read.success_callback is None
    assert read.failure_callback is None
    assert read.stopped_callback is None
    assert read.webhooks == []
    assert read.fault is not None


@given(field=st.sampled_from(sorted({*_CHECKS, "data", "exc_info", "result", "other"})),
       value=st.binary(max_size=200))  # fmt: skip
def test_reading_never_raises(field: str, value: bytes) -> None:
    read = job(**{field: value})
    assert read.fault is None or read.fault.startswith((f"{field}:", "data:"))


@given(st.binary(max_size=400))
def test_any_call_is_refused_with_a_reason_or_is_ours(data: bytes) -> None:
    try:
        name, _ = job(data=data or b"\x00").call()
    except BadJob:
        return
    assert name in REGISTERED


def test_a_bomb_is_refused_before_it_inflates() -> None:
    bomb = zlib.compress(b"\x00" * (64 << 20), 9)
    with pytest.raises(TooLarge):
        inflate(bomb, MAX_JOB_DATA)
    assert "inflates to more" in (job(data=bomb).fault or "")
    assert "too large to show" in str(job(exc_info=bomb)._exc_info)


def test_a_stream_that_is_cut_off_is_refused() -> None:
    with pytest.raises(TooLarge):
        inflate(zlib.compress(b"x" * 1000)[:-4], 10_000)
