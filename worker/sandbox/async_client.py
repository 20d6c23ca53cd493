"""Sandbox Fusion over httpx: pooled connections, for the worker's event loop."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

import httpx

from worker.sandbox import limits
from worker.sandbox.calls import (
    HEADERS,
    HTTP_SLACK_S,
    Fault,
    Pause,
    Reply,
    RetryPolicy,
    attempts,
    http_timeout_s,
    lease_s,
    run_url,
)
from worker.sandbox.errors import UnsupportedLanguage
from worker.sandbox.program import LANGUAGES, Program, RunReport

logger = logging.getLogger(__name__)


class AsyncSandboxFusion:
    """A server that runs programs; `limit` is the asynchronous face of its limiter.

    Belongs to the event loop it is first used on. `timeout_s` overrides the HTTP timeout, which is
    otherwise the program's own limits plus `slack_s`, what the server may take beside. `wait_s`
    bounds the wait for the limit.
    """

    def __init__(
        self,
        url: str,
        *,
        limit: limits.Limit | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float | None = None,
        wait_s: float | None = None,
        slack_s: float = HTTP_SLACK_S,
        max_connections: int = 256,
    ) -> None:
        self.url = run_url(url)
        self._limit, self._retry = limit, retry or RetryPolicy()
        self._timeout_s, self._wait_s, self._slack_s = timeout_s, wait_s, slack_s
        self._client = httpx.AsyncClient(
            headers=HEADERS,
            trust_env=False,
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=64),
        )

    async def run(
        self,
        program: Program,
        *,
        limit: limits.Limit | None = None,
        waiting: limits.Waiting | None = None,
    ) -> RunReport:
        """Run one program, trying again where that may help; `waiting` is for the local runner.

        Raises UnsupportedLanguage, SandboxRefused, SandboxUnavailable and the limiter's own errors.
        """
        if program.language not in LANGUAGES:
            raise UnsupportedLanguage(program.language, LANGUAGES)
        limit = limit or self._limit
        plan = attempts(self._retry)
        step, lease = next(plan), None
        try:
            while True:
                if isinstance(step, Pause):
                    await limits.throttle(limit, lease, step)
                    logger.info("sandbox call failed, retrying reason=%s", step.reason)
                    await asyncio.sleep(step.seconds)
                    step = plan.send(None)
                    continue
                timeout_s = self._timeout_s or http_timeout_s(program, self._slack_s)
                lasts_s = lease_s(program, timeout_s, self._slack_s)
                lease = await limits.acquire(limit, timeout_s=self._wait_s, lease_s=lasts_s)
                answer = await self._post(program, timeout_s)
                await limits.settle(limit, lease, answer)
                step = plan.send(answer)
        except StopIteration as done:
            report: RunReport = done.value
            return report

    async def _post(self, program: Program, timeout_s: float) -> Reply | Fault:
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0), pool=None)
        try:
            reply = await self._client.post(self.url, json=program.payload(), timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Fault("not_sent", f"cannot connect: {type(error).__name__}")
        except httpx.TimeoutException:
            return Fault("read_timeout", f"no answer within {timeout_s:g} s")
        except httpx.HTTPError as error:
            return Fault("reset", f"connection lost: {type(error).__name__}")
        return Reply(reply.status_code, reply.headers, reply.content)

    async def aclose(self) -> None:
        """Close pooled connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
