"""Batches on the wire: equal on arrival, small, and refused clearly when they are not ours."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc

import msgpack
import numpy as np
import pytest

from queue_client import BadTrajectory, Output, Trajectory, TrajectoryBatch, WireError, wire_rows
from queue_client.padding import TENSORS
from queue_client.wire import Serializer, decode_batch, encode_batch
from queue_client.wire_document import SMALL_BYTES, VERSION, pack_message


def assert_equal(one: TrajectoryBatch, other: TrajectoryBatch) -> None:
    """Compare values, dtypes, padding and order of two batches, field by field."""
    assert len(one.trajectories) == len(other.trajectories)
    for left, right in zip(one.trajectories, other.trajectories, strict=True):
        for field in dataclasses.fields(Trajectory):
            if field.name != "outputs":
                assert getattr(left, field.name) == getattr(right, field.name), field.name
        assert len(left.outputs) == len(right.outputs)
        for a, b in zip(left.outputs, right.outputs, strict=True):
            for field in dataclasses.fields(Output):
                assert_same(getattr(a, field.name), getattr(b, field.name))
    for name in (*TENSORS, *one.given):
        assert_same(one.tensor(name), other.tensor(name))
    assert one.padding == other.padding
    assert one.prompt_lens.tolist() == other.prompt_lens.tolist()
    assert one.response_lens.tolist() == other.response_lens.tolist()


def assert_same(one, other) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    else:
        assert one == other


def sent(batch: TrajectoryBatch) -> TrajectoryBatch:
    return decode_batch(encode_batch(batch))


def ids(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))


def test_a_full_trajectory_arrives_as_it_was():
    trajectory = Trajectory(
        outputs=[
            Output(ids(20), [70_000, 5], [1, 0], "a\u00e9\U0001f600"),
            Output([*ids(20), 70_000, 5, 6], [], [], ""),
        ],
        data_source="openai/gsm8k",
        ground_truth={"answer": ["4", 4, 4.5, None, True]},
        extra_info={
            "index": 3,
            "nested": {"a": [1, {"b": b"raw"}]},
            "big": 2**200,
            "low": -(2**70),
        },
        uid="u",
        session_id=2,
        messages=[{"role": "user", "content": "2+2"}],
        num_turns=2,
        tool_rewards=[0.5],
        turn_scores=[],
        extra_fields={"agent_name": "loop"},
    )
    batch = TrajectoryBatch.pad([trajectory, Trajectory([Output(text="plain")])])
    assert_equal(batch, sent(batch))


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [[]],
        [[Output([1], [2])]],
        [[Output([], [])]],
        [[Output()]],
        [[Output(None, [7])], [Output([7], None)], []],
        [[Output([-200, 3], [2**40])]],
        [[Output(ids(100_000), ids(100_000, 60_000))]],
        [[Output([1, 2], [3, 4], [0, 0])], [Output([1], [2, 3], [0, 1])]],
        [[Output(text="seven"), Output(text="12345", response_mask=[1, 1, 0, 0, 1])]],
    ],
    ids=lambda outputs: f"{len(outputs)}-trajectories",
)
def test_odd_shapes_arrive_as_they_were(outputs):
    batch = TrajectoryBatch.pad([Trajectory(each) for each in outputs])
    assert_equal(batch, sent(batch))
    assert_equal(batch, sent(sent(batch)))


@pytest.mark.parametrize("highest", [1, 255, 65_535, 65_536, 131_071, 131_072, 262_143, 262_144,
                                     2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**62])  # fmt: skip
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_ids_of_every_width_arrive(highest, count):
    values = [highest - step % min(highest, 3) for step in range(count)]
    batch = TrajectoryBatch.pad([Trajectory([Output(values[:1], values)])])
    assert_equal(batch, sent(batch))


def test_a_growing_context_is_sent_once():
    context, outputs = ids(1_000, 100_000), []
    for turn in range(5):
        response = ids(200, 200_000 + 1_000 * turn)
        outputs.append(Output(context, response))
        context = [*context, *response, *ids(50, 300 + 100 * turn)]
    batch = TrajectoryBatch.pad([Trajectory(outputs)])

    data = encode_batch(batch)

    assert len(data) < 2.25 * (1_000 + 5 * 200 + 4 * 50) + 300
    assert_equal(batch, decode_batch(data))
    first, second = decode_batch(data).outputs[:2]
    assert np.shares_memory(first.prompt_ids, second.prompt_ids)


def test_rollouts_of_one_prompt_share_it():
    prompt = ids(1_000, 100_000)
    trajectories = [Trajectory([Output(prompt, ids(20, 500 * n))]) for n in range(16)]
    batch = TrajectoryBatch.pad(trajectories)

    data = encode_batch(batch)

    assert len(data) < 2.25 * (1_000 + 16 * 20) + 300
    assert_equal(batch, decode_batch(data))
    assert len({one.prompt_ids.ctypes.data for one in decode_batch(data).outputs}) == 1


def test_a_group_of_growing_trajectories_arrives_as_it_was():
    prompt, trajectories = ids(100), []
    for number in range(6):
        first = Output(prompt, ids(30, 1_000 * number))
        grown = [*prompt, *first.response_ids, 9]
        edited = [*grown[:60], 8, *grown[61:]]
        trajectories.append(Trajectory([first, Output(grown, ids(5)), Output(edited, ids(7))]))
    batch = TrajectoryBatch.pad(trajectories)
    assert_equal(batch, sent(batch))


def test_what_would_be_copied_beyond_the_bound_is_sent_again(monkeypatch):
    monkeypatch.setattr(wire_rows, "MAX_COPIED", 150)
    rows = [[*ids(50 + n), *ids(3, 500 + 10 * n)] for n in range(9)]
    batch = TrajectoryBatch.pad([Trajectory([Output(row, [1])]) for row in rows])
    assert_equal(batch, sent(batch))


def test_multi_modal_positions_of_unequal_lengths_arrive():
    random = np.random.default_rng(3)
    outputs = [
        Output([1] * 4, [2] * 3, position_ids=random.integers(-5, 900, (4, 7))),
        Output([1] * 2, [2] * 9, position_ids=random.integers(0, 9, (4, 11))),
        Output([1], [2]),
        Output([1], [2, 3], position_ids=[4, 4, 5]),
    ]
    batch = TrajectoryBatch.pad([Trajectory(outputs)])
    assert batch.position_ids.shape == (4, 4, 4 + 9)
    assert_equal(batch, sent(batch))


def test_numpy_and_torch_values_arrive_as_plain_ones():
    torch = pytest.importorskip("torch")
    extra = {
        "number": np.int64(3),
        "array": np.arange(3),
        "tensor": torch.tensor([[1.5]]),
        "text": np.str_("a"),
        "pair": (1, 2),
    }
    (trajectory,) = sent(
        TrajectoryBatch.pad([Trajectory([Output(text="x")], extra_info=extra)])
    ).trajectories
    assert trajectory.extra_info == {
        "number": 3,
        "array": [0, 1, 2],
        "tensor": [[1.5]],
        "text": "a",
        "pair": [1, 2],
    }


def test_half_a_surrogate_pair_survives():
    batch = TrajectoryBatch.pad([Trajectory([Output(text="\ud83d")], ground_truth="\udc00")])
    assert_equal(batch, sent(batch))


def test_text_rows_cost_little_beyond_their_text():
    trajectories = [
        Trajectory([Output(text="x" * 1_000)], data_source="d" * 30, uid=f"{n:032}")
        for n in range(64)
    ]
    assert len(encode_batch(TrajectoryBatch.pad(trajectories))) < 64 * (1_000 + 32 + 16)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"extra_info": {"a": {1, 2}}}, r"row 1: extra_info\['a'\] is builtins.set"),
        ({"extra_info": {"a": [{3: "x"}]}}, r"row 1: extra_info\['a'\]\[0\] has the key 3"),
        ({"ground_truth": object()}, "row 1: ground_truth is builtins.object"),
        ({"extra_info": {"a": 1 << 100_000}}, "row 1: extra_info cannot travel: an integer of"),
        ({"session_id": complex(1)}, "row 1: session_id is builtins.complex"),
        ({"uid": b"raw"}, "row 1: uid is bytes"),
        ({"data_source": ["a"]}, "row 1: data_source is list"),
        ({"messages": "hello"}, "row 1: messages is str"),
        ({"messages": ["hello"]}, "row 1: messages is no list of maps"),
        ({"num_turns": 1.5}, "row 1: num_turns is float"),
        ({"extra_info": ["a"]}, "row 1: extra_info is list"),
        ({"turn_scores": 0.5}, "row 1: turn_scores is float"),
    ],
)
def test_what_cannot_travel_is_named(fields, message):
    trajectories = [Trajectory([Output(text="x")]), Trajectory([Output(text="x")], **fields)]
    with pytest.raises(BadTrajectory, match=message):
        encode_batch(TrajectoryBatch.pad(trajectories))


def test_endless_nesting_cannot_travel():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadTrajectory, match="row 0: ground_truth"):
        encode_batch(TrajectoryBatch.pad([Trajectory([Output()], ground_truth=endless)]))


def test_an_image_is_refused_as_one():
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2))
    with pytest.raises(BadTrajectory, match="images do not travel"):
        encode_batch(TrajectoryBatch.pad([Trajectory([Output()], extra_info={"image": image})]))


def body(**changes) -> bytes:
    """A batch message with some parts replaced; None removes a part."""
    batch = TrajectoryBatch.pad(
        [Trajectory([Output([1, 2], [3], [0], "t"), Output([1, 2, 3], [4])], uid="u")]
    )
    parts = msgpack.unpackb(encode_batch(batch))[2] | changes
    return pack_message("batch", {k: v for k, v in parts.items() if v is not None})


def rows(**changes) -> bytes:
    good = msgpack.unpackb(body())[2]["rows"] | changes
    return body(rows={k: v for k, v in good.items() if v is not None})


TENSOR = ["int64", [2, 1], "u8", b"ab"]
PADDING = ["left", 3, 1, 4, 0, 0, "last", {}]


def padding(place: int, value: object) -> bytes:
    return body(padding=[*PADDING[:place], value, *PADDING[place + 1 :]])


BROKEN = {
    "empty": (b"", "truncated"),
    "pickle": (b"\x80\x05}\x94.", "surplus"),
    "text": (b"hello", "surplus"),
    "newer version": (msgpack.packb([VERSION + 1, "batch", {}]), "wire version 2, this side"),
    "older version": (msgpack.packb([0, "batch", {}]), "wire version 0, this side"),
    "version of text": (msgpack.packb(["1", "batch", {}]), "wire version '1'"),
    "version true": (msgpack.packb([True, "batch", {}]), "wire version True"),
    "map": (msgpack.packb({"a": 1}), "no message"),
    "other type": (msgpack.packb([VERSION, "outcome", {}]), "type 'outcome', expected 'batch'"),
    "no body": (msgpack.packb([VERSION, "batch"]), "no map as its body"),
    "unknown part": (body(evil=1), "unknown part 'evil'"),
    "extension": (msgpack.packb([VERSION, "batch", msgpack.ExtType(7, b"x")]), "code 7"),
    "huge integer": (
        msgpack.packb([VERSION, "batch", msgpack.ExtType(1, b"x" * 5_000)]),
        "code 1, 5000 bytes",
    ),
    "nested lists": (b"\x91" * 100_000 + b"\xc0", "nested too deep"),
    "nested maps": (b"\x81\xa1a" * 100_000 + b"\xc0", "nested too deep"),
    "truncated later": (b"\x92\xa1a\xda\x0f\xff" + b"x" * 4_000, "truncated"),
    "surplus later": (b"\xc0" * 4_000, "3999 surplus bytes"),
    "claims in one another": (b"\xdd\x00\x00\x07\xd0" * 399, "truncated"),
    "claims in a long payload": (b"\xdd\x00\x0f\x00\x00" * 1_000 + b"\0" * 990_000, "truncated"),
    "claim of a long list": (b"\x93\x01\xa5batch\xdd\xff\xff\xff\xff", "truncated"),
    "claim of a long map": (b"\x93\x01\xa5batch\xdf\xff\xff\xff\xff", "truncated"),
    "claim of long bytes": (b"\x93\x01\xa5batch\xc6\xff\xff\xff\xff", "truncated"),
    "key of a number": (msgpack.packb([VERSION, "batch", {1: 2}]), "not allowed for map key"),
    "invalid text": (b"\x93\x01\xa5batch\xa2\xff\xff", "UnicodeDecodeError"),
    "count of 2**40": (body(trajectories=2**40), "trajectories is no number"),
    "negative count": (body(trajectories=-1), "trajectories is no number"),
    "no count": (body(trajectories=None), "trajectories is no number"),
    "outputs of 2**40": (body(counts=[2**40]), "counts is no list"),
    "outputs of text": (body(counts=["2"]), "counts is no list"),
    "outputs of true": (body(counts=[True]), "counts is no list"),
    "fewer outputs": (body(counts=[1]), "prompt_lens has 2 elements, expected 1"),
    "texts too few": (body(texts=["a"]), "texts is no list of 2"),
    "texts of numbers": (body(texts=["a", 1]), "texts holds a int"),
    "fields missing": (body(fields=None), "fields is no packed map"),
    "fields of a list": (body(fields=msgpack.packb([1])), "fields is no map"),
    "fields unknown": (body(fields=msgpack.packb({"evil": [1]})), "known columns"),
    "fields too few": (body(fields=msgpack.packb({"uid": []})), "fields.uid is no column of 1"),
    "fields no map": (
        body(fields=msgpack.packb({"extra_info": [1]})),
        "extra_info is int",
    ),
    "rows of a list": (body(rows=[]), "rows is no map"),
    "rows unknown": (rows(evil=1), "rows has the unknown part"),
    "ids missing": (rows(ids=None), "ids is missing"),
    "ids too few": (rows(ids=["u8", b"ab"]), "ids has 2 elements, expected"),
    "ids of floats": (rows(ids=["f32", b"abcd"]), "no known integer type"),
    "ids of objects": (rows(ids=["O", b"abcd"]), "no known integer type"),
    "ids cut": (rows(ids=["u16", b"abc"]), "no whole number"),
    "ids of text": (rows(ids=["u8", "ab"]), "ids has no bytes"),
    "lengths negative": (rows(prompt_lens=["i8", b"\xff\x01"]), "outside 0 to"),
    "lengths of 2**40": (
        rows(prompt_lens=["i64", (2**40).to_bytes(8, "little") * 2]),
        "outside 0 to",
    ),
    "tokens of 2**27": (
        body(
            counts=[20],
            texts=None,
            masks=None,
            rows={
                "prompt_lens": ["i32", (1 << 23).to_bytes(4, "little") * 20],
                "response_lens": ["u8", b"\1" * 20],
                "ids": ["u8", b""],
            },
        ),
        "rows claim",
    ),
    "shared too much": (rows(shared=["u8", b"\x00\x09"]), r"shared\[1\] is 9"),
    "shared of the first": (rows(shared=["u8", b"\x01\x00"]), r"shared\[0\] is 1"),
    "shared negative": (rows(shared=["i8", b"\x00\xff"]), r"shared\[1\] is -1"),
    "masks no pair": (body(masks=[1]), "masks is no pair"),
    "masks short": (body(masks=[["u8", b"\3\0"], ["u8", b"\0\0"]]), "masks.runs of row 0"),
    "masks long": (body(masks=[["u8", b"\2\0"], ["i32", b"\xff\xff\xff\x7f"]]), "of row 0"),
    "masks negative": (body(masks=[["u8", b"\3\0"], ["i8", b"\xff\x02"]]), "negative length"),
    "mask counts": (body(masks=[["i8", b"\xff\0"], ["u8", b""]]), "negative number"),
    "position axes": (body(positions=[["u8", b"\x09\0"], ["u8", b""]]), "positions.axes"),
    "position axes differ": (
        body(positions=[["u8", b"\1\2"], ["u8", b"a" * 11]]),
        "positions.axes differ",
    ),
    "position steps": (body(positions=[["u8", b"\4\0"], ["u8", b"a"]]), "positions.steps has 1"),
    "padding short": (body(padding=PADDING[:7]), "padding is no list"),
    "padding layout": (padding(0, "spiral"), "unknown layout"),
    "padding of lists": (padding(0, []), "unknown layout"),
    "padding fill": (padding(6, "never"), "unknown layout or position fill"),
    "padding width": (padding(1, 2**40), "padding.prompt_width is"),
    "padding narrow": (padding(1, 1), "padding.prompt_width is 1, the rows need 3"),
    "padding sum": (padding(3, 9), "padding.width is not the sum"),
    "padding text": (padding(2, "1"), "other than whole numbers"),
    "padding pad": (padding(4, 2**63), "other than whole numbers"),
    "padding dtype": (padding(7, {"prompts": "object"}), "unknown tensor or dtype"),
    "padding tensor": (padding(7, {"evil": "int64"}), "unknown tensor or dtype"),
    "tensors of a list": (body(tensors=[]), "tensors is no map"),
    "tensor short": (body(tensors={"a": TENSOR[:3]}), "no tensor of dtype"),
    "tensor dtype": (body(tensors={"a": ["object", *TENSOR[1:]]}), "no known dtype"),
    "tensor code": (body(tensors={"a": ["int64", [2, 1], "O", b"ab"]}), "no known type code"),
    "tensor kind": (body(tensors={"a": ["int64", [1], "f64", b"12345678"]}), "travels as f64"),
    "tensor shape": (body(tensors={"a": ["int64", [2, -1], "u8", b"ab"]}), "no valid shape"),
    "tensor shape text": (body(tensors={"a": ["int64", "21", "u8", b"ab"]}), "no valid shape"),
    "tensor size": (body(tensors={"a": ["int64", [2, 2], "u8", b"ab"]}), "its shape says 4"),
    "tensor of 2**40": (
        body(tensors={"a": ["int64", [2**20, 2**20], "u8", b"ab"]}),
        "its shape says 1099511627776",
    ),
    "tensor rows": (body(tensors={"a": ["int64", [1, 2], "u8", b"ab"]}), "1 rows, expected 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_payload_is_refused_by_name(case):
    data, message = BROKEN[case]
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=message):
            decode_batch(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5
    assert peak_bytes < 32 * 2**20


def test_every_truncation_is_refused():
    data = encode_batch(
        TrajectoryBatch.pad([Trajectory([Output(ids(9), ids(30), [1] * 30, "text")], uid="u")])
    )
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_batch(data[:size])
    with pytest.raises(WireError, match="1 surplus bytes"):
        decode_batch(data + b"\x00")


@pytest.mark.parametrize("value", [None, "text", 3, object()])
def test_what_is_not_bytes_is_refused(value):
    with pytest.raises(WireError, match="not bytes"):
        decode_batch(value)


def test_a_longer_payload_than_allowed_is_not_looked_at():
    with pytest.raises(WireError, match="at most 10 are read"):
        decode_batch(body(), max_bytes=10)


def test_countless_tiny_maps_are_refused():
    packed = b"\xdd" + (8 * SMALL_BYTES).to_bytes(4, "big") + b"\x80" * (8 * SMALL_BYTES)
    with pytest.raises(WireError, match="too many lists and maps"):
        Serializer.loads(packed)


def test_a_tensor_that_would_fill_the_memory_is_not_built():
    trajectories = [Trajectory([Output([], ids(100_000))])]
    trajectories += [Trajectory([Output([], [1])])] * 3_000
    batch = sent(TrajectoryBatch.pad(trajectories))
    with pytest.raises(BadTrajectory, match="input_ids would have 300100000 elements"):
        _ = batch.input_ids


def test_more_rows_than_travel_together_are_refused():
    batch = TrajectoryBatch.pad([Trajectory([Output()])] * 70_000)
    with pytest.raises(BadTrajectory, match="batch has 70000 trajectories"):
        encode_batch(batch)


def test_a_row_longer_than_travels_is_refused():
    row = np.zeros((1 << 24) + 1, np.int32)
    with pytest.raises(BadTrajectory, match="rows have 16777217 tokens"):
        encode_batch(TrajectoryBatch.pad([Trajectory([Output(None, row)])]))


def test_the_serializer_carries_what_a_job_needs_and_no_pickle():
    import pickle

    job = ("worker.pool.jobs.score_batch", None, [{"v": 1}], {})
    assert Serializer.loads(Serializer.dumps(job)) == list(job)
    with pytest.raises(WireError):
        Serializer.loads(pickle.dumps(job))
    with pytest.raises(TypeError, match="no plain value"):
        Serializer.dumps(object())
