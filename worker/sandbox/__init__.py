"""Running programs: Sandbox Fusion client, local runner, and what their reports mean."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.sandbox.async_client import AsyncSandboxFusion as AsyncSandboxFusion
    from worker.sandbox.compare import same_output as same_output
    from worker.sandbox.compat import _process_single_case as _process_single_case
    from worker.sandbox.compat import check_correctness as check_correctness
    from worker.sandbox.extract import extract_code as extract_code
    from worker.sandbox.local import LocalRunner as LocalRunner
    from worker.sandbox.program import Program as Program
    from worker.sandbox.program import RunReport as RunReport
    from worker.sandbox.sync_client import SandboxFusion as SandboxFusion
    from worker.sandbox.verdict import judge as judge

_HOMES = {
    "AsyncSandboxFusion": "async_client",
    "LocalRunner": "local",
    "Program": "program",
    "RunReport": "program",
    "SandboxFusion": "sync_client",
    "_process_single_case": "compat",
    "check_correctness": "compat",
    "extract_code": "extract",
    "judge": "verdict",
    "same_output": "compare",
}

__all__ = [
    "AsyncSandboxFusion",
    "LocalRunner",
    "Program",
    "RunReport",
    "SandboxFusion",
    "check_correctness",
    "extract_code",
    "judge",
    "same_output",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
