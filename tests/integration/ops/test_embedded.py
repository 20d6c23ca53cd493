"""The embedded server: own port, own folder, gone with its parent however that went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker.ops import embedded
from worker.ops.embedded import EmbeddedServer, NoServer, find_server

PARENT = """
import sys, threading, time
from worker.ops.embedded import EmbeddedServer
server = EmbeddedServer()
def start():
    server.start()
    print(server.port, server.folder, flush=True)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=start); thread.start(); thread.join()
else:
    start()
if len(sys.argv) > 2:  # a child that inherits everything and outlives us
    import os
    child = os.fork()
    if child == 0:
        time.sleep(60); os._exit(0)
    print(child, flush=True)
time.sleep(120)
"""


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def answers(port: int) -> bool:
    with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as client:
        try:
            return bool(client.ping())
        except redis.exceptions.RedisError:
            return False


def test_a_server_starts_answers_and_leaves_nothing() -> None:
    with EmbeddedServer() as server:
        folder = server.folder
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value")
            assert client.get("key") == b"value"
        assert folder.is_dir()

    assert not folder.exists()
    assert not answers(server.port)


def test_several_at_once_do_not_collide() -> None:
    servers = [EmbeddedServer() for _ in range(6)]
    try:
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(EmbeddedServer.start, servers))

        assert len({server.port for server in servers}) == 6
        for number, server in enumerate(servers):
            with redis.Redis.from_url(server.url) as client:
                client.set("who", number)
        for number, server in enumerate(servers):
            with redis.Redis.from_url(server.url) as client:
                assert client.get("who") == str(number).encode()
    finally:
        for server in servers:
            server.stop()


def test_a_port_that_somebody_else_took_is_not_mistaken_for_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = embedded._free_port
    with EmbeddedServer() as other:
        ports = iter([other.port, other.port])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports, None) or real())
        with EmbeddedServer() as server:
            assert server.port != other.port
            assert answers(other.port)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("where", ["main", "thread"])
def test_it_is_gone_when_its_parent_is_killed(how: signal.Signals, where: str) -> None:
    with _parent(where) as parent:
        port, folder = _started(parent)
        assert answers(port)
        parent.send_signal(how)
        parent.wait(10)

        assert eventually(lambda: not answers(port))
        assert eventually(lambda: not folder.exists())


def test_a_child_that_outlives_the_parent_does_not_keep_it() -> None:
    with _parent("main", "fork") as parent:
        port, folder = _started(parent)
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait(10)

        assert eventually(lambda: not answers(port) and not folder.exists())
        assert child.is_running()
        child.kill()


def test_without_any_binary_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(embedded, "_bundled_server", lambda: None)

    with pytest.raises(NoServer, match=r"rewardpool\[embedded\]"):
        find_server()


def test_a_server_on_the_path_comes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "valkey-server"
    own.write_text("#!/bin/sh\nexit 1\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() == own
    with pytest.raises(NoServer, match="did not start"):
        EmbeddedServer().start()


def _parent(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True
    )


def _started(parent: subprocess.Popen[str]) -> tuple[int, Path]:
    assert parent.stdout is not None
    port, folder = parent.stdout.readline().split()
    return int(port), Path(folder)
