"""SandboxFusionTool: the model's programs, on a Sandbox Fusion server or as jobs on the pool.

Direct calls hold the tool's limit for each request and not while they wait to try again. Through
the pool, the worker's settings say where programs run and under which limit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from queue_client.tools.execution import ExecutionPool, PoolMode, init_execution_pool
from queue_client.tools.options import Options
from queue_client.tools.places import places
from queue_client.tools.shape import BaseTool, ToolResponse, schema_from, traced

logger = logging.getLogger(__name__)

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Runs a program and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The program, complete."},
                "timeout": {"type": "number", "description": "Seconds it may run."},
                "language": {"type": "string", "description": "What it is written in."},
            },
            "required": ["code"],
        },
    },
}
_POOL_SLACK_S = 300.0  # a call through the pool may wait so long for a worker and the limit


class SandboxFusionTool(BaseTool):
    """Runs programs that the model writes.

    verl's keys: `num_workers` 10, `rate_limit` 10, `default_timeout` 30, `default_language` python,
    `enable_global_rate_limit` true, `sandbox_fusion_url`, `memory_limit_mb` 1024. Ours: `redis_url`
    (then the limit is the cluster's), `limit_name` sandbox, `max_timeout` (default_timeout),
    `languages` (all the server runs), `retries` 5, `execution` direct or pool, `queue` rewards.
    """

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, schema_from(tool_schema, SCHEMA))
        options = Options(type(self).__name__, config)
        self.num_workers = options.whole("num_workers", 10)
        self.rate_limit = options.whole("rate_limit", 10)
        self.default_timeout = options.seconds("default_timeout", 30)
        self.max_timeout = options.seconds("max_timeout", self.default_timeout)
        self.default_language = options.text("default_language", "python") or "python"
        self.languages = options.names("languages", []) or _all_languages()
        self.enable_global_rate_limit = options.flag("enable_global_rate_limit", True)
        self.sandbox_fusion_url = options.text("sandbox_fusion_url") or ""
        self.memory_limit_mb = options.whole("memory_limit_mb", 1024)
        self.redis_url = options.text("redis_url")
        self.limit_name = options.text("limit_name", "sandbox") or "sandbox"
        self._runs = _runs_of(options, self)
        self._instance_dict: dict[str, dict[str, Any]] = {}
        # an overridden `execute_code` may call anything, so the pool holds the limit for it
        self.execution_pool: ExecutionPool = init_execution_pool(
            num_workers=self.num_workers,
            enable_global_rate_limit=self.enable_global_rate_limit and self._is_overridden(),
            rate_limit=self.rate_limit,
            mode=PoolMode.ThreadMode,
            name=self.limit_name,
            redis_url=self.redis_url,
        )

    def _is_overridden(self) -> bool:
        return type(self).execute_code is not SandboxFusionTool.execute_code

    async def create(
        self, instance_id: str | None = None, ground_truth: Any = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Begin an instance for one trajectory."""
        instance_id = instance_id or str(uuid4())
        self._instance_dict[instance_id] = {"ground_truth": ground_truth, "metrics": {}}
        return instance_id, ToolResponse()

    @traced
    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Run the program in `parameters`; the response says what came of it, reward None."""
        code = parameters.get("code", "")
        code = code if isinstance(code, str) else str(code)
        timeout_s = self.bounded_timeout(parameters.get("timeout"))
        language = str(parameters.get("language") or self.default_language)
        # a subclass may return plain text, as with verl's tool
        result: Any = await self.execution_pool.execute(
            self.execute_code, instance_id, code, timeout_s, language
        )
        metrics = self._instance_dict.get(instance_id, {}).get("metrics", {})
        if isinstance(result, ToolResponse):
            return result, None, dict(metrics)
        return ToolResponse(text=None if result is None else str(result)), None, dict(metrics)

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = "python"
    ) -> ToolResponse:
        """Run a program and return the text for the model. Runs in a thread; override freely."""
        if language not in self.languages:
            known = ", ".join(sorted(self.languages))
            return self._said(instance_id, f"Language {language!r} is not offered. Use: {known}.")
        found = self._runs.run(code, self.bounded_timeout(timeout), language)
        kept = {key: found.get(key) for key in ("status", "run_status", "exit_code", "error")}
        return self._said(instance_id, describe(found), **kept)

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Return 0.0: running programs is rewarded by whoever reads what they print."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End an instance; a second time is harmless."""
        self._instance_dict.pop(instance_id, None)

    def bounded_timeout(self, asked: Any) -> float:
        """Return the seconds a program may run: what was asked, up to `max_timeout`."""
        try:
            seconds = float(asked)
        except (TypeError, ValueError):
            return min(self.default_timeout, self.max_timeout)
        if not seconds > 0:
            return min(self.default_timeout, self.max_timeout)
        return min(seconds, self.max_timeout)

    def close(self) -> None:
        """End threads and connections."""
        self.execution_pool.close()
        self._runs.close()

    def _said(self, instance_id: str, text: str, **metrics: Any) -> ToolResponse:
        if instance_id in self._instance_dict:
            self._instance_dict[instance_id]["metrics"] = metrics
        return ToolResponse(text=text)


def describe(found: Mapping[str, Any]) -> str:
    """Return what the model reads: output first, then how it ended unless it ended well."""
    if found.get("status") == "sandbox_error":
        return "The sandbox failed, the program was not run. Try again."
    stdout, stderr = str(found.get("stdout") or ""), str(found.get("stderr") or "")
    text = stdout if not stderr else f"{stdout}{_line_end(stdout)}{stderr}"
    ending = _ending(found)
    if ending:
        return f"{text}{_line_end(text)}[{ending}]"
    return text if text.strip() else "[The program ended without printing anything.]"


def _ending(found: Mapping[str, Any]) -> str:
    status = found.get("status")
    if status == "timeout":
        return f"Timed out after {found.get('timeout_s'):g} s."
    if status == "output_flood":
        return f"Stopped: it printed too much ({found.get('stdout_bytes')} bytes or more)."
    if status == "compile_error":
        return f"Compiling failed with exit code {found.get('exit_code')}."
    if status == "compile_timeout":
        return "Compiling timed out."
    if status == "runtime_error":
        return f"Failed with exit code {found.get('exit_code')}."
    return ""


def _line_end(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"


class _Direct:
    """Runs programs on the server from here."""

    def __init__(self, tool: SandboxFusionTool, url: str, retries: int) -> None:
        from worker.sandbox.calls import RetryPolicy
        from worker.sandbox.sync_client import SandboxFusion

        limit = None
        if tool.enable_global_rate_limit and not tool._is_overridden():
            limit = places(tool.limit_name, tool.rate_limit, tool.redis_url)
        self._client = SandboxFusion(url, limit=limit, retry=RetryPolicy(attempts=retries))
        self._memory_mb = tool.memory_limit_mb

    def run(self, code: str, timeout_s: float, language: str) -> dict[str, Any]:
        """Return the fields that a tool call through the pool returns, or `status`
        sandbox_error with an `error`."""
        from worker.sandbox.errors import SandboxProblem
        from worker.sandbox.program import Program
        from worker.sandbox.report import tool_fields

        program = Program(
            code=code,
            language=language,
            compile_timeout_s=timeout_s,
            run_timeout_s=timeout_s,
            memory_limit_mb=self._memory_mb,
        )
        try:
            return tool_fields(self._client.run(program), timeout_s)
        except SandboxProblem as error:
            logger.warning("sandbox call failed error=%s", error)
            return {"status": "sandbox_error", "error": str(error)}

    def close(self) -> None:
        self._client.close()


class _ThroughPool:
    """Runs programs as jobs on the pool."""

    def __init__(self, tool: SandboxFusionTool, redis_url: str, queue: str) -> None:
        self._url, self._queue, self._memory_mb = redis_url, queue, tool.memory_limit_mb
        self._lock = threading.Lock()
        self._client: Any = None

    def run(self, code: str, timeout_s: float, language: str) -> dict[str, Any]:
        """Return what the worker's tool function returned."""
        arguments = {
            "code": code,
            "language": language,
            "timeout": timeout_s,
            "memory_limit_mb": self._memory_mb,
        }
        future = self._connected().call_tool(
            "sandbox", arguments, timeout_s=2 * timeout_s + _POOL_SLACK_S, queue=self._queue
        )
        outcome = future.result()
        if outcome.ok:
            return dict(outcome.extra)
        logger.warning("tool call failed kind=%s message=%s", outcome.kind, outcome.message)
        return {"status": "sandbox_error", "error": f"{outcome.kind}: {outcome.message}"}

    def _connected(self) -> Any:
        from queue_client.client import RewardClient

        with self._lock:
            if self._client is None:
                self._client = RewardClient(self._url, queue=self._queue)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _runs_of(options: Options, tool: SandboxFusionTool) -> _Direct | _ThroughPool:
    execution = options.text("execution", "direct")
    if execution == "pool":
        if tool.redis_url is None:
            raise ValueError(f"{options.tool}: config.redis_url: needed for execution: pool")
        return _ThroughPool(tool, tool.redis_url, options.text("queue", "rewards") or "rewards")
    if execution != "direct":
        raise ValueError(
            f"{options.tool}: config.execution: direct or pool expected (got {execution!r})"
        )
    if not tool.sandbox_fusion_url:
        raise ValueError(f"{options.tool}: config.sandbox_fusion_url: an address expected (got '')")
    return _Direct(tool, tool.sandbox_fusion_url, options.whole("retries", 5))


def _all_languages() -> list[str]:
    from worker.sandbox.program import LANGUAGES

    return sorted(LANGUAGES)
