"""What producer and worker agree on: ids, references, tool calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_client import protocol
from queue_client.errors import WireError
from queue_client.protocol import Reference


def test_a_job_id_names_its_producer() -> None:
    producer = protocol.new_producer_id()
    job_id = protocol.new_job_id(producer)
    assert protocol.producer_of(job_id) == producer
    assert protocol.valid_job_id(job_id)
    assert protocol.producer_of("plain") is None
    with pytest.raises(ValueError, match="a_b"):
        protocol.new_job_id("a_b")


@given(st.integers(1, protocol.MAX_ROWS), st.integers(0, 2**53), st.integers(0, 2**53))
def test_a_reference_comes_back_as_it_was_sent(rows: int, deadline_ms: int, sent_ms: int) -> None:
    sent = Reference("producer_job", rows, deadline_ms, sent_ms)
    assert Reference.read("producer_job", list(sent.args())) == sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2), ("rows", 0), ("rows", protocol.MAX_ROWS + 1), ("rows", True), ("rows", 1.0),
        ("deadline_ms", -1), ("deadline_ms", "1"), ("sent_ms", None), ("payload", "rq:job:x"),
        ("reply", "rq:queue:x"), ("producer", "other"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_value(field: str, value: Any) -> None:
    fields = {**Reference("producer_job", 2).args()[0], field: value}
    with pytest.raises(WireError, match=f"args.{field}") as caught:
        Reference.read("producer_job", [fields])
    assert repr(value) in str(caught.value)


def test_no_key_is_taken_from_another_job() -> None:
    with pytest.raises(WireError, match=r"args\.payload"):
        Reference.read("producer_job", Reference("producer_other", 2).args())


def test_a_tool_call_comes_back_as_it_was_sent() -> None:
    sent = protocol.encode_tool_call("sandbox", {"code": "1", "n": [1, None]}, timeout_s=3)
    assert protocol.decode_tool_call(sent) == ("sandbox", {"code": "1", "n": [1, None]}, 3)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_tool_call_are_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        protocol.decode_tool_call(data)


def test_job_lifetimes_follow_the_deadline_and_are_bounded() -> None:
    assert protocol.job_ttl_s(None) == protocol.MAX_JOB_TTL_S
    assert protocol.job_ttl_s(30.5) == 31 + protocol.JOB_TTL_SLACK_S
    assert protocol.job_ttl_s(10**9) == protocol.MAX_JOB_TTL_S
