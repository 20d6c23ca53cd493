"""Outcomes and tool calls on the wire."""

from __future__ import annotations

import dataclasses

import msgpack
import numpy as np
import pytest

from queue_client import Kind, Outcome, WireError
from queue_client.wire import (
    decode_outcome,
    decode_outcomes,
    decode_tool_call,
    encode_outcome,
    encode_outcomes,
    encode_tool_call,
)

OUTCOMES = [
    Outcome.scored(1.0),
    Outcome.scored(-0.5, {"acc": True, "pred": None, "list": [1, "a"]}, uid="u", wait_s=1.5),
    Outcome.scored(None, {"skipped": 1}),
    *(Outcome.failed(kind, f"why {kind}", attempts=3, run_s=0.1, uid="u") for kind in Kind),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: str(one.kind))
def test_an_outcome_arrives_as_it_was(outcome):
    arrived = decode_outcome(encode_outcome(outcome))
    assert arrived == outcome
    assert isinstance(arrived.kind, Kind | None)
    for field in dataclasses.fields(Outcome):
        assert type(getattr(arrived, field.name)) is type(getattr(outcome, field.name)), field.name


def test_many_outcomes_arrive_in_order():
    assert decode_outcomes(encode_outcomes(OUTCOMES)) == OUTCOMES
    assert decode_outcomes(encode_outcomes([])) == []


def test_numpy_numbers_become_plain_ones():
    outcome = Outcome.scored(np.float32(0.5), {"acc": np.bool_(True), "many": np.arange(2)})
    arrived = decode_outcome(encode_outcome(outcome))
    assert (arrived.reward, arrived.extra) == (0.5, {"acc": True, "many": [0, 1]})
    assert type(arrived.reward) is float


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome.scored(float("nan")), "outcome.reward is nan"),
        (Outcome.scored(float("inf")), "outcome.reward is inf"),
        (Outcome.scored("much"), "could not convert"),
        (Outcome.scored(1.0, {"a": {1}}), r"extra\['a'\] is builtins.set"),
        (Outcome.scored(1.0, {"a": [{2: 1}]}), r"extra\['a'\]\[0\] has the key 2"),
        (Outcome.scored(1.0, wait_s=float("inf")), "outcome.wait_s is inf"),
        (Outcome("scored", 1.0, kind=Kind.TIMEOUT), "outcome.kind must be there exactly"),
        (Outcome("failed"), "outcome.kind must be there exactly"),
        (Outcome("failed", 0.0, kind=Kind.TIMEOUT), "outcome.reward must be None"),
        (Outcome("lost"), "neither scored nor failed"),
        (Outcome.failed("bored", "x"), "outcome.kind is unknown"),
    ],
)
def test_what_no_outcome_can_be_is_not_sent(outcome, message):
    with pytest.raises(WireError, match=message):
        encode_outcome(outcome)
    with pytest.raises(WireError, match=message):
        encode_outcomes([OUTCOMES[0], outcome])


def broken(place: int, value: object) -> bytes:
    parts = msgpack.unpackb(encode_outcome(OUTCOMES[1]))
    parts[2][place] = value
    return msgpack.packb(parts)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (msgpack.packb([1, "outcome"]), "0 parts"),
        (msgpack.packb([1, "outcome", {}]), "no list of 10"),
        (msgpack.packb([1, "outcome", ["scored"]]), "no list of 10"),
        (msgpack.packb([2, "outcome", []]), "wire version 2"),
        (msgpack.packb([1, "batch", {}]), "type 'batch', expected 'outcome'"),
        (broken(0, "lost"), "neither"),
        (broken(0, []), "outcome.status is list"),
        (broken(1, "1.0"), "outcome.reward is str"),
        (broken(1, float("nan")), "outcome.reward is nan"),
        (broken(2, []), "outcome.extra is list"),
        (broken(3, "timeout"), "outcome.kind must be there"),
        (broken(4, b"x"), "outcome.message is bytes"),
        (broken(5, 1), "outcome.retryable is int"),
        (broken(6, True), "outcome.attempts is bool"),
        (broken(7, None), "outcome.wait_s is NoneType"),
        (broken(9, [1]), "outcome.uid is list"),
    ],
)
def test_a_broken_outcome_is_refused_by_field(data, message):
    with pytest.raises(WireError, match=message):
        decode_outcome(data)


def test_outcomes_of_something_else_are_refused():
    with pytest.raises(WireError, match="no list of outcomes"):
        decode_outcomes(msgpack.packb([1, "outcomes", {}]))


def test_a_tool_call_arrives_as_it_was():
    arguments = {"code": "print(1)", "files": [{"name": "a", "data": b"\x00"}], "n": np.int64(3)}
    data = encode_tool_call("sandbox", arguments, timeout_s=1.5)
    assert decode_tool_call(data) == ("sandbox", {**arguments, "n": 3}, 1.5)
    assert decode_tool_call(encode_tool_call("t", {}, timeout_s=None)) == ("t", {}, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("", {}, 1.0), "tool is no name"),
        (("t" * 200, {}, 1.0), "tool is no name"),
        (("t", {"a": object()}, 1.0), r"arguments\['a'\] is builtins.object"),
        (("t", [], 1.0), "arguments is list"),
        (("t", {}, float("inf")), "timeout_s is no number"),
        (("t", {}, -1), "timeout_s is no number"),
        (("t", {}, True), "timeout_s is no number"),
    ],
)
def test_what_is_no_tool_call_is_not_sent(call, message):
    tool, arguments, timeout_s = call
    with pytest.raises(WireError, match=message):
        encode_tool_call(tool, arguments, timeout_s=timeout_s)


def test_a_tool_call_is_not_read_as_a_batch():
    from queue_client.wire import decode_batch

    with pytest.raises(WireError, match="type 'tool_call', expected 'batch'"):
        decode_batch(encode_tool_call("t", {}, timeout_s=None))
    with pytest.raises(WireError, match="1 parts, expected 3"):
        decode_tool_call(msgpack.packb([1, "tool_call", "t"]))
