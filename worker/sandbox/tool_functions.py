"""Tools that the pool runs for a trainer: each a registered function, by name.

A call comes from the queue as a name and plain arguments. What it may ask for is bounded by the
worker's settings, not by the caller's.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from worker.rewards.errors import BadInput, SandboxFailure
from worker.sandbox.backends import backend_at, limit_of, place_of
from worker.sandbox.errors import BadTests, SandboxProblem, UnsupportedLanguage
from worker.sandbox.limits import Limit
from worker.sandbox.program import LANGUAGES, Program
from worker.sandbox.report import tool_fields
from worker.settings import SandboxSettings

ToolFunction = Callable[
    [Mapping[str, Any], SandboxSettings, Mapping[str, Limit] | None], Awaitable[dict[str, Any]]
]


async def run_program(
    arguments: Mapping[str, Any], settings: SandboxSettings, limits: Mapping[str, Limit] | None
) -> dict[str, Any]:
    """Run `code` in `language` with `stdin`, for at most `timeout` seconds each to compile and run.

    Returns the fields of `report.tool_fields`. Raises BadInput, SandboxFailure.
    """
    program = _program(arguments, settings)
    place = place_of(settings)
    limit = limit_of(limits, settings.limit) if place.url else None
    try:
        report = await backend_at(place).run(program, limit=limit)
    except (BadTests, UnsupportedLanguage) as error:
        raise BadInput(str(error)) from error
    except SandboxProblem as error:
        failure = SandboxFailure(str(error))
        failure.retryable = error.retryable
        raise failure from error
    found = tool_fields(report, program.run_timeout_s)
    if "error" in found:
        raise SandboxFailure(str(found["error"]))
    return found


TOOLS: dict[str, ToolFunction] = {"sandbox": run_program}


async def call_tool(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    settings: SandboxSettings,
    limits: Mapping[str, Limit] | None = None,
) -> dict[str, Any]:
    """Call a registered tool. Raises BadInput for an unknown one, and what the tool raises."""
    function = TOOLS.get(tool)
    if function is None:
        near = difflib.get_close_matches(tool, TOOLS, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f"; there are: {', '.join(TOOLS)}"
        raise BadInput(f"tool: {tool!r} is not offered by this pool{hint}")
    return await function(arguments, settings, limits)


def _program(arguments: Mapping[str, Any], settings: SandboxSettings) -> Program:
    code, stdin = arguments.get("code"), arguments.get("stdin")
    if not isinstance(code, str):
        raise BadInput(f"arguments.code: text expected (got {type(code).__name__})")
    if stdin is not None and not isinstance(stdin, str):
        raise BadInput(f"arguments.stdin: text expected (got {type(stdin).__name__})")
    language = arguments.get("language", "python")
    allowed = settings.languages if settings.languages is not None else sorted(LANGUAGES)
    if language not in allowed:
        raise BadInput(f"arguments.language: {language!r} is not one of {', '.join(allowed)}")
    timeout_s = arguments.get("timeout", settings.max_timeout_s)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise BadInput(f"arguments.timeout: seconds above 0 expected (got {timeout_s!r})")
    timeout_s = min(float(timeout_s), settings.max_timeout_s)
    memory_mb = arguments.get("memory_limit_mb", settings.memory_limit_mb)
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < 1:
        raise BadInput(f"arguments.memory_limit_mb: MiB above 0 expected (got {memory_mb!r})")
    return Program(
        code=code,
        language=str(language),
        stdin=stdin,
        compile_timeout_s=timeout_s,
        run_timeout_s=timeout_s,
        memory_limit_mb=min(memory_mb, settings.memory_limit_mb),
    )
