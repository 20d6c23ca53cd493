"""The judge's reward function: ask, read the verdict, ask once more if it cannot be read.

Every request takes its own lease: it costs the request's bytes / 4 plus `max_tokens`, and is
settled with the usage that the server counts. A judge that fails is a failed row; nothing but a
verdict is a reward.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from worker.rewards.errors import Unparseable
from worker.rewards.inputs import response_text
from worker.rewards.judge import transcript as transcripts
from worker.rewards.judge.endpoints import Endpoint, Endpoints
from worker.rewards.judge.http import EndpointFailed, Reply, ask, encode
from worker.rewards.judge.prompt import ASK_AGAIN, fill, question_of, reference_of, sendable
from worker.rewards.judge.settings import JudgeSettings, settings_of
from worker.rewards.judge.verdict import Verdict, read_verdict

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
BYTES_A_TOKEN = 4

Message = dict[str, str]


async def compute_score(
    data_source: str | None,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    *,
    limits: Mapping[str, Any] | None = None,
    messages: Sequence[Any] | None = None,
    endpoints: str | Sequence[str] | None = None,
    base_url: str | None = None,
    model: str = "",
    template: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    timeout_s: float | None = None,
    longest_chars: int | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    score_key: str | None = None,
    limit: str | None = None,
    api_key_env: str | None = None,
    transcript: str | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return `score`, `judge_reason` and `judge_calls`; `usage` where no lease was taken.

    The settings, from `endpoints` on, are those of JudgeSettings; None is its default. An empty
    response is not sent: it earns `lowest`.

    Raises RateLimited, UpstreamError, or Unparseable after the second unreadable reply.
    """
    chosen = settings_of(
        endpoints=endpoints,
        base_url=base_url,
        model=model,
        template=template,
        max_tokens=max_tokens,
        temperature=temperature,
        timeout_s=timeout_s,
        longest_chars=longest_chars,
        lowest=lowest,
        highest=highest,
        score_key=score_key,
        limit=limit,
        api_key_env=api_key_env,
        transcript=transcript,
        extra_body=extra_body,
    )
    response = response_text(solution_str)
    if not response.strip():
        return {"score": float(chosen.lowest), "judge_reason": "empty response", "judge_calls": 0}
    prompt = fill(
        chosen.template,
        question=question_of(extra_info, messages),
        response=response,
        reference=reference_of(ground_truth),
        longest=chosen.longest_chars,
    )
    judge = await _judge(chosen)
    call = _Call(judge, _limiter(chosen, limits), prompt.nonce)
    verdict = await call.verdict([{"role": "user", "content": sendable(prompt.text)}])
    found: dict[str, Any] = {
        "score": verdict.score,
        "judge_reason": verdict.reason,
        "judge_calls": call.requests,
    }
    if chosen.limit is None and call.tokens is not None:
        found["usage"] = {"total_tokens": call.tokens}
    return found


def check_arguments(**settings: Any) -> None:
    """Refuse settings that no row could be judged with; raises ValueError or TypeError."""
    settings_of(**settings).api_key()


@dataclass(slots=True)
class _Judge:
    """What calls of the same settings on one event loop share."""

    settings: JudgeSettings
    endpoints: Endpoints
    client: httpx.AsyncClient
    headers: dict[str, str] = field(repr=False)
    closer: AsyncGenerator[None, None]


@dataclass(slots=True)
class _Call:
    """One row before one judge."""

    judge: _Judge
    limiter: Any
    nonce: str | None
    requests: int = 0
    tokens: int | None = 0  # None once a reply did not say

    async def verdict(self, messages: list[Message]) -> Verdict:
        """Return the first readable verdict of two replies. Raises Unparseable."""
        chosen = self.judge.settings
        reply = await self.reply(messages)
        try:
            return await self.read(messages, reply)
        except Unparseable:
            again = [
                *messages,
                {"role": "assistant", "content": sendable(reply.text)[: chosen.max_tokens * 8]},
                {"role": "user", "content": ASK_AGAIN},
            ]
        return await self.read(again, await self.reply(again))

    async def read(self, messages: list[Message], reply: Reply) -> Verdict:
        """Read one reply and write the transcript, if there is one."""
        chosen = self.judge.settings
        try:
            verdict = read_verdict(
                reply.text,
                lowest=chosen.lowest,
                highest=chosen.highest,
                key=chosen.score_key,
                nonce=self.nonce,
            )
        except Unparseable as error:
            await self.record(messages, reply, fault=str(error))
            raise
        await self.record(messages, reply, score=verdict.score)
        return verdict

    async def record(self, messages: list[Message], reply: Reply, **facts: Any) -> None:
        """Write the transcript, if there is one; a full disk costs no reward."""
        chosen = self.judge.settings
        if not chosen.transcript:
            return
        record = {
            "model": chosen.model,
            "messages": messages,
            "reply": reply.text,
            "total_tokens": reply.total_tokens,
            **facts,
        }
        try:
            await asyncio.to_thread(transcripts.append, chosen.transcript, record)
        except OSError as error:
            logger.error("judge transcript not written error=%s", error.strerror)

    async def reply(self, messages: list[Message]) -> Reply:
        """Ask one endpoint after another until one answers; each try takes a lease of its own."""
        body = self._body(messages)
        cost = len(body) // BYTES_A_TOKEN + self.judge.settings.max_tokens
        failed: list[Endpoint] = []
        while True:
            async with self._lease(cost) as lease:
                try:
                    reply = await self._ask(body, failed)
                except EndpointFailed:
                    if len(failed) >= len(self.judge.endpoints.all):
                        raise
                    continue
                if lease is not None and reply.total_tokens is not None:
                    await lease.settle(tokens=reply.total_tokens)
            if self.tokens is not None and reply.total_tokens is not None:
                self.tokens += reply.total_tokens
            else:
                self.tokens = None
            return reply

    async def _ask(self, body: bytes, failed: list[Endpoint]) -> Reply:
        judge = self.judge
        with judge.endpoints.use(avoid=failed) as endpoint:
            self.requests += 1
            try:
                reply = await ask(
                    judge.client,
                    endpoint,
                    body,
                    headers=judge.headers,
                    timeout_s=judge.settings.timeout_s,
                    limit=judge.settings.limit,
                )
            except EndpointFailed:
                failed.append(endpoint)
                judge.endpoints.failed(endpoint)
                raise
            judge.endpoints.succeeded(endpoint)
            return reply

    def _body(self, messages: list[Message]) -> bytes:
        chosen = self.judge.settings
        fields = {
            "model": chosen.model,
            "messages": messages,
            "max_tokens": chosen.max_tokens,
            "temperature": chosen.temperature,
            **chosen.extra_body(),
        }
        return encode({name: value for name, value in fields.items() if value is not None})

    @asynccontextmanager
    async def _lease(self, tokens: int) -> AsyncGenerator[Any, None]:
        if self.limiter is None:
            yield None
            return
        async with self.limiter.lease(tokens=tokens) as lease:
            yield lease


def _limiter(chosen: JudgeSettings, limits: Mapping[str, Any] | None) -> Any:
    if chosen.limit is None:
        return None
    if not limits or chosen.limit not in limits:
        known = ", ".join(sorted(limits or ())) or "none"
        raise ValueError(f"limit: there is no limit {chosen.limit!r}; there are: {known}")
    return limits[chosen.limit]


_judges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[JudgeSettings, _Judge]] = (
    weakref.WeakKeyDictionary()
)


async def _judge(chosen: JudgeSettings) -> _Judge:
    """The judge of these settings on this event loop; connections belong to one loop."""
    judges = _judges.setdefault(asyncio.get_running_loop(), {})
    found = judges.get(chosen)
    if found is None:
        found = judges[chosen] = _new_judge(chosen)
        await anext(found.closer)
    return found


def _new_judge(chosen: JudgeSettings) -> _Judge:
    key = chosen.api_key()
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(chosen.timeout_s, connect=CONNECT_TIMEOUT_S, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=128),
    )
    endpoints = Endpoints([Endpoint(url) for url in chosen.endpoints])
    return _Judge(chosen, endpoints, client, headers, _closer(client))


async def _closer(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    # A reward function is told of no end; but an event loop closes its asynchronous generators.
    try:
        yield
    finally:
        _judges.pop(asyncio.get_running_loop(), None)
        await client.aclose()
