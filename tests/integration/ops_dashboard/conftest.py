"""A served dashboard, a real browser, and a database full of what nobody should store."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from dashboard_seeds import EVIL, KEEP_S, Bomb, Page, store_job, store_worker
from werkzeug.serving import make_server

from queue_client.outcome import Kind, Outcome
from queue_client.protocol import outcomes_key
from queue_client.wire import Serializer, encode_outcome
from worker.ops.dashboard.access import Access
from worker.ops.dashboard.app import create_app


@pytest.fixture
def page(redis_url: str) -> Iterator[Page]:
    """The dashboard as it is by default."""
    found = Page(redis_url)
    yield found
    found.close()


@pytest.fixture
def serve(redis_url: str) -> Iterator[Callable[..., str]]:
    """Serve dashboards on loopback; returns their addresses."""
    running: list[tuple[Any, Any, threading.Thread]] = []

    def start(access: Access | None = None, *, poll_ms: int = 300, url: str = redis_url) -> str:
        app = create_app(url, access=access, poll_ms=poll_ms)
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        running.append((app, server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for app, server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join(10)
        app.extensions["rewardpool"].connection.close()


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Any]:
    """Debian's Chromium, headless; the test is skipped where it is absent."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no chromium and chromedriver here (Debian: chromium, chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = browser
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--no-first-run", "--disable-background-networking", "--window-size=1280,1000",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    found.set_page_load_timeout(60)
    yield found
    found.quit()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: SCREENSHOTS, or the test's own folder."""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def hostile(connection: redis.Redis, tmp_path: Path) -> Path:
    """Fill Redis with markup, pickles, bombs and nonsense; returns the file no page may create."""
    mark = tmp_path / "executed"
    bomb = pickle.dumps(Bomb(str(mark)))
    store_job(connection, "markup", description=EVIL, exc=EVIL, result={"said": EVIL, "b": b"\xff"},
              meta=Serializer.dumps({"note": EVIL}))  # fmt: skip
    outcomes = {
        0: Outcome.scored(1.0, {"said": EVIL, "blob": "\u0000"}, uid=EVIL, run_s=1.25),
        1: Outcome.failed(Kind.SCORER_ERROR, EVIL, wait_s=0.5),
    }
    for row, outcome in outcomes.items():
        connection.hset(outcomes_key("markup"), str(row), encode_outcome(outcome))
    connection.hset(outcomes_key("markup"), "2", b"\x93\x63\xff garbage")
    connection.expire(outcomes_key("markup"), KEEP_S)
    store_job(connection, "pickled", registry="finished", meta=bomb, result=bomb, data=bomb)
    store_job(connection, "binary", registry="finished", result=b"\xc4\x03\x00\x01\xff")
    store_job(connection, "nan", registry="finished", result={"reward": float("nan")},
              meta=Serializer.dumps({"x": float("inf")}))  # fmt: skip
    store_job(connection, "undecodable", result=b"\xc1\xc1\xc1", data=b"\xc1", status="failed",
              created_at=b"\xff\xfe", exc="bad_input: data: of another serializer")  # fmt: skip
    store_job(connection, "bomb", exc="a" * (8 << 20), data=zlib.compress(b"a" * (64 << 20)))
    store_job(connection, "needs", registry="deferred", dependency_ids=json.dumps(["nan", EVIL]))
    store_job(connection, "waits", registry="queued")
    connection.set("rq:job:not-a-hash", "x", ex=KEEP_S)
    connection.zadd("rq:failed:rewards", {"not-a-hash": 4e9, "gone": 4e9, b"\xff<b>": 4e9})
    connection.lpush("rq:results:no-stream", "x")
    connection.expire("rq:results:no-stream", KEEP_S)
    connection.sadd("rq:queues", f"rq:queue:{EVIL}", "rq:queue:back\\slash")
    store_worker(connection, "honest")
    store_worker(connection, EVIL, queues=EVIL, hostname=EVIL, state=EVIL, pid=EVIL)
    return mark
