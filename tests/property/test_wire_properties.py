"""Whatever can be padded arrives as it was; whatever is not ours is refused, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl_batches import LAYOUTS, PlainRow, padded, text_of

from queue_client import Kind, Outcome, Output, Trajectory, TrajectoryBatch, WireError
from queue_client.padding import TENSORS
from queue_client.rewards_tensor import reward_tensor
from queue_client.view import view_of
from queue_client.wire import (
    Serializer,
    decode_batch,
    decode_outcome,
    decode_tool_call,
    encode_batch,
    encode_outcome,
)
from queue_client.wire_numbers import pack_tensor, pack_vector, unpack_tensor, unpack_vector

bounded = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

texts = st.text(st.characters(), max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
maps = st.dictionaries(texts, values, max_size=3)
token = st.integers(-300, 2**18) | st.integers(0, 2**40)


@st.composite
def outputs_of(draw) -> list[Output]:
    """Outputs that share prefixes now and then."""
    outputs: list[Output] = []
    for _ in range(draw(st.integers(0, 4))):
        before = outputs[-1] if outputs else Output([], [])
        kept = [*(before.prompt_ids or []), *(before.response_ids or [])]
        prompt = kept[: draw(st.integers(0, len(kept) + 20))] + draw(st.lists(token, max_size=25))
        response = draw(st.lists(token, max_size=20))
        mask = draw(st.none() | st.just([n % 3 != 1 for n in range(len(response))]))
        output = Output(prompt, response, mask, draw(st.none() | texts))
        if draw(st.booleans()):
            shape = draw(st.sampled_from([(len(prompt) + len(response),), (4, 1)]))
            output.position_ids = np.zeros(shape, int) + np.arange(len(prompt) + len(response)) // 2
        outputs.append(output)
    if draw(st.booleans()):
        text = draw(texts)
        mask = draw(st.none() | st.just([n % 2 for n in range(len(text))]))
        outputs.append(Output(text=text, response_mask=mask))
    return outputs


trajectories = st.builds(
    Trajectory,
    outputs=outputs_of(),
    data_source=st.none() | texts,
    ground_truth=values,
    extra_info=maps,
    uid=st.none() | texts,
    session_id=st.none() | texts | st.integers(),
    messages=st.none() | st.lists(st.fixed_dictionaries({"role": texts, "content": texts})),
    num_turns=st.none() | st.integers(0, 9),
    tool_rewards=st.none() | st.lists(st.floats(allow_nan=False), max_size=3),
    turn_scores=st.none() | st.lists(st.floats(allow_nan=False), max_size=3),
    extra_fields=maps,
)


def shown(value: object) -> object:
    """A form that tells types apart and compares arrays."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tolist())
    return (type(value), value)


@settings(bounded, max_examples=100)
@given(st.lists(trajectories, max_size=4))
def test_what_can_be_padded_arrives_as_it_was(sample):
    batch = TrajectoryBatch.pad(sample)
    arrived = decode_batch(encode_batch(batch))

    for one, other in zip(batch.trajectories, arrived.trajectories, strict=True):
        for field in dataclasses.fields(Trajectory):
            if field.name != "outputs":
                assert shown(getattr(one, field.name)) == shown(getattr(other, field.name))
        for a, b in zip(one.outputs, other.outputs, strict=True):
            for field in dataclasses.fields(Output):
                assert shown(getattr(a, field.name)) == shown(getattr(b, field.name)), field.name
    for name in TENSORS:
        assert shown(batch.tensor(name)) == shown(arrived.tensor(name)), name
    assert encode_batch(arrived) == encode_batch(batch)


@st.composite
def plain_rows(draw) -> list[PlainRow]:
    """1 to 6 outputs with tool tokens masked; ids are never a pad."""
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(0, 12))
        response = draw(st.lists(st.integers(8, 999), min_size=size, max_size=size))
        prompt = draw(st.lists(st.integers(8, 999), max_size=12))
        mask = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        rows.append(PlainRow(prompt, response, mask))
    return rows


@bounded
@given(plain_rows(), st.sampled_from(LAYOUTS), st.integers(0, 2))
def test_texts_and_positions_of_tokens_are_right_in_every_layout(rows, layout, extra_columns):
    data = padded(rows, layout, extra_columns=extra_columns)
    if layout == "joined":  # verl sends no mask here; one may come along
        wide = data.batch["responses"].shape[1]
        lines = [row.mask + [0] * (wide - len(row.mask)) for row in rows]
        data.batch["response_mask"] = np.array(lines, np.int64).reshape(len(rows), wide)

    batch = decode_batch(encode_batch(TrajectoryBatch.from_verl(data, rows="together")))

    for name, array in data.batch.items():
        assert shown(batch.tensor(name)) == shown(array), name
    (trajectory,) = batch.trajectories
    for row, output in zip(rows, trajectory.outputs, strict=True):
        assert text_of(output.response_ids.tolist()) == text_of(row.response)
        own = [one for one, sampled in zip(row.response, row.mask, strict=True) if sampled]
        assert output.policy_text(text_of) == text_of(own)
    width = max(len(row.response) for row in rows)
    for row, item in zip(rows, view_of(batch, backend="numpy"), strict=True):
        mask, responses = item.batch["attention_mask"], item.batch["responses"]
        valid = mask[len(mask) - width :].sum()
        assert text_of(responses[:valid].tolist()) == text_of(row.response)
    last = len(rows[-1].response)
    tokens, placed = reward_tensor(batch, [2.0])
    assert tokens.nonzero()[1].tolist() == ([last - 1] if last else [])
    assert placed.tolist() == [last > 0]


SEED = encode_batch(
    TrajectoryBatch.pad(
        [
            Trajectory(
                [
                    Output([1] * 20, [70_000, 2], [1, 0], "a"),
                    Output([1] * 20 + [70_000], [5], position_ids=[[0] * 22] * 3),
                ],
                extra_info={"a": [1, {"b": None}]},
                messages=[{"role": "user", "content": "x"}],
                uid="u",
            ),
            Trajectory([Output(text="text")], data_source="d"),
        ]
    )
)
OUTCOME = encode_outcome(Outcome.failed(Kind.TIMEOUT, "late", uid="u"))
READERS = (decode_batch, decode_outcome, decode_tool_call, Serializer.loads)


@st.composite
def mutated(draw, seed: bytes) -> bytes:
    """The payload with some bytes changed, removed, repeated or put in."""
    data = bytearray(seed)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(("set", "cut", "put", "copy")))
        if change == "set" and place < len(data):
            data[place] = draw(st.integers(0, 255))
        elif change == "cut":
            del data[place : place + draw(st.integers(1, 9))]
        elif change == "put":
            data[place:place] = draw(st.binary(max_size=9))
        else:
            data[place:place] = data[place : place + draw(st.integers(1, 9))]
    return bytes(data)


def read_all(batch: TrajectoryBatch) -> None:
    """Touch everything: what was accepted must be sound."""
    for name in (*TENSORS, *batch.given):
        assert len(batch.tensor(name)) == len(batch)
    view_of(batch, backend="numpy")


@settings(bounded, max_examples=1_500)
@given(mutated(SEED))
def test_a_mutated_batch_is_refused_or_sound(data):
    try:
        batch = decode_batch(data)
    except WireError:
        return
    read_all(batch)
    assert encode_batch(decode_batch(encode_batch(batch))) == encode_batch(batch)


@settings(bounded, max_examples=500)
@given(mutated(OUTCOME))
def test_a_mutated_outcome_is_refused_or_sound(data):
    try:
        outcome = decode_outcome(data)
    except WireError:
        return
    assert decode_outcome(encode_outcome(outcome)) == outcome


@settings(bounded, max_examples=500)
@given(st.binary(max_size=60), st.sampled_from(READERS))
def test_random_bytes_raise_nothing_but_a_wire_error(data, read):
    with contextlib.suppress(WireError):
        read(data)


@settings(bounded, max_examples=500)
@given(values, st.sampled_from(READERS), st.integers(0, 3), st.sampled_from(["batch", "outcome"]))
def test_messages_of_anything_raise_nothing_but_a_wire_error(value, read, parts, kind):
    data = Serializer.dumps([1, kind, *[value] * parts])
    with contextlib.suppress(WireError):
        read(data)


@bounded
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**18), max_size=40))
def test_whole_numbers_arrive_in_the_narrowest_type(numbers):
    array = np.array(numbers, np.int64)
    packed = pack_vector(array)
    assert np.array_equal(unpack_vector(packed, "x", length=len(numbers)), array)
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low >= 0 and high < 2**24:
        narrowest = next(f"u{bits}" for bits in (8, 16, 17, 18, 24) if high < 2**bits)
    else:
        signed = (bits for bits in (8, 16, 32, 64) if -(2 ** (bits - 1)) <= low)
        narrowest = next(f"i{bits}" for bits in signed if high < 2 ** (bits - 1))
    assert packed[0] == narrowest


@bounded
@given(
    st.sampled_from(["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_tensors_arrive_with_dtype_and_shape(dtype, shape, seed):
    with np.errstate(all="ignore"):
        array = np.random.default_rng(seed).integers(0, 2**40, shape).astype(dtype)
        arrived = unpack_tensor(Serializer.loads(Serializer.dumps(pack_tensor(array))), "x")
    assert shown(arrived) == shown(array)


@pytest.mark.parametrize("value", [np.array(["a"]), np.zeros(1, complex), np.array([None])])
def test_arrays_of_other_dtypes_do_not_travel(value):
    with pytest.raises(TypeError, match="does not travel"):
        pack_tensor(value)
