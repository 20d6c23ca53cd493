"""Processes for programs, forked from one that never knew a check: starting Python is slow.

The nursery is forked before the checks are read, so nothing of them is in its memory; it closes
what they come by and what reports go by. For each program the checks send it a pair of pipe ends.
"""

from __future__ import annotations

import array
import ctypes
import os
import signal
import socket
import struct
from contextlib import suppress

from worker.sandbox.harness.candidate import main as answer
from worker.sandbox.harness.peer import Gone

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
_PID = struct.Struct("=i")


class Nursery:
    """The checks' end: asks for processes."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _tend(theirs)
            os._exit(0)
        theirs.close()
        self._socket = ours

    def start(self, reading: int, writing: int) -> int:
        """Start a process that answers on these descriptors; return its id. Raises Gone."""
        ends = array.array("i", [reading, writing])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)]
        # an alarm between question and answer would leave the answer to the next question
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        try:
            self._socket.sendmsg([b"+"], rights)
            data = self._socket.recv(_PID.size)
        except OSError:
            raise Gone("nursery ended") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if len(data) != _PID.size:
            raise Gone("nursery ended")
        return int(_PID.unpack(data)[0])

    def close(self) -> None:
        """End the nursery."""
        self._socket.close()
        os.waitpid(self.pid, 0)


def _tend(sock: socket.socket) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits: the kernel reaps
    size = array.array("i").itemsize
    while True:
        word, rights, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(2 * size))
        if not word or not rights:
            return
        ends = array.array("i")
        ends.frombytes(rights[0][2])
        born = os.fork()
        if born == 0:
            sock.close()
            _become_program(ends[0], ends[1])
        for end in ends:
            os.close(end)
        sock.sendall(_PID.pack(born))


def _become_program(reading: int, writing: int) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _give_up_privileges()
        answer(reading, writing)
    finally:
        os._exit(0)


def _give_up_privileges() -> None:
    """Root without capabilities can still import what only root may read, and not look at us."""
    with suppress(Exception):  # no such call here: nothing to give up with it
        libc = ctypes.CDLL(None)
        for capability in range(CAPABILITIES):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
        libc.capset(header, struct.pack("=6I", *[0] * 6))
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
