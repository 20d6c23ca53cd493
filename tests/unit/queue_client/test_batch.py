"""Padding trajectories into one rectangle, with lengths that never have to be guessed."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from queue_client import BadTrajectory, Output, Trajectory, TrajectoryBatch
from queue_client.padding import Padding


def batch_of(*outputs: Output) -> TrajectoryBatch:
    return TrajectoryBatch.pad([Trajectory(list(outputs))])


def test_prompts_are_padded_left_and_responses_right():
    batch = batch_of(Output([1, 2, 3], [4]), Output([5], [6, 7], [1, 0]))

    assert len(batch) == 2
    assert batch.prompts.tolist() == [[1, 2, 3], [0, 0, 5]]
    assert batch.responses.tolist() == [[4, 0], [6, 7]]
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 0], [0, 0, 5, 6, 7]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 3], [0, 0, 0, 1, 2]]
    assert batch.response_mask.tolist() == [[1, 0], [1, 0]]
    assert batch.prompt_lens.tolist() == [3, 1]
    assert batch.response_lens.tolist() == [1, 2]
    assert {batch.tensor(name).dtype for name in ("prompts", "attention_mask")} == {np.dtype("i8")}


def test_rows_follow_trajectories_in_order():
    batch = TrajectoryBatch.pad(
        [Trajectory([Output([1], [2])]), Trajectory([]), Trajectory([Output([3], [4])] * 2)]
    )
    assert batch.trajectory_of_row == [0, 2, 2]
    assert batch.responses.tolist() == [[2], [4], [4]]


def test_a_trajectory_without_outputs_keeps_its_place_and_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        batch = TrajectoryBatch.pad([Trajectory(uid="u7", session_id=3)])

    assert (len(batch), len(batch.trajectories)) == (0, 1)
    (record,) = caplog.records
    assert record.getMessage() == "trajectory without outputs received row=0 uid=u7 session_id=3"


def test_a_batch_of_nothing_has_empty_tensors():
    batch = TrajectoryBatch.pad([])
    assert batch.prompts.shape == batch.input_ids.shape == batch.position_ids.shape == (0, 0)
    assert batch.prompt_lens.shape == (0,)


def test_texts_alone_have_rows_of_length_zero():
    batch = batch_of(Output(text="four"), Output([1], [2, 3]))
    assert batch.response_lens.tolist() == [0, 2]
    assert batch.attention_mask.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_producer_keeps_its_own_trajectory_as_it_was():
    trajectory = Trajectory([Output([1], [2])])
    (padded,) = TrajectoryBatch.pad([trajectory]).trajectories
    assert trajectory.outputs[0].response_ids == [2]
    assert padded.outputs[0].response_ids.dtype == np.int32
    text = Trajectory([Output(text="x")])
    assert TrajectoryBatch.pad([text]).trajectories[0] is text


def test_lists_arrays_and_tensors_pad_alike():
    torch = pytest.importorskip("torch")
    made = [
        batch_of(Output(kind([1, 2]), kind([3, 4, 5]), kind([1, 0, 1])))
        for kind in (list, tuple, np.array, torch.tensor, lambda ids: np.array(ids, np.uint16))
    ]
    for batch in made:
        assert batch.input_ids.tolist() == [[1, 2, 3, 4, 5]]
        assert batch.response_mask.tolist() == [[1, 0, 1]]


def test_a_tensor_that_needs_gradients_is_read():
    torch = pytest.importorskip("torch")
    mask = torch.ones(1, requires_grad=True)
    assert batch_of(Output([1], [2], mask)).response_mask.tolist() == [[1]]


def test_multi_modal_positions_of_unequal_lengths_pad():
    long, short = np.arange(20).reshape(4, 5), np.arange(12).reshape(4, 3)
    batch = batch_of(
        Output([1, 2], [3, 4, 5], position_ids=long), Output([1], [2, 3], position_ids=short)
    )
    assert batch.position_ids.shape == (2, 4, 5)
    assert np.array_equal(batch.position_ids[0], long)
    assert np.array_equal(batch.position_ids[1, :, 1:4], short)
    assert batch.position_ids[1, :, 4].tolist() == short[:, -1].tolist()


def test_positions_that_only_count_are_dropped():
    batch = batch_of(Output([1, 2], [3], position_ids=[0, 1, 2]))
    assert batch.outputs[0].position_ids is None


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (Output([1], [[2]]), r"outputs\[0\].response_ids has shape \[1, 1\]"),
        (Output([1], [[2], [3, 4]]), r"outputs\[0\].response_ids is no array"),
        (Output([1], [1.5]), "response_ids holds float64 values"),
        (Output(["a"], [1]), "prompt_ids holds <U1 values"),
        (Output([1], [2**64]), "response_ids holds 18446744073709551616|object values|uint64"),
        (Output([1], [2**63]), "more than 64 bits"),
        (Output([1], [None]), "object values"),
        (Output([1], [2, 3], [1]), r"response_mask has shape \[1\], the response has 2"),
        (Output([1], [2], [2]), "response_mask holds values other than 0 and 1"),
        (Output([1], None, [1]), r"response_mask has shape \[1\], the response has 0"),
        (Output(text="ab", response_mask=[1]), "the response has 2"),
        (Output([1], [2], position_ids=[0]), r"position_ids has shape \[1\], expected \[2\]"),
        (Output([1], [2], position_ids=[[[0]]]), "position_ids has shape"),
        (Output([1], [2], position_ids=[0.0, 0.5]), "position_ids holds float64"),
        (Output([1], [2], position_ids=[[0, 1]] * 9), "9 axes"),
        (Output(text="a", position_ids=[0]), "has position_ids, but no ids"),
    ],
)
def test_a_malformed_output_is_refused_by_field(output, message):
    with pytest.raises(BadTrajectory, match=message) as refused:
        TrajectoryBatch.pad([Trajectory([Output([1], [2])]), Trajectory([output])])
    assert str(refused.value).startswith("row 1: outputs[0]")


def test_positions_of_different_numbers_of_axes_are_refused():
    outputs = [Output([1], [2], position_ids=np.zeros((axes, 2), int)) for axes in (3, 4)]
    with pytest.raises(BadTrajectory, match="position_ids have 3 and 4 axes"):
        batch_of(*outputs)


@pytest.mark.parametrize("kind", ["image", "image_url", "video", "input_audio"])
def test_images_in_messages_are_refused_by_place(kind):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "?"}, {"type": kind, kind: "x"}]},
    ]
    with pytest.raises(BadTrajectory, match=rf"row 0: messages\[1\] holds a part of type '{kind}'"):
        TrajectoryBatch.pad([Trajectory([Output(text="x")], messages=messages)])


def test_an_unknown_tensor_is_a_key_error():
    with pytest.raises(KeyError, match="logits"):
        batch_of(Output([1], [2])).tensor("logits")


def test_the_label_names_an_output():
    assert Trajectory(uid="u", session_id=2).label(1) == "u_2_1"


@pytest.mark.parametrize(
    ("fill", "expected"), [("zero", [0, 1, 2, 0]), ("last", [0, 1, 2, 2]), ("next", [0, 1, 2, 3])]
)
def test_positions_behind_the_last_token_are_filled(fill, expected):
    trajectories = batch_of(Output([1], [2, 3])).trajectories
    padding = Padding("left", 1, 3, 4, position_fill=fill)
    assert TrajectoryBatch(trajectories, padding=padding).position_ids.tolist() == [expected]


def test_the_policys_own_tokens_and_text_stand_beside_the_whole_response():
    output = batch_of(Output([1], [5, 6, 7, 8], [1, 0, 0, 1])).outputs[0]
    assert output.response_ids.tolist() == [5, 6, 7, 8]
    assert list(output.policy_ids) == [5, 8]
    assert list(Output(None, [5, 6]).policy_ids) == [5, 6]
    assert Output(text="ab<tool>c", response_mask=[1, 1, *[0] * 6, 1]).policy_text() == "abc"
    assert Output(text="abc").policy_text() == "abc"
    assert output.policy_text(lambda ids: "".join(map(str, ids))) == "58"
    assert output.policy_text() is None
