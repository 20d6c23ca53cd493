"""Health checks for containers: `python -m worker.ops.health [URL | --scheduler QUEUE]`.

Without an argument: is a worker of this host registered and heard of? Exit code 0 or 1.
"""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

import redis
from rq.scheduler import RQScheduler

from worker.ops.address import connect
from worker.ops.rq_state import worker_states
from worker.settings import SettingsError, load_settings

SILENT_S = 60.0
TIMEOUT_S = 8.0


def fault(arguments: Sequence[str]) -> str | None:
    """Return what is wrong in one line, None if nothing is."""
    try:
        if arguments[:1] == ["--scheduler"]:
            return _scheduler_fault(arguments[1])
        if arguments:
            return _page_fault(arguments[0])
        return _worker_fault(socket.gethostname())
    except redis.exceptions.RedisError as error:
        return f"Redis: {type(error).__name__}"
    except SettingsError as error:
        return str(error)


def _worker_fault(host: str) -> str | None:
    mine = [one for one in worker_states(_connection()) if one.facts.get("hostname") == host]
    if not mine:
        return f"no worker of {host} is registered"
    ages = [one.heartbeat_age_s for one in mine if one.heartbeat_age_s is not None]
    if not ages or min(ages) > SILENT_S:
        return f"no worker of {host} was heard of for {SILENT_S:.0f} s"
    return None


def _scheduler_fault(queue: str) -> str | None:
    if _connection().exists(RQScheduler.get_locking_key(queue)):
        return None
    return f"no scheduler holds {queue}"


def _page_fault(url: str) -> str | None:
    if not url.startswith("http://"):
        return f"{url}: not an http address"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:  # noqa: S310 - checked above
            return None if page.status == 200 else f"{url}: {page.status}"
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"


def _connection() -> redis.Redis:
    return connect(load_settings().redis.url)


if __name__ == "__main__":
    said = fault(sys.argv[1:])
    if said:
        sys.stderr.write(said + "\n")
    sys.exit(1 if said else 0)
