"""The pages in a real browser: they render, and nothing that was stored runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from dashboard_seeds import EVIL, store_job, store_worker

from limiter import Limiter, Limits

WAIT_S = 30
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


class Tab:
    """One browser tab."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str, selector: str) -> None:
        """Open a page and wait until something is there."""
        self.driver.get_log("browser")
        self.driver.get(self.address + path)
        self.wait_for(selector)

    def wait_for(self, selector: str, text: str = "") -> Any:
        from selenium.webdriver.support.wait import WebDriverWait

        def found(driver: Any) -> Any:
            shown = driver.find_elements("css selector", selector)
            return next((one for one in shown if text in one.text), None)

        return WebDriverWait(self.driver, WAIT_S, ignored_exceptions=_stale()).until(found)

    def text(self) -> str:
        return str(self.driver.find_element("css selector", "body").text)

    def picture(self, file: Path) -> None:
        """Save the whole page."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self.driver.set_window_size(1280, min(3000, max(1000, height + 150)))
        self.driver.save_screenshot(str(file))

    def faults(self) -> list[str]:
        """What the browser complained about, but for texts that were never on a page."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE"
        ]


def _stale() -> list[type[Exception]]:
    from selenium.common.exceptions import StaleElementReferenceException

    return [StaleElementReferenceException]


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
    tab.wait_for("tr[data-role=queue] a", "20").click()
    tab.wait_for("tr[data-job-id=job-00]")
    tab.wait_for("#page-selection a", "2").click()
    tab.wait_for("tr[data-job-id=job-08]")
    tab.driver.execute_script("$('#select-registry').val('failed').trigger('change')")
    tab.wait_for("tr[data-job-id=broken] .exc_info", "it broke")
    tab.wait_for("tr[data-job-id=broken] .job_id a").click()
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
