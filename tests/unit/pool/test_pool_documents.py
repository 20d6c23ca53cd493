"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from queue_client import protocol
from worker.pool import names
from worker.settings import WorkerSettings

DOCS = Path(__file__).parents[3] / "docs"
LUA = Path(__file__).parents[3] / "lua"


def test_every_key_of_the_pool_is_in_the_table() -> None:
    text = (DOCS / "redis-keys.md").read_text(encoding="utf-8")
    of_rq = [
        names.queue_key("{queue}"),
        names.intermediate_key("{queue}"),
        names.wip_key("{queue}"),
        names.registry_key("finished", "{queue}"),
        names.registry_key("failed", "{queue}"),
        names.registry_key("canceled", "{queue}"),
        names.listeners_key("{queue}"),
        names.job_key("{job}"),
        names.dependents_key("{job}"),
        names.results_key("{job}"),
        names.execution_key("{job}", "{run}"),
        names.executions_key("{job}"),
        names.rq_worker_key("{worker}"),
        names.holds_key("{worker}"),
        names.SUSPENDED,
        names.WORKERS,
    ]
    ours = [
        protocol.payload_key("…"),
        protocol.outcomes_key("…"),
        protocol.attempts_key("…"),
        protocol.cancel_key("…"),
        protocol.reply_key("{producer}"),
        protocol.producer_key("{producer}"),
        protocol.worker_key("{worker}"),
        protocol.stats_key("{queue}"),
    ]
    assert [key for key in (*of_rq, *ours) if f"`{key}`" not in text] == []


def test_every_script_that_the_table_names_exists() -> None:
    text = (DOCS / "redis-keys.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(pool_\w+)`", text))
    assert named == {path.stem for path in LUA.glob("pool_*.lua")}


def test_the_times_in_the_state_table_are_the_defaults() -> None:
    text = (DOCS / "job-states.md").read_text(encoding="utf-8")
    worker = WorkerSettings()
    for said in (
        f"beats every {worker.heartbeat_s:g} s",
        f"{worker.expiry_s} s after the last heartbeat",
        f"at most one sweep ({worker.sweep_s:g} s) more",
        f"`stop_s` ({worker.stop_s:g} s)",
        f"`frozen_s` ({worker.frozen_s:g} s)",
        f"`max_attempts` ({worker.max_attempts})",
        f"`result_ttl`, {protocol.RESULT_TTL_S} s",
    ):
        assert said in text, said
