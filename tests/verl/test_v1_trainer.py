"""What verl's V1 trainer makes of our rewards, and of rows without one."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
from verl_rows import Row, agent_outputs, agent_worker, fields_of

pytestmark = pytest.mark.verl
pytest.importorskip("verl.experimental.reward_loop")
pytest.importorskip("transfer_queue")


class Queue:
    """Stands for TransferQueue: keeps what the trainer puts into it."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.rows: list[dict] = []
        self.keys: list[str] = []

    async def async_kv_put(self, *, key, partition_id, tag):
        self.statuses.append(tag["status"])

    async def async_kv_batch_put(self, *, keys, fields, tags, partition_id):
        self.keys += keys
        self.rows += [fields[place] for place in range(len(keys))]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of engines that are not installed
        from verl.trainer.ppo.v1 import agent_loop_tq

    queue = Queue()
    monkeypatch.setattr(agent_loop_tq, "tq", queue)
    monkeypatch.setattr(agent_loop_tq, "list_of_dict_to_tensordict", lambda fields: fields)
    return queue


def trainers_worker(reward_loop) -> object:
    """verl's real AgentLoopWorkerTQ with what scoring needs."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    made = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    made.__dict__.update(agent_worker(reward_loop).__dict__)
    made.distillation_enabled = False
    rollout = SimpleNamespace(n=2, val_kwargs=SimpleNamespace(n=1))
    made.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    return made


async def test_every_output_is_put_with_the_reward_and_its_fields(
    make_loop, tokenizer, queue
) -> None:
    worker = trainers_worker(make_loop())
    row = Row(["x", "a much longer second output", "answer"], prompts=["ask", "again", "a"])
    fields = {**fields_of(row), "global_steps": 3}
    await worker._agent_loop_postprocess(agent_outputs(row, tokenizer), False, **fields)
    assert queue.keys == ["u7_0_0", "u7_0_1", "u7_0_2"]
    for put, text in zip(queue.rows, row.texts, strict=True):
        assert put["rm_scores"].tolist() == [0.0] * (len(text) - 1) + [1.0]
        assert put["extra_fields"]["reward_extra_info"]["acc"] == 1.0


@pytest.mark.parametrize(("mode", "status"), [(None, "finished"), ("raise", "failure")])
async def test_a_group_with_a_failed_row_is_marked_failed(
    make_loop, tokenizer, queue, mode, status
) -> None:
    worker = trainers_worker(make_loop())

    async def run(sampling, *, trajectory, trace, session_id, **prompt):
        row = Row(["answer"], mode=mode if session_id == 1 else None)
        fields = {**fields_of(row), "session_id": session_id, "global_steps": 3}
        await worker._agent_loop_postprocess(agent_outputs(row, tokenizer), False, **fields)

    worker._run_agent_loop = run
    await worker._run_prompt({"uid": "u7"}, {}, trajectory={"validate": False})
    assert queue.statuses == ["running", status]
    assert len(queue.keys) == (2 if status == "finished" else 1)
