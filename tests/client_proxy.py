"""A TCP proxy between a client and Redis that loses replies and cuts connections on demand."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards to a port; `lose_reply_of` names bytes whose reply never arrives, once."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lose_reply_of: bytes | None = None
        self.lost = 0
        self.refusing = False
        self.opened = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def turn_to(self, port: int) -> None:
        """Forward new connections to another server."""
        self._target = ("127.0.0.1", port)

    def cut(self) -> None:
        """End every connection."""
        for one in list(self._sockets):
            _close(one)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self.refusing:
                    _close(client)
                    continue
                server = socket.create_connection(self._target)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            self.opened += 1
            self._sockets += [client, server]
            self._start(self._up, client, server)
            self._start(self._down, server, client)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.lose_reply_of is not None and self.lose_reply_of in data:
                    self.lose_reply_of = None
                    self.lost += 1
                    with contextlib.suppress(OSError):
                        client.shutdown(socket.SHUT_WR)  # nothing more reaches the client
                    server.sendall(data)
                    break
                server.sendall(data)
        if self.lost:
            threading.Event().wait(0.2)  # the server has worked on it
        _close(client)
        _close(server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _close(client)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
