"""One request to a judge, and what its answer means.

429 is RateLimited with the time the server asks for; a broken connection, a timeout, 408 and 5xx
are an UpstreamError worth another try, other answers one that is not. Messages name the endpoint
and the status, never the prompt, the response or the key.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from worker.rewards.errors import RateLimited, UpstreamError
from worker.rewards.judge.endpoints import Endpoint
from worker.rewards.judge.prompt import text_of

LARGEST_REPLY = 8 * 1024 * 1024  # bytes, decompressed
TRY_AGAIN = frozenset({408, 409, 425})
DEFAULT_RETRY_AFTER_S = 1.0


class EndpointFailed(UpstreamError):
    """The endpoint itself is at fault: leave it out for a while, ask another."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge said, and the tokens it counted (None: it did not say)."""

    text: str
    total_tokens: int | None


async def ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    limit: str | None,
) -> Reply:
    """POST one chat completion. Raises RateLimited, EndpointFailed or UpstreamError."""
    name = endpoint.label
    try:
        async with asyncio.timeout(timeout_s):
            status, reply_headers, content = await _post(client, endpoint, body, headers)
    except TimeoutError:
        raise EndpointFailed(f"judge {name} did not answer within {timeout_s:g} s") from None
    except httpx.HTTPError as error:
        # The text of a protocol error may quote headers, so only its type is told.
        raise EndpointFailed(f"judge {name}: {type(error).__name__}") from None
    if status == 429:
        raise RateLimited(retry_after_s(reply_headers), f"judge {name} answered 429", limit=limit)
    if status != 200:
        raise _refused(name, status, content, headers)
    return _read(name, content)


async def _post(
    client: httpx.AsyncClient, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]
) -> tuple[int, httpx.Headers, bytes]:
    url = f"{endpoint.url}/chat/completions"
    async with client.stream("POST", url, content=body, headers=dict(headers)) as response:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > LARGEST_REPLY:
                raise UpstreamError(
                    f"judge {endpoint.label}: the reply is over {LARGEST_REPLY} bytes",
                    retryable=False,
                )
        return response.status_code, response.headers, bytes(content)


def _refused(name: str, status: int, content: bytes, headers: Mapping[str, str]) -> UpstreamError:
    said = _error_message(content)
    key = headers.get("Authorization", "").removeprefix("Bearer ")
    if key:
        said = said.replace(key, "***")
    message = f"judge {name} answered {status}" + (f": {said}" if said else "")
    if status >= 500:
        return EndpointFailed(message)
    return UpstreamError(message, retryable=status in TRY_AGAIN)


def _error_message(content: bytes) -> str:
    """The server's own short words; never a whole body, which may echo the prompt."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    error = document.get("error", document) if isinstance(document, dict) else None
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error.get("code")
    return " ".join(error.split())[:200] if isinstance(error, str) else ""


def _read(name: str, content: bytes) -> Reply:
    try:
        document = json.loads(content)
        message = document["choices"][0]["message"]
        text = text_of(message.get("content"))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise EndpointFailed(f"judge {name} answered 200 with no chat completion") from None
    usage = document.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    is_count = isinstance(total, int) and not isinstance(total, bool) and total >= 0
    return Reply(text, total if is_count else None)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait after a 429: milliseconds, seconds or an HTTP date; else 1.

    A date is read against the server's own `Date`, so our clock does not matter.

    >>> retry_after_s({"retry-after": "2"})
    2.0
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return max(0.0, seconds)
    until = _date(value)
    if until is None:
        return DEFAULT_RETRY_AFTER_S
    now = _date(headers.get("date"))
    return max(0.0, until - (email.utils.localtime().timestamp() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _date(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the request as UTF-8, not as escapes: its bytes are what tokens are counted by."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
