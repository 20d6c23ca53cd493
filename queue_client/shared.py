"""One client a process for everything in it that talks to the same pool in the same way."""

from __future__ import annotations

import os
import threading
from typing import Any

from queue_client.client import RewardClient

_clients: dict[tuple[Any, ...], RewardClient] = {}
_lock = threading.Lock()


def shared_client(url: str, **options: Any) -> RewardClient:
    """Return this process' client with these options; the first call makes it.

    It is closed at the interpreter's end; after a fork the child's connects anew.
    Raises ValueError that names the option and the value.
    """
    key = (url, *sorted(options.items()))
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = RewardClient(url, **options)
        return client


def close_shared_clients() -> None:
    """Close all of them; the next call of `shared_client` makes new ones."""
    with _lock:
        clients = list(_clients.values())
        _clients.clear()
    for client in clients:
        client.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that is not here may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)
