"""What stands between a program and this machine.

| wall | needs | keeps out |
| --- | --- | --- |
| bubblewrap | `bwrap` | files, network, other processes |
| namespaces | unprivileged user namespaces, or root | the same, by our own launcher |
| none | an explicit opt-in | nothing: limits and tidying up only, no security boundary |

As root, programs run under an unprivileged user id of their own, because the kernel's limit on
processes does not bind root. The first wall that passes a trial run is taken, once a process.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from worker.sandbox.errors import NoIsolation
from worker.sandbox.local.bounds import MIB, Bounds
from worker.sandbox.local.recipes import default_python

logger = logging.getLogger(__name__)

LAUNCHER = Path(__file__).with_name("launcher.py")
BOX = "/box"
#: User ids that programs get when we are root; nobody else's, and a new one each time.
FIRST_UID, UIDS = 50_000, 9_000
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/openssl.cnf",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
)
_SYSTEM_PYTHONS = ("/usr/local/bin/python3", "/usr/bin/python3")
_TRIAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """One command for a wall: what to run, in which folder of ours, and how far it may go.

    `writable` lends the folder itself; otherwise its files are read-only in a scratch folder.
    `status_fd` is where the wall writes `{"exit-code": n}`, and nothing if it never got that far.
    """

    argv: tuple[str, ...]
    folder: Path
    status_fd: int
    prelude: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Wall:
    """A way to run programs; `name` is bubblewrap, namespaces or none."""

    name: str
    python: str
    bounds: Bounds

    @property
    def isolates(self) -> bool:
        """Whether this is a boundary at all."""
        return self.name != "none"

    def command(self, order: Order) -> list[str]:
        """Return the command line that runs an order behind this wall."""
        inner = ["/bin/sh", "-c", order.prelude, "sh", *order.argv]
        uid = _fresh_uid() if os.getuid() == 0 else None
        if self.name == "bubblewrap":
            return self._bubblewrap(order, inner, uid)
        if uid is not None and order.writable:
            os.chown(order.folder, uid, uid)
        job = {
            "argv": inner,
            "folder": str(order.folder),
            "box": BOX,
            "writable": order.writable,
            "status_fd": order.status_fd,
            "namespaces": self.isolates,
            "uid": uid,
            "env": environment(self.python, self.isolates),
            "read_only": self.visible(),
            "scratch_bytes": self.bounds.scratch_mb * MIB,
        }
        return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(job)]

    def visible(self) -> list[str]:
        """Return the folders of this machine that a program may read."""
        given = Path(self.python)
        # a virtual environment and the interpreter behind it
        prefixes = {str(given.parent.parent), str(given.resolve().parent.parent)}
        own = sorted(prefix for prefix in prefixes if not f"{prefix}/".startswith("/usr/"))
        return ["/usr", *(path for path in (*_SYSTEM, *_ETC) if os.path.exists(path)), *own]

    def _bubblewrap(self, order: Order, inner: list[str], uid: int | None) -> list[str]:
        scratch = ["--size", str(self.bounds.scratch_mb * MIB), "--tmpfs"]
        args = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        args += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        args += ["--json-status-fd", str(order.status_fd), "--hostname", "box", "--clearenv"]
        for name, value in environment(self.python, isolated=True).items():
            args += ["--setenv", name, value]
        # Before what is shown: an interpreter may itself live below /tmp.
        args += ["--perms", "1777", *scratch, "/tmp"]  # noqa: S108
        for parent in _parents(self.visible()):
            args += ["--perms", "0755", "--dir", parent]  # bubblewrap's own parents are private
        for path in self.visible():
            linked = os.path.islink(path)
            args += ["--symlink", os.readlink(path), path] if linked else ["--ro-bind", path, path]
        args += ["--proc", "/proc", "--dev", "/dev"]
        args += ["--perms", "1777", *scratch, "/dev/shm"]  # noqa: S108
        args += [*self._box(order, scratch, uid), "--remount-ro", "/"]
        if uid is None:
            return [*args, "--unshare-user", "--uid", "65534", "--gid", "65534", "--", *inner]
        drop = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        # bubblewrap runs as root here; it needs these two only to become the program's user
        return [*args, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", *drop, *inner]

    def _box(self, order: Order, scratch: Sequence[str], uid: int | None) -> list[str]:
        if order.writable:
            if uid is not None:
                os.chown(order.folder, uid, uid)
            return ["--bind", str(order.folder), BOX, "--chdir", BOX]
        args = ["--perms", "1777", *scratch, BOX]
        for entry in sorted(order.folder.iterdir()):
            if not entry.is_symlink():  # a compiler may have been made to plant one
                args += ["--ro-bind", str(entry), f"{BOX}/{entry.name}"]
        return [*args, "--chdir", BOX]


def environment(python: str, isolated: bool) -> dict[str, str]:
    """Return the whole environment of a program: nothing of ours is handed on."""
    home = "/tmp" if isolated else "/nonexistent"  # noqa: S108
    return {
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "GOCACHE": f"{home}/go-build",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


@lru_cache(maxsize=8)
def find_wall(python: str | None, bounds: Bounds, *, allow_unisolated: bool = False) -> Wall:
    """Return the first wall that passes a trial run; `python` None picks an interpreter.

    Raises NoIsolation when none does and running bare was not allowed.
    """
    interpreters = [python] if python else [default_python(), *_SYSTEM_PYTHONS]
    faults: list[str] = []
    for name in ("bubblewrap", "namespaces", "none"):
        if name == "none" and not allow_unisolated:
            break
        for interpreter in filter(os.path.exists, interpreters):
            wall = Wall(name, interpreter, bounds)
            fault = trial(wall)
            if fault is None:
                return wall if wall.isolates else _warned(wall, faults)
            faults.append(f"{name} with {interpreter}: {fault}")
    raise NoIsolation(
        f"programs cannot be walled off here ({'; '.join(faults)}): install bubblewrap, allow user "
        "namespaces, name a sandbox server, or accept the risk with allow_unisolated = true"
    )


def _warned(wall: Wall, faults: list[str]) -> Wall:
    logger.warning(
        "programs run WITHOUT isolation, which is NO SECURITY BOUNDARY: they can read your files "
        "and use the network reason=%s",
        "; ".join(faults),
    )
    return wall


def trial(wall: Wall) -> str | None:
    """Run a trivial program behind a wall; return what went wrong, or None."""
    if wall.name == "bubblewrap" and shutil.which("bwrap") is None:
        return "not installed"
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryDirectory(prefix="rewardpool-box-") as folder:
            prelude = wall.bounds.prelude(time_s=5, memory_mb=512, reserves_memory=False)
            argv = (wall.python, "-I", "-S", "-c", "print(6 * 7)")
            order = Order(argv, Path(folder), writing, prelude)
            done = subprocess.run(
                wall.command(order),
                capture_output=True,
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                timeout=_TRIAL_S,
                check=False,
            )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        os.close(reading)
        os.close(writing)
    if done.returncode == 0 and done.stdout == b"42\n":
        return None
    return done.stderr.decode("utf-8", "replace").strip()[-300:] or f"exit {done.returncode}"


def _parents(paths: Sequence[str]) -> list[str]:
    """Return the folders above these paths, outermost first, each once."""
    above = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(above - {"/"})


def _fresh_uid() -> int:
    return FIRST_UID + random.randrange(UIDS)  # noqa: S311
