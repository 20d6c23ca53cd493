"""Serve a WSGI application until SIGTERM or Ctrl-C, with a line that says where."""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

import click
import waitress

THREADS = 8


def serve(app: Callable[..., Any], *, bind: str, port: int, what: str) -> None:
    """Serve until told to stop; returns then. Raises click.ClickException if the port is taken."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # "task queue depth" at every burst
    try:
        server = waitress.create_server(app, host=bind, port=port, threads=THREADS, ident=None)
    except OSError as error:
        raise click.ClickException(f"{bind}:{port}: {error.strerror or error}") from None
    signal.signal(signal.SIGTERM, _leave)
    shown = f"[{bind}]" if ":" in bind else bind
    click.echo(f"{what} on http://{shown}:{bound_port(server)}/", err=True)
    try:
        server.run()
    finally:
        server.close()


def bound_port(server: Any) -> int:
    """Return the port a server listens on; with port 0 the system has chosen it."""
    listening = getattr(server, "effective_port", None)
    if listening is None:  # one name with several addresses
        listening = server.effective_listen[0][1]
    return int(listening)


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches the address."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def _leave(*_: Any) -> None:
    sys.exit(0)
