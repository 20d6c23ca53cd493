"""Fixtures for all tests: a real server a session, an empty one a test, nothing left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from worker.ops.embedded import EmbeddedServer, NoServer, find_server

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).parent.parent
#: Keys that RQ keeps without an expiry: sets, lists and registries that index others.
RQ_INDEXES = ("rq:queues", "rq:queue:", "rq:workers", "rq:wip:", "rq:finished:", "rq:failed:",
              "rq:deferred:", "rq:scheduled:", "rq:canceled:", "rq:ready:", "rq:clean_registries:",
              "rq:suspended", "rq:scheduler")  # fmt: skip


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real records; tests that read it are skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data here")
    return folder


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One embedded Valkey for the session (one for each xdist worker)."""
    try:
        binary = find_server(prefer_embedded=True)
    except NoServer as error:
        pytest.skip(str(error))
    with EmbeddedServer(binary=binary) as running:
        yield running


@pytest.fixture
def redis_url(server: EmbeddedServer) -> Iterator[str]:
    """An empty database; fails the test if it leaves a key of ours without an expiry."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.flushall()
        yield server.url
        lasting = immortal_keys(client)
        client.flushall()
    assert not lasting, f"keys left without an expiry: {lasting[:10]}"


@pytest.fixture
def connection(redis_url: str) -> Iterator[redis.Redis]:
    """A synchronous client on the empty database; bytes, not text."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def immortal_keys(client: redis.Redis) -> list[str]:
    """Keys without an expiry that should have one; a limit's settings may stay."""
    found = []
    for key in client.scan_iter(count=1000):
        if key.startswith(RQ_INDEXES) or (
            key.startswith("rewardpool:limit:") and key.endswith(":settings")
        ):
            continue
        if client.pttl(key) == -1:
            found.append(key)
    return found


@pytest.fixture(autouse=True)
def _no_leftover_process() -> Iterator[None]:
    """A test that starts processes ends them."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    _, left = psutil.wait_procs(left, timeout=3)
    left = [child for child in left if not _belongs_to_session(child)]
    described = [" ".join(_command(child))[:200] for child in left]
    assert not described, f"processes left running: {described}"


def _belongs_to_session(child: psutil.Process) -> bool:
    command = " ".join(_command(child))
    return "rewardpool-redis-" in command or not command  # the session's server and its watcher


def _command(child: psutil.Process) -> list[str]:
    try:
        return child.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied, subprocess.SubprocessError):
        return []
