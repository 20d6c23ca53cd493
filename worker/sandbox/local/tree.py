"""Watching all processes of a program from outside: how many, and how much memory together."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Return the ids of a process's own children."""
    found = []
    for task in _tasks(pid):
        with suppress(OSError, ValueError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """Return the ids of a process's descendants; what ended meanwhile is left out."""
    found, queue = [], [pid]
    while queue:
        born = children(queue.pop())
        found += born
        queue += born
    return found


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of these processes, bytes; shared pages count each time.

    Cheap, and never too low: `exact_bytes` settles it.
    """
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * _PAGE


def exact_bytes(pids: list[int]) -> int:
    """Return the memory these processes take together, bytes: shared pages count once."""
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(
                int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
            )
    return total * 1024


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
