"""A batch seen as managers written for verl see it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from verl_batches import PlainRow, padded

from queue_client import Output, Trajectory, TrajectoryBatch
from queue_client.view import view_of

TRAJECTORY = Trajectory(
    [Output([1, 2, 3], [4, 5]), Output([1], [6, 7, 8, 9], [1, 0, 0, 1])],
    data_source="gsm8k",
    ground_truth="4",
    extra_info={"index": 1, "nested": {"a": [1]}},
    uid="u",
    session_id=0,
    messages=[{"role": "user", "content": "2+2"}],
    num_turns=2,
    tool_rewards=[0.5],
    extra_fields={
        "reward_model": {"style": "rule"},
        "tool_extra_fields": {"min_global_steps": 1},
        "reward_scores": {"a": 1.0},
    },
)


def run_single(data):
    """The steps of verl's managers: last row, tail of the mask, fields by name."""
    item = data[-1:][0]
    responses = item.batch["responses"]
    width = responses.shape[-1]
    valid = item.batch["attention_mask"][-width:].sum()
    fields = item.non_tensor_batch
    extra = fields.get("extra_info", {})
    extra.update(fields.get("tool_extra_fields", {}))
    extra["num_turns"] = fields.get("__num_turns__", None)
    extra["rollout_reward_scores"] = fields.get("reward_scores", {})
    return (
        responses[:valid].tolist(),
        fields["data_source"],
        fields["reward_model"]["ground_truth"],
        extra,
    )


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_manager_of_verl_reads_the_last_output(backend):
    if backend == "torch":
        pytest.importorskip("torch")
    assert run_single(view_of(TRAJECTORY, backend=backend)) == (
        [6, 7, 8, 9],
        "gsm8k",
        "4",
        {
            "index": 1,
            "nested": {"a": [1]},
            "min_global_steps": 1,
            "tool_rewards": [0.5],
            "num_turns": 2,
            "rollout_reward_scores": {"a": 1.0},
        },
    )
    assert TRAJECTORY.extra_info == {"index": 1, "nested": {"a": [1]}}


def test_torch_tensors_have_verls_types():
    torch = pytest.importorskip("torch")
    view = view_of(TRAJECTORY)  # torch is imported, so tensors are torch's
    scores = torch.zeros_like(view.batch["responses"], dtype=torch.float32)
    assert (scores.shape, view.batch["input_ids"].dtype) == ((2, 4), torch.int64)
    assert view[torch.tensor([1])].batch["prompts"].tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (slice(None), [0, 1]),
        (slice(1, None), [1]),
        (slice(2, 5), []),
        (slice(None, None, 2), [0]),
        ([1, 0], [1, 0]),
        ([True, False], [0]),
        ([], []),
        (np.array([1]), [1]),
        (np.array([False, True]), [1]),
        ((0, 1), [0, 1]),
    ],
)
def test_a_view_is_cut_as_in_verl(backend, index, rows):
    if backend == "torch":
        pytest.importorskip("torch")
    cut = view_of(TRAJECTORY, backend=backend)[index]
    assert len(cut) == len(rows)
    assert cut.batch.batch_size == (len(rows),)
    assert cut.batch["prompts"].tolist() == [[[1, 2, 3], [0, 0, 1]][row] for row in rows]
    assert cut.non_tensor_batch["response_len"].tolist() == [[2, 4][row] for row in rows]


@pytest.mark.parametrize("row", [0, -2, np.int64(0)])
def test_an_integer_takes_one_row_out(row):
    item = view_of(TRAJECTORY, backend="numpy")[row]
    assert item.batch["responses"].tolist() == [4, 5, 0, 0]
    assert item.non_tensor_batch["uid"] == "u"
    with pytest.raises(IndexError):
        view_of(TRAJECTORY)[2]


def test_tensors_are_a_mapping_one_may_add_to():
    view = view_of(TRAJECTORY, backend="numpy", meta_info={"step": 3})
    assert "rm_scores" not in view.batch
    assert set(view.batch) >= {"prompts", "responses", "attention_mask", "response_mask"}
    assert view.batch.get("nothing") is None
    view.batch["rm_scores"] = np.zeros((2, 4))
    assert view[0].batch["rm_scores"].tolist() == [0] * 4
    del view.batch["rm_scores"]
    assert "rm_scores" not in view.batch
    assert view[0].meta_info == {"step": 3}
    assert [len(item.batch["responses"]) for item in view] == [4, 4]


def test_fields_are_one_object_a_row():
    view = view_of(TRAJECTORY)
    assert {column.shape for column in view.non_tensor_batch.values()} == {(2,)}
    assert view.non_tensor_batch["raw_prompt"][0] == [{"role": "user", "content": "2+2"}]
    view[0].non_tensor_batch["extra_info"]["nested"]["a"].append(2)
    assert view[1].non_tensor_batch["extra_info"]["nested"]["a"] == [1]
    assert view[0].non_tensor_batch["reward_model"] == {"style": "rule", "ground_truth": "4"}


def test_absent_fields_stay_absent_as_in_verl():
    fields = view_of(Trajectory([Output([1], [2])]))[0].non_tensor_batch
    assert not {"__num_turns__", "tool_extra_fields", "raw_prompt", "uid"} & set(fields)


def test_the_streaming_layout_is_shown_as_the_classic_one():
    rows = [PlainRow([1] * 60, [2] * 2), PlainRow([3] * 3, [4] * 2)]
    batch = TrajectoryBatch.from_verl(padded(rows, "joined"))
    assert run_single(view_of(batch, backend="numpy"))[0] == [4, 4]


def test_text_is_turned_into_ids_for_managers_that_decode():
    trajectory = Trajectory([Output([1], text="ab"), Output([1], [5], text="kept")])
    view = view_of(trajectory, backend="numpy", encode=lambda text: [ord(one) for one in text])
    assert view.batch["responses"].tolist() == [[97, 98], [5, 0]]


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="backend must be"):
        view_of(TRAJECTORY, backend="jax")


def test_a_view_does_not_import_torch_by_itself():
    program = (
        "import sys; from queue_client.view import view_of; from queue_client import *;"
        "v = view_of(Trajectory([Output([1], [2])])); v.batch['responses'];"
        "assert 'torch' not in sys.modules; assert type(v.batch['responses']).__name__ == 'ndarray'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
