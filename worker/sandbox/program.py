"""What is run and what came of it: the same shapes for the server and for the local runner.

A report keeps Sandbox Fusion's fields and words, so that one status table judges both.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: What the server accepts as `language`.
LANGUAGES = frozenset(
    "python cpp nodejs go go_test java php csharp bash typescript sql rust cuda lua R perl D_ut"
    " ruby scala julia pytest junit kotlin_script jest verilog python_gpu lean swift racket".split()
)
#: Languages whose programs are compiled before they run: a failure there is the same for all cases.
COMPILED = frozenset("cpp go go_test java rust cuda csharp D_ut scala swift verilog lean".split())

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_MEMORY_MB = 1024
#: The real server stops reading a program's output somewhere above a pipe's 64 KiB: a program that
#: prints more may be cut short with "Success" or hang until its time is up.
FLOOD_BYTES = 64 * 1024
#: Where the real server cuts the output of a program it reports as successful.
SERVER_CUT_BYTES = 219_264


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its bounds; times in seconds, memory in MiB, files by relative path."""

    code: str
    language: str = "python"
    stdin: str | None = None
    compile_timeout_s: float = DEFAULT_TIMEOUT_S
    run_timeout_s: float = DEFAULT_TIMEOUT_S
    memory_limit_mb: int = DEFAULT_MEMORY_MB
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()

    def payload(self) -> dict[str, Any]:
        """The body of `POST /run_code`."""
        files = {path: base64.b64encode(data).decode() for path, data in self.files.items()}
        return {
            "compile_timeout": self.compile_timeout_s,
            "run_timeout": self.run_timeout_s,
            "code": self.code,
            "stdin": self.stdin,
            "memory_limit_MB": self.memory_limit_mb,
            "language": self.language,
            "files": files,
            "fetch_files": list(self.fetch_files),
        }


@dataclass(frozen=True, slots=True)
class CommandResult:
    """One command: compiling or running. `return_code` is None when time ran out.

    `status` is Finished, Error or TimeLimitExceeded. `stdout_bytes` counts what was written, which
    may be more than `stdout` holds; `flooded` says that the output, not the clock, stopped it.
    """

    status: str
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    flooded: bool = False


@dataclass(frozen=True, slots=True)
class RunReport:
    """What came of a program. `status` is Success, Failed or SandboxError; None if absent."""

    status: str | None
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> RunReport:
        """Read the server's answer; absent and null fields become empty ones."""
        status = body.get("status")
        return cls(
            status=None if status is None else str(status),
            message=str(body.get("message") or ""),
            compile_result=_command(body.get("compile_result")),
            run_result=_command(body.get("run_result")),
            files=_files(body.get("files")),
            body=body,
        )

    def to_body(self) -> dict[str, Any]:
        """The answer as the server would give it."""
        files = {path: base64.b64encode(data).decode() for path, data in self.files.items()}
        return {
            "status": self.status,
            "message": self.message,
            "compile_result": _command_body(self.compile_result),
            "run_result": _command_body(self.run_result),
            "executor_pod_name": None,
            "files": files,
        }


def overall_status(*results: CommandResult | None) -> tuple[str, str]:
    """Return the server's status and message for these commands, by its own rule."""
    done = [result for result in results if result is not None]
    broken = next((result for result in done if result.status == "Error"), None)
    if broken is not None:
        return "SandboxError", broken.stderr
    if any(result.status != "Finished" or result.return_code != 0 for result in done):
        return "Failed", ""
    return "Success", ""


def _command(found: Any) -> CommandResult | None:
    if not isinstance(found, Mapping):
        return None
    stdout, stderr = (_text(found.get(name)) for name in ("stdout", "stderr"))
    written = len(stdout.encode("utf-8", "replace"))
    status = str(found.get("status"))
    code, took = found.get("return_code"), found.get("execution_time")
    return CommandResult(
        status=status,
        execution_time=float(took) if isinstance(took, int | float) else None,
        return_code=code if isinstance(code, int) else None,
        stdout=stdout,
        stderr=stderr,
        stdout_bytes=written,
        flooded=_flooded(status, written, len(stderr)),
    )


def _flooded(status: str, stdout_bytes: int, stderr_bytes: int) -> bool:
    if status == "TimeLimitExceeded":
        return max(stdout_bytes, stderr_bytes) >= FLOOD_BYTES
    return stdout_bytes == SERVER_CUT_BYTES


def _command_body(result: CommandResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "status": result.status,
        "execution_time": result.execution_time,
        "return_code": result.return_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


def _files(found: Any) -> dict[str, bytes]:
    if not isinstance(found, Mapping):
        return {}
    files = {}
    for path, text in found.items():
        try:
            files[str(path)] = base64.b64decode(text)
        except (TypeError, ValueError, binascii.Error):
            continue
    return files


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
