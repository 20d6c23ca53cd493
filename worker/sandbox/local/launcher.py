"""The wall where bubblewrap is not installed: namespaces of our own, or none, as the job says.

A script of the standard library, started as `launcher.py JOB`, JOB being JSON (see `walls.Wall`).
With namespaces: new user (unless root), mount, pid, network, IPC and host-name namespaces, a root
that holds read-only system folders, then an unprivileged user, and pid 1 that dies with us.
Without: a sub-reaper that ends every descendant when the program ends or we are told to stop.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import sys
from contextlib import suppress

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NOBODY = 65534
DEVICES = ("null", "zero", "full", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the job of the command line; exit as its program did."""
    job = json.loads(sys.argv[1])
    os.umask(0o022)
    if job["namespaces"]:
        enter_namespaces(job)
    else:
        run_bare(job)


def enter_namespaces(job: dict) -> None:  # type: ignore[type-arg]
    """Unshare everything, fork pid 1 and wait for it."""
    outer_uid, outer_gid = os.getuid(), os.getgid()
    if job["uid"] is None:
        call("unshare", libc.unshare(CLONE_NEWUSER))
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{NOBODY} {outer_uid} 1")
        write("/proc/self/gid_map", f"{NOBODY} {outer_gid} 1")
    spaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    call("unshare", libc.unshare(spaces))
    first = os.fork()
    if first == 0:
        die_with_parent()
        build_root(job)
        become_user(job)
        run_as_init(job)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    finish(job, wait_for(first))


def build_root(job: dict) -> None:  # type: ignore[type-arg]
    """Put together a root that holds what the program may see, and move into it."""
    call("mount", libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    root = "/tmp"  # noqa: S108  (any folder does: it is covered in this namespace only)
    folder = os.open(job["folder"], os.O_RDONLY | os.O_DIRECTORY)
    files = sorted(os.listdir(folder))
    sources = {
        path: os.open(path, os.O_PATH) for path in job["read_only"] if not os.path.islink(path)
    }
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    size = f"size={job['scratch_bytes']},mode=1777"
    tmpfs(root, "size=16m,mode=755")
    scratch = os.path.join(root, "tmp")
    os.mkdir(scratch)
    tmpfs(scratch, size)  # before what is shown: an interpreter may itself live below it
    for path in job["read_only"]:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        else:
            bind(sources[path], root + path, read_only=True)
    os.mkdir(f"{root}/proc")
    call("mount", libc.mount(b"proc", f"{root}/proc".encode(), b"proc", MS_NOSUID | MS_NODEV, None))
    os.mkdir(f"{root}/dev")
    for name, source in devices.items():
        bind(source, f"{root}/dev/{name}", read_only=False)
    for name in ("dev/shm", job["box"]):
        os.makedirs(os.path.join(root, name.lstrip("/")))
    tmpfs(os.path.join(root, "dev/shm"), size)
    if job["writable"]:
        bind(folder, root + job["box"], read_only=False)
    else:
        tmpfs(root + job["box"], size)
        for name in files:
            inside = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
            if stat.S_ISLNK(os.fstat(inside).st_mode):
                continue  # a compiler may have been made to plant one
            bind(inside, f"{root}{job['box']}/{name}", read_only=True)
    flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV
    call("mount", libc.mount(b"tmpfs", root.encode(), b"tmpfs", flags, b"mode=755"))
    os.chdir(root)
    call("pivot_root", libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."))
    call("umount", libc.umount2(b".", MNT_DETACH))
    os.chdir(job["box"])


def bind(source: int, target: str, *, read_only: bool) -> None:
    """Bind what a descriptor names to a path, made as needed."""
    origin = f"/proc/self/fd/{source}"
    if os.path.isdir(origin):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    call("mount", libc.mount(origin.encode(), target.encode(), None, MS_BIND | MS_REC, None))
    if read_only:
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | 8)
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept
        call("mount", libc.mount(None, target.encode(), None, flags, None))
    os.close(source)


def tmpfs(path: str, options: str) -> None:
    """Mount an empty scratch folder."""
    made = libc.mount(b"tmpfs", path.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options.encode())
    call("mount", made)


def become_user(job: dict) -> None:  # type: ignore[type-arg]
    """Give up root, if we are root, and every way back."""
    if job["uid"] is not None:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    call("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    die_with_parent()  # changing the user id cleared it


def run_as_init(job: dict) -> None:  # type: ignore[type-arg]
    """As pid 1: start the program, reap whatever ends, leave with the program."""
    program = os.fork()
    if program == 0:
        start(job)
    while True:
        ended, status = os.wait()
        if ended == program:
            os._exit(code_of(status))


def run_bare(job: dict) -> None:  # type: ignore[type-arg]
    """Run the program without walls and end all its descendants afterwards."""
    call("prctl", libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    die_with_parent()
    program = os.fork()
    if program == 0:
        os.chdir(job["folder"])
        become_user(job)
        start(job)
    signal.signal(signal.SIGTERM, stop_bare)
    code = wait_for(program)
    end_descendants()
    finish(job, code)


def stop_bare(*_: object) -> None:
    """End everything on request."""
    end_descendants()
    os._exit(143)


def end_descendants() -> None:
    """Kill until no child is left; orphans come to us because we are their sub-reaper."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as found:
            children = [int(pid) for pid in found.read().split()]
        if not children:
            return
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def start(job: dict) -> None:  # type: ignore[type-arg]
    """Become the program."""
    os.close(job["status_fd"])
    os.setsid()
    os.execve(job["argv"][0], job["argv"], job["env"])  # noqa: S606


def wait_for(pid: int) -> int:
    """Return the exit code of a child, 128 + n for signal n."""
    return code_of(os.waitpid(pid, 0)[1])


def code_of(status: int) -> int:
    """Return a wait status as a shell would."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def finish(job: dict, code: int) -> None:  # type: ignore[type-arg]
    """Report that the program ran, and how it ended."""
    os.write(job["status_fd"], json.dumps({"exit-code": code}).encode() + b"\n")
    os._exit(code)


def die_with_parent() -> None:
    """Have the kernel kill us when our parent goes."""
    call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def write(path: str, text: str) -> None:
    """Write a line to a file of the kernel's."""
    with open(path, "w") as file:
        file.write(text)


def call(name: str, result: int) -> None:
    """Raise OSError if a call of libc failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
