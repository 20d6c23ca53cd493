"""The pages in a real browser: they render, and nothing that was stored runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from dashboard_browser import Tab
from dashboard_seeds import EVIL, store_job, store_worker

from limiter import Limiter, Limits
from worker.ops.dashboard.access import Access

PAGES = {
    "queues": ("/", "tr[data-role=queue]"),
    "failed": ("/0/view/jobs/rewards/failed/50/asc/1", "tr[data-role=job]"),
    "finished": ("/0/view/jobs/rewards/finished/50/dsc/1", "tr[data-role=job]"),
    "workers": ("/0/view/workers", "tr[data-role=worker]"),
    "limits": ("/0/view/limits", "section.limit"),
    "markup": ("/0/view/job/markup", "#outcomes"),
    "pickled": ("/0/view/job/pickled", "#job-status"),
    "binary": ("/0/view/job/binary", "#job-status"),
    "nan": ("/0/view/job/nan", "#job-status"),
    "undecodable": ("/0/view/job/undecodable", "#job-status"),
    "needs": ("/0/view/job/needs", "#job-status"),
}


@pytest.fixture
def tab(chromium: Any, serve: Callable[..., str]) -> Tab:
    return Tab(chromium, serve())


async def test_every_page_renders_and_nothing_stored_runs(
    tab: Tab, hostile: Path, redis_url: str, pictures: Path
) -> None:
    limiter = Limiter(redis_url, Limits(name=EVIL[:60], max_concurrent=4, rpm=60, tpm=9000))
    async with limiter.lease(tokens=100):
        for name, (path, selector) in PAGES.items():
            tab.open(path, selector)
            tab.picture(pictures / f"{name}.png")
            assert tab.driver.execute_script("return typeof window.pwned") == "undefined", name
            assert not tab.driver.find_elements("css selector", "#fault:not([hidden])"), name
            assert "Loading" not in tab.text(), name
            assert not tab.driver.find_elements("css selector", "img[src=x]"), name
            assert not tab.faults(), name
    await limiter.close()
    tab.open(*PAGES["markup"])
    assert tab.text().count("<script>window.pwned=1</script>") >= 4, "shown as text"
    tab.open(*PAGES["workers"])
    assert "<script>window.pwned=1</script>" in tab.text()
    assert not os.path.exists(hostile), "a stored pickle was loaded"  # noqa: ASYNC240


def test_lists_turn_pages_and_change_registry(tab: Tab, connection: redis.Redis) -> None:
    for number in range(20):
        store_job(connection, f"job-{number:02}", registry="queued")
    store_job(connection, "broken", exc="it broke")
    tab.open("/", "tr[data-role=queue]")
    tab.click("tr[data-role=queue] a", "20")
    tab.wait_for("tr[data-job-id=job-00]")
    tab.click("#page-selection a", "2")
    tab.wait_for("tr[data-job-id=job-08]")
    tab.driver.execute_script("$('#select-registry').val('failed').trigger('change')")
    tab.wait_for("tr[data-job-id=broken] .exc_info", "it broke")
    tab.click("tr[data-job-id=broken] .job_id a")
    tab.wait_for("#job-status", "failed")
    assert not tab.driver.find_elements("css selector", "#delete-job-btn"), "off unless asked for"
    assert not tab.faults()


def test_pages_say_when_redis_does_not_answer(chromium: Any, serve: Callable[..., str]) -> None:
    tab = Tab(chromium, serve(url="redis://127.0.0.1:1/0"))
    for path in ("/", "/0/view/workers"):
        tab.driver.get(tab.address + path)
        tab.wait_for("#fault", "Redis does not answer")


def test_a_page_follows_what_happens(tab: Tab, connection: redis.Redis) -> None:
    store_worker(connection, "first")
    tab.open("/0/view/workers", "tr[data-role=worker]")
    store_worker(connection, "second")
    tab.wait_for("tr[data-role=worker] td", "second")
    assert "2 workers registered" in tab.text()


def test_buttons_ask_first_and_then_do_it(
    chromium: Any, serve: Callable[..., str], connection: redis.Redis, pictures: Path
) -> None:
    for name in ("one", "two"):
        store_job(connection, name, exc="boom", data=b"foreign")
    tab = Tab(chromium, serve(Access(delete=True)))
    tab.open("/0/view/jobs/rewards/failed/8/asc/1", "tr[data-job-id=two]")
    tab.click("tr[data-job-id=two] [data-role=delete-job-btn]")
    tab.wait_for("#confirmation-modal-action", "delete job")
    tab.picture(pictures / "confirm.png")
    tab.click("#confirmation-modal-yes")
    tab.wait_until(lambda: not connection.exists("rq:job:two"))
    tab.open("/0/view/jobs/rewards/failed/8/asc/1", "tr[data-job-id=one]")
    tab.click("#requeue-all-btn")
    tab.wait_for("#confirmation-modal-action", "requeue all")
    tab.click("#confirmation-modal-yes")
    tab.wait_until(lambda: connection.llen("rq:queue:rewards") == 1)
    assert connection.lrange("rq:queue:rewards", 0, -1) == [b"one"]
    assert not tab.faults()


def test_a_refused_change_is_said_on_the_page(tab: Tab, connection: redis.Redis) -> None:
    store_job(connection, "bare", exc="boom")  # of ours, and its batch is gone
    tab.open("/0/view/job/bare", "#job-status")
    tab.click("#requeue-job-btn")
    tab.wait_for("#fault", "its batch has expired")
