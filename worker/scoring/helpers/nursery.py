"""The nursery: a process of one thread that forks helpers and kills them with their families.

Commands arrive on the control socket: `start` (with the helper's end of a socket pair), `kill`.
Reports go back about helpers that ended. The end of the control socket is the end of everything.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from worker.scoring.helpers import child, frames

#: numpy, which messages need, must start no threads before a fork.
ONE_THREAD = "OPENBLAS_NUM_THREADS"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Nursery:
    """Forks helpers on command; `_helpers` maps their process ids to the worker's numbers."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._helpers: dict[int, int] = {}
        self.path: list[str] = sys.path
        self._wake = _wake_on_child()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        """Serve until the worker is gone, then leave nothing behind."""
        try:
            while True:
                ready, _, _ = select.select([self._control, self._wake], [], [])
                if self._wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                    self._reap()
                if self._control in ready and not self._obey():
                    return
        finally:
            self._end_all()

    def forget(self) -> None:
        """In a fork: give up what only the nursery may use."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        self._wake.close()

    def _obey(self) -> bool:
        received = _receive_command(self._control)
        if received is None:
            return False
        command, descriptors = received
        if command["op"] == "path":
            self.path = command["path"]
        elif command["op"] == "start":
            self._start(command, descriptors[0])
        elif command["op"] == "kill":
            self._kill(command["helper"])
        return True

    def _start(self, command: dict[str, Any], descriptor: int) -> None:
        nursery = os.getpid()
        try:
            process = os.fork()
        except OSError:  # no more processes or memory: the worker is told, and may try again
            os.close(descriptor)
            self._report({"helper": command["helper"], "code": None})
            return
        if process == 0:
            _become_helper(self, descriptor, command["memory_mb"], nursery)
        os.close(descriptor)
        self._helpers[process] = command["helper"]

    def _kill(self, helper: int) -> None:
        for process, number in self._helpers.items():
            if number == helper:
                _kill_group(process)

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if (helper := self._helpers.pop(process, None)) is not None:
                _kill_group(process)  # what the helper had started and left in its group
                _kill_orphans(set(self._helpers))
                code = os.waitstatus_to_exitcode(status)
                self._report({"helper": helper, "code": code})

    def _report(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(frames.pack(message))

    def _end_all(self) -> None:
        for process in self._helpers:
            _kill_group(process)
        for _ in range(100):
            _kill_orphans(set())
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _become_helper(nursery: Nursery, descriptor: int, memory_mb: int, parent: int) -> NoReturn:
    """In the fork: forget the nursery, die with it, serve the worker."""
    code = 1
    try:
        nursery.forget()
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            child.serve(socket.socket(fileno=descriptor), memory_mb=memory_mb, path=nursery.path)
            code = 0
    finally:
        os._exit(code)


def _receive_command(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One command and the descriptors sent with its header; None at the end."""
    size = array.array("i").itemsize
    try:
        header, ancillary, _, _ = control.recvmsg(frames.HEADER.size, socket.CMSG_SPACE(size))
    except ConnectionError:
        return None
    if len(header) < frames.HEADER.size:
        return None
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % size])
    body = control.recv(frames.HEADER.unpack(header)[0], socket.MSG_WAITALL)
    return frames.unpack(body), list(descriptors)


def _wake_on_child() -> socket.socket:
    """A socket that becomes readable when a child ends."""
    reader, writer = socket.socketpair()
    for each in (reader, writer):
        each.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _kill_group(process: int) -> None:
    """Kill a helper and its process group; the number is ours until we have reaped it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _kill_orphans(helpers: set[int]) -> None:
    """Kill what helpers had started in sessions of its own: it came to us when they ended."""
    own = os.getpid()
    with contextlib.suppress(OSError):
        listed = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for process in map(int, listed):
            if process not in helpers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the end of the control socket has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    """Started as `python -m worker.scoring.helpers.nursery FD`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Nursery(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
