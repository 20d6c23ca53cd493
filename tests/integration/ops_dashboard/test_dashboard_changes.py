"""What the buttons do: who may press them, and that a requeued job is scored."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from dashboard_browser import Tab
from dashboard_seeds import KEEP_S, Page, store_job
from rq.command import send_stop_job_command

from queue_client import Output, RewardClient, Trajectory
from queue_client.outcome import Kind, Outcome
from queue_client.protocol import (
    SCORE_FUNCTION,
    Reference,
    attempts_key,
    outcomes_key,
    payload_key,
    producer_key,
)
from queue_client.wire import Serializer, encode_outcome
from queue_client.wire_document import pack
from worker.ops.dashboard.access import Access
from worker.ops.local_pool import LocalPool
from worker.pool.job import PoolJob

TIMEOUT_S = 90
REWARD = """
import asyncio
import pathlib

MARK = pathlib.Path({mark!r})


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if solution_str == "slow" and not MARK.exists():
        MARK.touch()
        await asyncio.sleep(60)
    return float(len(solution_str))
"""


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, dict[str, Any]]:
    file = tmp_path / "reward.py"
    file.write_text(REWARD.format(mark=str(tmp_path / "started")))
    return {"reward": {"function": f"{file}:compute_score"}}


def eventually(check: Callable[[], Any]) -> Any:
    """Wait until something is so; returns what it came to."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not so after {TIMEOUT_S} s: {check()}")


def only_job(connection: redis.Redis) -> str:
    [key] = eventually(lambda: list(connection.scan_iter("rq:job:*")))
    return str(key.decode().rpartition(":")[2])


def test_a_job_of_a_newer_producer_is_requeued_in_the_browser_and_scored(
    chromium: Any,
    serve: Callable[..., str],
    redis_url: str,
    connection: redis.Redis,
    settings: dict[str, dict[str, Any]],
) -> None:
    with RewardClient(redis_url) as client:
        futures = client.submit([Trajectory(outputs=[Output(text=text)]) for text in ("a", "bbb")])
        job_id = only_job(connection)
        sent = connection.getset(payload_key(job_id), pack([99, "batch", {}]))
        connection.expire(payload_key(job_id), KEEP_S)
        with LocalPool(workers=1, redis_url=redis_url, settings=settings):
            failed = [future.result(TIMEOUT_S) for future in futures]
            assert {one.kind for one in failed} == {"bad_input"}
            assert all("version 99" in one.message for one in failed), failed

            connection.set(payload_key(job_id), sent, ex=KEEP_S)  # as if the pool were upgraded
            tab = Tab(chromium, serve())
            tab.open("/0/view/jobs/rewards/failed/8/asc/1", "[data-role=requeue-job-btn]")
            tab.wait_for(".exc_info", "version 99")
            tab.click("[data-role=requeue-job-btn]")
            eventually(lambda: connection.hget(f"rq:job:{job_id}", "status") == b"finished")
    page = Page(redis_url)
    shown = page.json(f"/0/data/job/{job_id}.json")
    page.close()
    assert [one["reward"] for one in shown["outcomes"]] == [1.0, 3.0]
    assert shown["status"] == "finished"
    assert not connection.zcard("rq:failed:rewards")


def test_a_stopped_job_goes_on_where_it_was(
    page: Page, redis_url: str, connection: redis.Redis, settings: dict[str, dict[str, Any]]
) -> None:
    with RewardClient(redis_url) as client:
        futures = client.submit(
            [Trajectory(outputs=[Output(text=text)]) for text in ("slow", "quick")],
            timeout_s=5 * TIMEOUT_S,
        )
        job_id = only_job(connection)
        with LocalPool(workers=1, redis_url=redis_url, settings=settings):
            assert futures[1].result(TIMEOUT_S).reward == 5.0
            send_stop_job_command(connection, job_id)
            assert futures[0].result(TIMEOUT_S).kind == "cancelled"
            eventually(lambda: connection.zscore("rq:failed:rewards", job_id))

            client.close()  # what is requeued is scored although its producer is gone
            assert page.post(f"/job/{job_id}/requeue").status_code == 200
            eventually(lambda: connection.hget(f"rq:job:{job_id}", "status") == b"finished")
    rows = {one["row"]: one for one in page.json(f"/0/data/job/{job_id}.json")["outcomes"]}
    assert rows["0"]["reward"] == 4.0
    assert rows["1"]["reward"] == 5.0


def test_only_a_failed_job_with_its_batch_is_requeued(page: Page, connection: redis.Redis) -> None:
    store_job(connection, "waits", registry="queued")
    store_job(connection, "no-batch", exc="bad_input: payload is missing")
    for job_id, said in (
        ("waits", "only a failed job"),
        ("no-batch", "its batch has expired"),
        ("nobody", "no such job"),
    ):
        reply = page.post(f"/job/{job_id}/requeue")
        assert reply.status_code == 409
        assert said in reply.json["error"]
    assert connection.lrange("rq:queue:rewards", 0, -1) == [b"waits"]


def test_requeue_all_moves_what_can_run(page: Page, connection: redis.Redis) -> None:
    for number in range(1200):
        store_job(connection, f"job-{number}", exc="cancelled")
        if number % 3:
            connection.set(payload_key(f"job-{number}"), b"x", ex=KEEP_S)
    connection.hset(attempts_key("job-1"), "0", "3")
    connection.expire(attempts_key("job-1"), KEEP_S)
    store_job(connection, "foreign", exc="boom", data=b"other serializer")
    reply = page.post("/requeue/rewards")
    assert reply.json == {"status": "OK", "count": 801, "left": 400}
    assert connection.llen("rq:queue:rewards") == 801
    assert connection.zcard("rq:failed:rewards") == 400
    assert not connection.exists(attempts_key("job-1"))
    assert connection.hget("rq:job:foreign", "data") == b"other serializer"


def test_what_destroys_is_off_unless_asked_for(page: Page, connection: redis.Redis) -> None:
    store_job(connection, "kept", exc="boom")
    for path in (
        "/job/kept/delete", "/queue/rewards/failed/empty", "/queue/rewards/queued/empty",
        "/queue/rewards/compact",
    ):  # fmt: skip
        assert page.post(path).status_code == 403
    for path in ("/0/view/job/kept", "/0/view/jobs/rewards/failed/8/asc/1"):
        assert "btn-outline-danger" not in page.get(path).text
    assert connection.exists("rq:job:kept")


def test_deleting_takes_everything_of_a_job(redis_url: str, connection: redis.Redis) -> None:
    page = Page(redis_url, Access(delete=True))
    for registry in ("queued", "failed", "finished"):
        for number in range(3):
            store_job(connection, f"{registry}-{number}", registry=registry)
            connection.set(payload_key(f"{registry}-{number}"), b"x", ex=KEEP_S)
            connection.hset(outcomes_key(f"{registry}-{number}"), "0", b"x")
            connection.expire(outcomes_key(f"{registry}-{number}"), KEEP_S)
    connection.rpush("rq:queue:rewards", "gone-1", "gone-2")
    assert "btn-outline-danger" in page.get("/0/view/jobs/rewards/failed/8/asc/1").text
    assert page.post("/queue/rewards/compact").json["count"] == 2
    assert page.post("/job/queued-1/delete").json == {"status": "OK"}
    assert page.post("/job/queued-1/delete").json == {"status": "ERROR"}
    assert connection.lrange("rq:queue:rewards", 0, -1) == [b"queued-0", b"queued-2"]
    for registry in ("queued", "failed", "finished"):
        assert page.post(f"/queue/rewards/{registry}/empty").status_code == 200
    assert [key for key in connection.scan_iter() if key != b"rq:queues"] == []
    page.close()


def test_a_read_only_dashboard_has_no_button_at_all(
    redis_url: str, connection: redis.Redis
) -> None:
    page = Page(redis_url, Access(requeue=False))
    store_job(connection, "kept", exc="boom")
    for path in ("/0/view/job/kept", "/0/view/jobs/rewards/failed/8/asc/1"):
        text = page.get(path).text
        assert 'requeue-job-btn"' not in text
        assert 'id="requeue-all-btn"' not in text
    for path in ("/job/kept/requeue", "/requeue/rewards"):
        assert page.post(path).status_code == 403
    page.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example:9181"},
    ],
)
def test_other_sites_change_nothing(
    page: Page, connection: redis.Redis, headers: dict[str, str]
) -> None:
    store_job(connection, "kept", exc="boom")
    assert page.post("/job/kept/requeue", headers=headers).status_code in (403, 421)
    assert connection.hget("rq:job:kept", "status") == b"failed"


def test_a_foreign_host_name_reads_nothing(page: Page) -> None:
    assert page.get("/", headers={"Host": "rebound.example"}).status_code == 421
    assert page.get("/healthz", headers={"Host": "10.0.0.7:9181"}).status_code == 200


def test_a_password_guards_every_page_but_the_health_check(redis_url: str) -> None:
    page = Page(redis_url, Access(user="operator", password="pässword", hosts=frozenset()))
    paths = ["/", "/0/view/limits", "/0/data/queues.json", "/own/rewardpool.css", "/requeue/x"]
    for path in paths:
        reply = page.get(path)
        assert reply.status_code == 401
        assert "Basic" in reply.headers["WWW-Authenticate"]
        for pair in (("operator", "wrong"), ("other", "pässword"), ("", "")):
            assert page.get(path, headers=basic(*pair)).status_code == 401
    assert page.get("/", headers={"Authorization": "Bearer x"}).status_code == 401
    assert page.get("/", headers=basic("operator", "pässword")).status_code == 200
    assert page.get("/healthz").status_code == 200
    page.close()


def test_pages_run_no_script_that_is_not_theirs(page: Page) -> None:
    first, second = (page.get("/").headers["Content-Security-Policy"] for _ in range(2))
    assert first != second, "a nonce is used once"
    policy = dict(part.split(" ", 1) for part in first.split("; "))
    assert "'unsafe-inline'" not in policy["script-src"]
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"


def test_a_requeued_job_has_no_deadline_and_keeps_its_rewards(
    page: Page, connection: redis.Redis
) -> None:
    job_id = "producer_late"
    late = Reference(job_id, rows=3, deadline_ms=1, sent_ms=1)
    data = zlib.compress(Serializer.dumps((SCORE_FUNCTION, None, late.args(), {})))
    store_job(connection, job_id, exc="timeout", data=data)
    connection.set(payload_key(job_id), b"x", ex=KEEP_S)
    for row, outcome in enumerate((Outcome.scored(1.0), Outcome.failed(Kind.TIMEOUT, "late"))):
        connection.hset(outcomes_key(job_id), str(row), encode_outcome(outcome))
    connection.expire(outcomes_key(job_id), KEEP_S)

    assert page.post(f"/job/{job_id}/requeue").status_code == 200

    stored = connection.hget(f"rq:job:{job_id}", "data")
    function, _, args, _ = Serializer.loads(stored)
    assert function == SCORE_FUNCTION
    assert Reference.read(job_id, args) == Reference(job_id, rows=3)
    assert connection.hkeys(outcomes_key(job_id)) == [b"0"], "what is scored stays scored"
    assert connection.exists(producer_key("producer")), "wanted although its producer is gone"
    PoolJob.fetch(job_id, connection=connection, serializer=Serializer).call()
