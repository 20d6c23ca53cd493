"""What a program may use, and the shell prelude that makes the kernel hold it to that."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """Caps on every program, whatever it asks for; what it asks for below them counts.

    `memory_mb` bounds each process's address space and the whole program's resident memory,
    `output_mb` each of stdout and stderr, `file_mb` a file, `scratch_mb` its folder and /tmp each.
    """

    compile_timeout_s: float = 60.0
    run_timeout_s: float = 120.0
    memory_mb: int = 4096
    output_mb: int = 16
    file_mb: int = 64
    scratch_mb: int = 256
    processes: int = 64
    open_files: int = 256

    def memory_for(self, asked_mb: int) -> int:
        """Return the memory limit in MiB for what a program asks; -1 and 0 ask for no limit."""
        return min(asked_mb, self.memory_mb) if asked_mb > 0 else self.memory_mb

    def prelude(self, *, time_s: float, memory_mb: int, reserves_memory: bool) -> str:
        """Return shell text that sets the limits and then becomes the program.

        `reserves_memory` is for run-times that reserve far more addresses than they use.
        """
        kib = memory_mb * 1024
        lines = [
            # dash calls the number of processes -p, bash calls it -u
            f"ulimit -p {self.processes} 2>/dev/null || ulimit -u {self.processes}",
            f"ulimit -d {kib}" if reserves_memory else f"ulimit -v {kib}",
            f"ulimit -f {self.file_mb * MIB // 512}",
            f"ulimit -n {self.open_files}",
            f"ulimit -t {math.ceil(time_s) + 2}",
            "ulimit -c 0",
            'exec "$@"',
        ]
        return "; ".join(lines)
