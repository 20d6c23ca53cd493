"""How one call to the server goes: attempts, pauses and what an answer means. No input or output.

Both clients, the blocking and the asynchronous one, drive `attempts`: it yields what to do next and
is told what came of it. The limit is held while a request is on its way and never while pausing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from worker.sandbox.errors import SandboxRefused, SandboxUnavailable
from worker.sandbox.program import Program, RunReport

#: Answers that another try may mend; every other 4xx is a mistake in the request.
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
LONGEST_RETRY_AFTER_S = 300.0
HTTP_SLACK_S = 10.0  # what the server may take beside compiling and running
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` calls; pauses double from `first_delay_s` to `max_delay_s`, with jitter."""

    attempts: int = 5
    first_delay_s: float = 0.5
    max_delay_s: float = 15.0
    jitter: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait after this attempt, the first being 1: between half and all of it."""
        whole = min(self.max_delay_s, self.first_delay_s * 2.0 ** min(attempt - 1, 30))
        return whole * (0.5 + 0.5 * self.jitter.random())


@dataclass(frozen=True, slots=True)
class Send:
    """Post the program now, under the limit."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, holding nothing. `throttle_s` is set when the server said 429: tell the limit."""

    seconds: float
    reason: str
    throttle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """No answer: never sent, cut off, or silent for too long."""

    kind: Literal["not_sent", "reset", "read_timeout"]
    message: str

    @property
    def server_may_be_busy(self) -> bool:
        """Whether the program may still be running over there: its place stays taken."""
        return self.kind == "read_timeout"


Plan = Generator[Send | Pause, Reply | Fault | None, RunReport]


def attempts(policy: RetryPolicy) -> Plan:
    """Yield sends and pauses; return the report. Raises SandboxUnavailable, SandboxRefused.

    A report of SandboxError is tried again like a 5xx; if it stays so, it is returned as it is.
    """
    problem, status, last = "", None, None
    for attempt in range(1, policy.attempts + 1):
        answer = yield Send()
        status, last = None, None
        if isinstance(answer, Reply):
            status = answer.status
            if status == 200:
                last = _report(answer.body)
                if last is not None and last.status != "SandboxError":
                    return last
            elif status not in RETRIED_STATUS:
                raise SandboxRefused(status, _detail(answer.body))
        problem = _problem(answer, last)
        if attempt < policy.attempts:
            yield _pause(policy, attempt, answer, problem)
    if last is not None:
        return last
    raise SandboxUnavailable(
        f"no usable answer in {policy.attempts} calls, the last: {problem}",
        attempts=policy.attempts,
        last_status=status,
    )


def run_url(url: str) -> str:
    """Return the address to post to: an address without a path gets `/run_code`."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"sandbox_fusion_url: an http or https address expected (got {url!r})")
    path = parts.path if parts.path.strip("/") else "/run_code"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def http_timeout_s(program: Program, slack_s: float = HTTP_SLACK_S) -> float:
    """Seconds to wait for an answer: beyond the server's own limits, so that it speaks first."""
    return program.compile_timeout_s + program.run_timeout_s + slack_s


def lease_s(program: Program, timeout_s: float, slack_s: float = HTTP_SLACK_S) -> float:
    """Seconds a place is taken at most: longer than the server may work on the program."""
    return max(http_timeout_s(program, slack_s), timeout_s) + 1.0


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds a `Retry-After` asks for, in either of its forms; None without one."""
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S) if seconds == seconds else None


def _pause(policy: RetryPolicy, attempt: int, answer: Reply | Fault | None, reason: str) -> Pause:
    own = policy.pause_s(attempt)
    if not isinstance(answer, Reply):
        return Pause(own, reason)
    asked = retry_after_s(answer.headers)
    throttle = (1.0 if asked is None else asked) if answer.status == 429 else None
    return Pause(max(own, asked or 0.0), reason, throttle)


def _report(body: bytes) -> RunReport | None:
    try:
        found: Any = json.loads(body)
    except ValueError:
        return None
    return RunReport.from_body(found) if isinstance(found, dict) else None


def _problem(answer: Reply | Fault | None, report: RunReport | None) -> str:
    if isinstance(answer, Fault):
        return answer.message
    if report is not None:
        return f"SandboxError: {report.message[:200]}"
    if answer is None:
        return "no answer"
    return f"HTTP {answer.status}" if answer.status != 200 else "HTTP 200 without a JSON object"


def _detail(body: bytes) -> str:
    return body[:300].decode("utf-8", "replace")
