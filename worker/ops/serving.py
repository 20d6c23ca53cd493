"""Serve a WSGI application until SIGTERM or Ctrl-C, with a line that says where."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import click
import waitress

THREADS = 8


def serve(app: Callable[..., Any], *, bind: str, port: int, what: str) -> None:
    """Serve until told to stop; returns then. Raises click.ClickException if the port is taken."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # "task queue depth" at every burst
    with listening(bind, port) as listener:
        server = waitress.create_server(app, sockets=[listener], threads=THREADS, ident=None)
        signal.signal(signal.SIGTERM, _leave)
        shown = f"[{bind}]" if ":" in bind else bind
        click.echo(f"{what} on http://{shown}:{listener.getsockname()[1]}/", err=True)
        try:
            server.run()
        finally:
            server.close()


def listening(bind: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 takes a free one. Raises click.ClickException."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        return socket.create_server((bind, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        said = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{bind}:{port}: {said}") from None


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
