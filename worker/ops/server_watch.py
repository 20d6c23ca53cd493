"""Run a server or worker until the parent goes away: `server_watch.py FOLDER COMMAND…`.

The parent holds the other end of our standard input. When it closes, or our parent changes
(children of the parent may have inherited that end), the server is ended and FOLDER removed.
The standard library only: it runs with `-I -S` so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys

CHECK_S = 0.25
PR_SET_PDEATHSIG = 1


def main(folder: str, command: list[str]) -> int:
    """Return the server's exit code, or 0 when it was ended for the parent's sake."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: os.close(0))
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent, start_new_session=True
    )
    try:
        while server.poll() is None:
            if os.getppid() != parent or _closed():
                _end(server)
                shutil.rmtree(folder, ignore_errors=True)
                return 0
        return server.returncode  # the parent may still want to read what is in the folder
    finally:
        _end(server)


def _closed() -> bool:
    try:
        readable, _, _ = select.select([0], [], [], CHECK_S)
        return bool(readable) and os.read(0, 1) == b""
    except (OSError, ValueError):
        return True


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(3)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _die_with_parent() -> None:
    """Even a SIGKILL of this watcher ends the server; Linux only, harmless elsewhere."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
