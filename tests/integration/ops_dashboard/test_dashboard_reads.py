"""What the dashboard's pages read: nothing stored runs, everything stored is shown as text."""

from __future__ import annotations

import json
import logging
import resource
from pathlib import Path

import pytest
import redis
from dashboard_seeds import EVIL, KEEP_S, Page, store_job

from limiter import Limiter, Limits
from queue_client.errors import WireError
from queue_client.protocol import outcomes_key, stats_key
from queue_client.wire import decode_batch, decode_outcome
from queue_client.wire_document import pack
from worker.ops.metrics import PoolCollector

LISTS = [
    f"/0/data/jobs/rewards/{registry}/50/{order}/1.json"
    for registry in ("queued", "started", "finished", "failed", "deferred", "scheduled", "canceled")
    for order in ("asc", "dsc")
]
JOBS = ("markup", "pickled", "binary", "nan", "undecodable", "bomb", "needs", "waits")


def test_every_page_reads_a_hostile_database_and_nothing_runs(page: Page, hostile: Path) -> None:
    for path in ("/", "/0/view/jobs", "/0/view/workers", "/0/view/limits", *(
        f"/0/view/job/{job_id}" for job_id in JOBS
    )):  # fmt: skip
        reply = page.get(path)
        assert reply.status_code == 200, path
        assert "<script>window.pwned" not in reply.text
    for path in ("/0/data/queues.json", "/0/data/workers.json", *LISTS):
        page.json(path)
    for job_id in JOBS:
        page.json(f"/0/data/job/{job_id}.json")
    assert not hostile.exists(), "a stored pickle was loaded"


def test_a_job_page_shows_what_is_there_and_names_what_cannot_be_read(
    page: Page, hostile: Path
) -> None:
    markup = page.json("/0/data/job/markup.json")
    assert markup["description"] == markup["exc_info"] == markup["result"]["said"] == EVIL
    assert markup["result"]["b"] == "<1 bytes: ff>"
    assert markup["outcomes_total"] == 3
    by_row = {one["row"]: one for one in markup["outcomes"]}
    assert by_row["0"]["reward"] == 1.0
    assert by_row["1"]["kind"] == "scorer_error"
    assert by_row["1"]["message"] == EVIL
    assert by_row["2"]["status"] == "undecodable"

    assert "never read" in page.json("/0/data/job/pickled.json")["result"]
    assert page.json("/0/data/job/nan.json")["result"] == {"reward": "NaN"}
    assert json.loads(page.json("/0/data/job/nan.json")["metadata"]) == {"x": "Infinity"}
    assert page.json("/0/data/job/binary.json")["result"] == "<3 bytes: 00 01 ff>"
    undecodable = page.json("/0/data/job/undecodable.json")
    assert "undecodable" in undecodable["result"]
    assert undecodable["created_at"] is None
    assert undecodable["exc_info"].startswith("bad_input")
    needs = page.json("/0/data/job/needs.json")
    assert needs["depends_on"] == ["nan", EVIL]
    assert needs["depends_on_status"] == ["active", "expired"]


def test_a_list_leaves_out_what_is_no_job(page: Page, hostile: Path) -> None:
    failed = page.json("/0/data/jobs/rewards/failed/50/asc/1.json")
    assert {job["id"] for job in failed["jobs"]} == {"markup", "undecodable", "bomb"}
    assert failed["total"] == 6


def test_bombs_and_huge_fields_cost_bounded_memory(
    page: Page, connection: redis.Redis, hostile: Path
) -> None:
    store_job(connection, "huge", description="d" * (64 << 20), result=b"\xc4" + b"r" * (32 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for job_id in ("bomb", "huge"):
        shown = page.json(f"/0/data/job/{job_id}.json")
        assert len(json.dumps(shown)) < 200_000
    page.json("/0/data/jobs/rewards/failed/50/asc/1.json")
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert "too large to show" in page.json("/0/data/job/huge.json")["description"]
    assert grown_kb < 48 * 1024, f"grew by {grown_kb} kB"


def test_pages_of_a_list_hold_every_job_once_in_both_orders(
    page: Page, connection: redis.Redis
) -> None:
    for number in range(25):
        store_job(connection, f"job-{number:02}", registry="queued")
    for order, wanted in (("asc", range(25)), ("dsc", range(24, -1, -1))):
        seen: list[str] = []
        for number in (1, 2, 3):
            found = page.json(f"/0/data/jobs/rewards/queued/10/{order}/{number}.json")
            seen += [job["id"] for job in found["jobs"]]
        assert seen == [f"job-{number:02}" for number in wanted]
        assert found["pagination"]["num_pages"] == 3
        assert "next_page" not in found["pagination"]
        assert found["pagination"]["prev_page"]["url"].endswith(f"/queued/10/{order}/2")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/1/view/queues", 404),
        ("/0/view/job/nobody", 404),
        ("/0/data/job/nobody.json", 404),
        ("/0/data/job/a%20b.json", 404),
        ("/0/view/jobs/rewards/elsewhere/8/asc/1", 404),
        ("/0/view/jobs/rewards/failed/8/up/1", 404),
        ("/0/view/jobs/rewards/failed/100000/asc/1", 404),
        ("/0/data/jobs/rewards/failed/8/asc/x.json", 404),
        ("/0/view/jobs/back%5Cslash/failed/8/asc/1", 404),
        ("/requeue/rewards", 405),
    ],
)
def test_an_address_of_nobody_says_so(page: Page, path: str, code: int) -> None:
    assert page.get(path).status_code == code


def test_a_dead_redis_is_said_on_every_page_and_by_the_health_check() -> None:
    page = Page("redis://127.0.0.1:1/0")
    assert page.get("/0/view/workers").status_code == 200  # the frame; its data says what is wrong
    for path in ("/0/data/workers.json", "/0/data/queues.json"):
        reply = page.get(path)
        assert reply.status_code == 503
        assert reply.json["error"] == "Redis does not answer"
    assert page.get("/healthz").status_code == 503
    assert page.get("/0/view/limits").status_code == 503


def test_passwords_of_the_url_are_on_no_page(redis_url: str) -> None:
    page = Page(redis_url + "?client_name=secret")
    assert "secret" not in page.get("/").text
    page.close()


async def test_the_limits_page_shows_settings_use_and_history(
    page: Page, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    limiter = Limiter(redis_url, Limits(name="judge <b>", max_concurrent=2, rpm=600, tpm=9000))
    async with limiter.lease(tokens=100), limiter.lease(tokens=100):
        text = page.get("/0/view/limits").text
        assert "judge &lt;b&gt;" in text
        assert "2 / 2" in text
        assert ">2</span> this hour" in text
        assert "declared by" in text
    await limiter.close()


@pytest.mark.parametrize("version", [0, 2, 99])
def test_an_unknown_wire_version_is_refused_by_name(
    page: Page, connection: redis.Redis, version: int
) -> None:
    for decode in (decode_batch, decode_outcome):
        with pytest.raises(WireError, match=f"version {version}"):
            decode(pack([version, "outcome", {}]))
    store_job(connection, "newer")
    connection.hset(outcomes_key("newer"), "0", pack([version, "outcome", {}]))
    connection.expire(outcomes_key("newer"), KEEP_S)
    [row] = page.json("/0/data/job/newer.json")["outcomes"]
    assert f"version {version}" in row["message"]


def test_ids_limits_and_counters_of_any_size_leave_the_pages_standing(
    page: Page, connection: redis.Redis
) -> None:
    huge = b"x" * (40 << 20)
    store_job(connection, "fine", exc="boom")
    connection.rpush("rq:queue:rewards", huge)
    connection.hset(stats_key("rewards"), "a|scored|rows", huge)
    connection.expire(stats_key("rewards"), KEEP_S)
    assert page.json("/0/data/jobs/rewards/queued/8/asc/1.json")["jobs"] == []
    assert page.json("/0/data/queues.json")["queues"][0]["count"] == 1
    assert page.get("/0/view/limits").status_code == 200
    families = list(PoolCollector(page.app.extensions["rewardpool"].connection).collect())
    [skipped] = [one for one in families if one.name == "rewardpool_stats_skipped"]
    assert skipped.samples[0].value == 1
