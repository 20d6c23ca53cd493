"""The pages over a pool at work, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from dashboard_browser import Tab
from dashboard_seeds import EVIL

from queue_client import Output, RewardClient, Trajectory
from queue_client.protocol import payload_key
from worker.ops.local_pool import LocalPool

TIMEOUT_S = 120
REWARD = f"""
import asyncio
import pathlib

EVIL = {EVIL!r}
DONE = pathlib.Path({{done!r}})


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, *, limits):
    if solution_str == "raise":
        raise ValueError(EVIL)
    if solution_str == "nan":
        return float("nan")
    async with limits["judge"].lease(tokens=len(solution_str)):
        while solution_str == "wait" and not DONE.exists():
            await asyncio.sleep(0.05)
    return {{{{"score": 0.5, "said": EVIL, "nested": {{{{"html": [EVIL]}}}}}}}}
"""


def test_a_pool_at_work_is_seen_as_it_is(
    chromium: Any,
    serve: Callable[..., str],
    redis_url: str,
    connection: redis.Redis,
    tmp_path: Path,
    pictures: Path,
) -> None:
    done = tmp_path / "done"
    file = tmp_path / "judge.py"
    file.write_text(REWARD.format(done=str(done)))
    settings = {
        "reward": {"function": f"{file}:compute_score"},
        "limits": {"judge": {"max_concurrent": 2, "rpm": 6000, "tpm": 60000}},
        "worker": {"concurrency": 8},
    }
    texts = ["raise", "nan", "quick", *["wait"] * 5]
    tab = Tab(chromium, serve(poll_ms=300))
    with (
        RewardClient(redis_url, rows_per_job=8) as client,
        LocalPool(workers=1, redis_url=redis_url, settings=settings),
    ):
        first = client.submit([Trajectory(outputs=[Output(text=text)]) for text in texts])
        for number in range(3):
            assert first[number].result(TIMEOUT_S)
        more = client.submit([Trajectory(outputs=[Output(text="wait")])] * 3)
        tab.open("/", "tr[data-role=queue]")
        tab.wait_for("tr[data-role=queue] td:nth-child(4)", "2")  # started: no place is free
        broken = client.submit([Trajectory(outputs=[Output(text="late")])])
        tab.wait_for("tr[data-role=queue] td:nth-child(2)", "1")  # queued
        [late] = [key.decode() for key in connection.lrange("rq:queue:rewards", 0, -1)]
        connection.set(payload_key(late), b"\x80not msgpack", ex=600)
        tab.picture(pictures / "busy-queues.png")
        tab.open("/0/view/workers", "tr[data-role=worker]")
        tab.wait_for("tr[data-role=worker] td:nth-child(2)", "busy")
        tab.wait_for("tr[data-role=worker] td.rows", "8 / 8")
        tab.picture(pictures / "busy-workers.png")
        tab.click("tr[data-role=worker] a.job_id")
        tab.wait_for("#job-status", "started")
        [outcomes] = connection.scan_iter("rewardpool:job:*:outcomes")
        tab.open("/0/view/job/" + outcomes.decode().split("{")[1].split("}")[0], "#outcomes")
        tab.wait_for("#outcomes td", "scorer_error")
        tab.wait_for("#outcomes td", "bad_score")
        tab.wait_for("#outcomes td", "0.5")
        assert "<script>window.pwned=1</script>" in tab.text()
        tab.picture(pictures / "busy-job.png")
        tab.open("/0/view/limits", "section.limit")
        tab.wait_for(".in-flight", "2 / 2")
        tab.wait_for(".waiting", "6")
        tab.picture(pictures / "busy-limits.png")

        done.touch()
        assert [future.result(TIMEOUT_S).ok for future in first] == [False, False, *[True] * 6]
        assert all(future.result(TIMEOUT_S).ok for future in more)
        assert broken[0].result(TIMEOUT_S).kind == "bad_input"
        tab.open("/0/view/jobs/rewards/failed/8/asc/1", "tr[data-role=job]")
        tab.wait_for(".exc_info", "payload")
        tab.picture(pictures / "busy-failed.png")
        assert tab.driver.execute_script("return typeof window.pwned") == "undefined"
        assert not tab.faults()
