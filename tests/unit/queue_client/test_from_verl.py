"""Reading verl's three paddings: exact lengths, exact texts, whatever contradicts is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from verl_batches import LAYOUTS, DataLike, PlainRow, bare, objects, padded, rows_of, text_of

from queue_client import BadTrajectory, TrajectoryBatch
from queue_client.rewards_tensor import reward_tensor
from queue_client.view import view_of
from queue_client.wire import decode_batch, encode_batch

PAIRS = list(itertools.product(range(9), repeat=2))


def texts_by_verl(batch: TrajectoryBatch) -> list[str]:
    """Read a view exactly as verl's managers do: the tail of the mask counts the response."""
    view = view_of(batch, backend="numpy")
    width = view.batch["responses"].shape[-1]
    texts = []
    for item in view:
        tail = item.batch["attention_mask"][item.batch["attention_mask"].shape[-1] - width :]
        texts.append(text_of(item.batch["responses"][: tail.sum()].tolist()))
    return texts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_pair_of_outputs_is_read_exactly(layout):
    for first, second in itertools.product(PAIRS, PAIRS):
        rows = rows_of([first, second])
        batch = TrajectoryBatch.from_verl(padded(rows, layout), rows="together")

        (trajectory,) = batch.trajectories
        assert [list(one.prompt_ids) for one in trajectory.outputs] == [r.prompt for r in rows]
        assert [list(one.response_ids) for one in trajectory.outputs] == [r.response for r in rows]
        assert not batch.given, (first, second)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_managers_of_verl_see_the_right_text_and_rewards_the_right_column(layout):
    for first, second in itertools.product(PAIRS[::2], PAIRS[1::3]):
        rows = rows_of([first, second])
        batch = TrajectoryBatch.from_verl(padded(rows, layout), rows="together")

        assert texts_by_verl(batch) == [text_of(row.response) for row in rows]
        values, placed = reward_tensor(batch, [0.5])
        expected = np.zeros_like(batch.responses, np.float32)
        if second[1]:
            expected[1, second[1] - 1] = 0.5
        assert np.array_equal(values, expected)
        assert placed.tolist() == [second[1] > 0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("extra_columns", [0, 3])
def test_tensors_come_back_as_they_were(layout, extra_columns):
    rows = rows_of([(4, 18), (14, 2), (0, 1), (3, 0)])
    rows[0].mask = [1] * 5 + [0] * 8 + [1] * 5
    if layout == "joined":
        rows[0].mask = None  # this layout has no response mask
    data = padded(rows, layout, extra_columns=extra_columns)

    batch = decode_batch(encode_batch(TrajectoryBatch.from_verl(data)))

    for name, array in data.batch.items():
        assert batch.tensor(name).dtype == array.dtype
        assert np.array_equal(batch.tensor(name), array), name


def test_a_streaming_batch_without_lengths_is_refused():
    data = padded(rows_of([(4, 18), (14, 2)]), "joined")
    data.non_tensor_batch.clear()

    with pytest.raises(BadTrajectory, match="give prompt_len and response_len"):
        TrajectoryBatch.from_verl(data)


def test_a_streaming_batch_whose_width_coincides_is_refused_without_lengths():
    data = padded(rows_of([(4, 2), (14, 18)]), "joined")
    data.non_tensor_batch.clear()
    assert data.batch["attention_mask"].shape[1] == 14 + 18

    with pytest.raises(BadTrajectory, match="row 0 is not its prompt and response"):
        TrajectoryBatch.from_verl(data)


def test_lengths_beside_a_classic_batch_are_used_and_checked():
    rows = rows_of([(4, 3), (2, 5)])
    data = padded(rows, "left")
    data.non_tensor_batch.update(prompt_len=np.array([4, 2]), response_len=np.array([3, 5]))
    assert TrajectoryBatch.from_verl(data).response_lens.tolist() == [3, 5]

    data.non_tensor_batch["response_len"] = np.array([3, 4])
    with pytest.raises(BadTrajectory, match="attention_mask of row 1 fits no padding"):
        TrajectoryBatch.from_verl(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": [[1, 2, 3]], "attention_mask": [[1, 0, 1, 1, 1]]}, "row 0 fits no padding"),
        ({"attention_mask": [[1, 1, 0, 1]]}, "row 0 fits no padding"),
        ({"attention_mask": [[1, 2, 1, 1]]}, "other than 0 and 1"),
        ({"attention_mask": [[1, 1, 1]]}, "3 columns"),
        ({"response_mask": [[1, 1]], "attention_mask": [[1, 1, 1, 0]]}, "behind its 1 ids"),
        ({"responses": [5, 6]}, "shape"),
        ({"prompts": [[1, 2], [3, 4]]}, "prompts has 2 rows"),
        ({"input_ids": [[1, 2, 5, 7]]}, "input_ids of row 0"),
        ({"input_ids": [[1, 2, 5]]}, "input_ids has 3 columns"),
        ({"responses": [[0.5, 1.5]]}, "expected integers"),
    ],
)
def test_tensors_that_contradict_each_other_are_refused(change, message):
    tensors = {"prompts": [[1, 2]], "responses": [[5, 6]], "attention_mask": [[1, 1, 1, 1]]}
    with pytest.raises(BadTrajectory, match=message):
        TrajectoryBatch.from_verl(DataLike(tensors | change))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_len": [2]}, "response_len is missing"),
        ({"prompt_len": [2], "response_len": [3]}, r"response_len\[0\] is 3"),
        ({"prompt_len": [-1], "response_len": [1]}, r"prompt_len\[0\] is -1"),
        ({"prompt_len": [2, 2], "response_len": [2, 2]}, "2 values for 1 rows"),
        ({"prompt_len": [None], "response_len": [2]}, "expected integers"),
    ],
)
def test_lengths_that_cannot_be_are_refused(fields, message):
    tensors = {"prompts": [[1, 2]], "responses": [[5, 6]], "attention_mask": [[1, 1, 1, 1]]}
    with pytest.raises(BadTrajectory, match=message):
        TrajectoryBatch.from_verl(DataLike(tensors, fields))


def test_responses_and_mask_alone_are_enough():
    """verl's own manager tests hand over no more."""
    data = DataLike({"responses": [[5, 6, 0]], "attention_mask": [[1, 1, 0]]})

    batch = TrajectoryBatch.from_verl(data)

    assert batch.trajectories[0].outputs[0].response_ids.tolist() == [5, 6]
    assert batch.trajectories[0].outputs[0].prompt_ids is None


@pytest.mark.parametrize("tensors", [{}, {"prompts": [[1]]}])
def test_a_batch_without_responses_is_refused(tensors):
    with pytest.raises(BadTrajectory, match="responses is missing"):
        TrajectoryBatch.from_verl(DataLike(tensors))


def test_without_mask_and_lengths_nothing_is_guessed():
    with pytest.raises(BadTrajectory, match="attention_mask"):
        TrajectoryBatch.from_verl(DataLike({"prompts": [[1]], "responses": [[2]]}))


def test_lists_numpy_and_torch_read_alike():
    torch = pytest.importorskip("torch")
    rows = rows_of([(4, 18), (14, 2)])
    for layout in LAYOUTS:
        data = padded(rows, layout)
        kinds = [
            data,
            DataLike({k: v.tolist() for k, v in data.batch.items()}, data.non_tensor_batch),
            DataLike({k: torch.tensor(v) for k, v in data.batch.items()}, data.non_tensor_batch),
        ]
        encoded = {encode_batch(TrajectoryBatch.from_verl(kind)) for kind in kinds}
        assert len(encoded) == 1


def test_unusual_dtypes_come_back():
    data = padded(rows_of([(2, 3), (1, 4)]), "left")
    data.batch["attention_mask"] = data.batch["attention_mask"].astype(bool)
    data.batch["responses"] = data.batch["responses"].astype(np.int32)
    data.batch["response_mask"] = data.batch["response_mask"].astype(np.float32)

    batch = decode_batch(encode_batch(TrajectoryBatch.from_verl(data)))

    for name, array in data.batch.items():
        assert batch.tensor(name).dtype == array.dtype
        assert np.array_equal(batch.tensor(name), array)


def test_tensors_that_do_not_follow_from_the_lengths_travel_as_they_are():
    data = padded(rows_of([(2, 3), (1, 4)]), "left")
    data.batch["responses"][0, 3:] = 99
    data.batch["position_ids"][1] = [5, 0, 1, 2, 3, 9]
    data.batch["rm_scores"] = np.array([[0, 0, 0.5, 0], [0, 0, 0, 1]], np.float32)

    read = TrajectoryBatch.from_verl(data, tensors=["rm_scores"])
    batch = decode_batch(encode_batch(read))

    for name, array in data.batch.items():
        assert np.array_equal(batch.tensor(name), array), name
    assert batch.tensor("rm_scores").dtype == np.float32


def test_multi_modal_positions_of_unequal_lengths_come_back():
    rows = rows_of([(4, 3), (2, 6)])
    data = padded(rows, "joined")
    positions = np.zeros((2, 4, 8), np.int64)
    for place, row in enumerate(rows):
        total = len(row.prompt) + len(row.response)
        for axis in range(4):
            positions[place, axis, :total] = np.maximum(0, np.arange(total) - axis)
    data.batch["position_ids"] = positions

    batch = decode_batch(encode_batch(TrajectoryBatch.from_verl(data)))

    assert not batch.given
    assert np.array_equal(batch.position_ids, positions)
    assert [one.position_ids.shape for one in batch.outputs] == [(4, 7), (4, 8)]


def fields_of(count: int) -> dict[str, object]:
    return {
        "data_source": np.array(["gsm8k"] * count),
        "reward_model": objects([{"ground_truth": str(n), "style": "rule"} for n in range(count)]),
        "extra_info": objects([{"index": np.int64(n)} for n in range(count)]),
        "uid": np.array([f"u{n // 2}" for n in range(count)], object),
        "raw_prompt": np.array([[{"role": "user", "content": "2+2"}]] * count),
        "__num_turns__": np.array([3] * count),
        "tool_extra_fields": objects(
            [{"turn_scores": [0.5], "tool_rewards": [], "min_global_steps": 1}] * count
        ),
        "agent_name": np.array(["loop"] * count),
    }


def test_fields_arrive_as_plain_values():
    data = padded(rows_of([(2, 3), (1, 4)]), "left")
    data.non_tensor_batch.update(fields_of(2))

    first, second = TrajectoryBatch.from_verl(data).trajectories

    assert (first.data_source, type(first.data_source)) == ("gsm8k", str)
    assert (first.ground_truth, second.ground_truth) == ("0", "1")
    assert (second.extra_info, type(second.extra_info["index"])) == ({"index": 1}, int)
    assert first.messages == [{"role": "user", "content": "2+2"}]
    assert (first.num_turns, first.turn_scores, first.tool_rewards) == (3, [0.5], [])
    assert first.extra_fields == {
        "agent_name": "loop",
        "reward_model": {"style": "rule"},
        "tool_extra_fields": {"min_global_steps": 1},
    }


def test_the_fields_of_a_producer_are_never_changed_nor_shared():
    data = padded(rows_of([(2, 3), (1, 4)]), "left")
    shared = {"index": 1, "nested": {"a": [1]}}
    data.non_tensor_batch["extra_info"] = objects([shared, shared])

    first, second = TrajectoryBatch.from_verl(data).trajectories
    first.extra_info["nested"]["a"].append(2)

    assert shared == {"index": 1, "nested": {"a": [1]}} == second.extra_info


def test_neighbours_of_one_session_are_outputs_of_one_trajectory():
    data = padded(rows_of([(1, 1), (2, 1), (1, 2), (1, 1)]), "left")
    data.non_tensor_batch.update(fields_of(4))
    data.non_tensor_batch["session_id"] = np.array([0, 0, 0, 1])

    batch = TrajectoryBatch.from_verl(data)

    assert [len(one.outputs) for one in batch.trajectories] == [2, 1, 1]
    assert [one.ground_truth for one in batch.trajectories] == ["1", "2", "3"]
    assert batch.trajectories[0].label(1) == "u0_0_1"
    assert len(TrajectoryBatch.from_verl(data, rows="apart").trajectories) == 4
    assert len(TrajectoryBatch.from_verl(data, rows="together").trajectories) == 1


def test_rollouts_of_one_prompt_stay_apart():
    """A group shares its uid; without a session nothing says that rows belong together."""
    data = padded(rows_of([(1, 1), (1, 2)]), "left")
    data.non_tensor_batch["uid"] = np.array(["u", "u"], object)

    assert len(TrajectoryBatch.from_verl(data).trajectories) == 2


def test_images_are_refused_by_name_or_dropped():
    data = padded([PlainRow([1, 2], [3])], "left")
    data.non_tensor_batch["multi_modal_data"] = objects([{"image": [object()]}])
    data.non_tensor_batch["raw_prompt"] = objects(
        [[{"role": "user", "content": [{"type": "image", "image": object()}, "see"]}]]
    )

    with pytest.raises(BadTrajectory, match="row 0: multi_modal_data holds images"):
        TrajectoryBatch.from_verl(data)
    (trajectory,) = TrajectoryBatch.from_verl(data, images="drop").trajectories
    assert trajectory.messages == [
        {"role": "user", "content": [{"type": "text", "text": "<image>"}, "see"]}
    ]


def test_a_field_that_is_not_plain_is_named():
    data = padded([PlainRow([1, 2], [3])], "left")
    data.non_tensor_batch["extra_info"] = objects([{"tags": {"a", "b"}}])

    with pytest.raises(BadTrajectory, match=r"row 0: extra_info\['tags'\] is builtins.set"):
        TrajectoryBatch.from_verl(data)


def test_a_nested_tensor_is_refused_by_name():
    data = DataLike({"responses": bare(is_nested=True), "attention_mask": [[1, 1]]})
    with pytest.raises(BadTrajectory, match="responses is a nested tensor"):
        TrajectoryBatch.from_verl(data)


def test_something_without_tensors_is_refused():
    with pytest.raises(BadTrajectory, match="SimpleNamespace has no batch"):
        TrajectoryBatch.from_verl(bare(non_tensor_batch={}))


def test_an_empty_batch_stays_empty():
    for layout in LAYOUTS:
        batch = TrajectoryBatch.from_verl(padded([], layout))
        assert len(batch) == 0
        assert batch.trajectories == []
