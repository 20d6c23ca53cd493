"""Sandbox Fusion over requests: for synchronous callers, safe to share between threads."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

import requests
from requests.adapters import HTTPAdapter

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


class SandboxFusion:
    """A server that runs programs; `limit` is the blocking face of its limiter.

    `timeout_s` overrides the HTTP timeout, which is otherwise the program's own limits plus
    `slack_s`, what the server may take beside them. `wait_s` bounds the wait for the limit.
    Connections are pooled, one pool a thread.
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
    ) -> None:
        self.url = run_url(url)
        self._limit, self._retry = limit, retry or RetryPolicy()
        self._timeout_s, self._wait_s, self._slack_s = timeout_s, wait_s, slack_s
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        self._lock = threading.Lock()

    def run(self, program: Program, *, limit: limits.Limit | None = None) -> RunReport:
        """Run one program, trying again where that may help.

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
                    limits.throttle_sync(limit, lease, step)
                    logger.info("sandbox call failed, retrying reason=%s", step.reason)
                    time.sleep(step.seconds)
                    step = plan.send(None)
                    continue
                timeout_s = self._timeout_s or http_timeout_s(program, self._slack_s)
                lasts_s = lease_s(program, timeout_s, self._slack_s)
                lease = limits.acquire_sync(limit, timeout_s=self._wait_s, lease_s=lasts_s)
                answer = self._post(program, timeout_s)
                limits.settle_sync(limit, lease, answer)
                step = plan.send(answer)
        except StopIteration as done:
            report: RunReport = done.value
            return report

    def _post(self, program: Program, timeout_s: float) -> Reply | Fault:
        try:
            reply = self._session().post(
                self.url, json=program.payload(), timeout=(min(timeout_s, 10.0), timeout_s)
            )
        except requests.exceptions.ConnectTimeout:
            return Fault("not_sent", "cannot connect in time")
        except requests.exceptions.Timeout:
            return Fault("read_timeout", f"no answer within {timeout_s:g} s")
        except requests.exceptions.ConnectionError as error:
            text = str(error)
            if "Read timed out" in text:  # while the body was on its way
                return Fault("read_timeout", f"no answer within {timeout_s:g} s")
            refused = "NewConnectionError" in text
            return Fault("not_sent" if refused else "reset", "connection lost or refused")
        except requests.exceptions.RequestException as error:
            return Fault("reset", f"connection lost: {type(error).__name__}")
        return Reply(reply.status_code, reply.headers, reply.content)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.trust_env = False
            session.headers.update(HEADERS)
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_connections=1, pool_maxsize=1))
            self._local.session = session
            with self._lock:
                self._sessions.append(session)
        return session

    def close(self) -> None:
        """Close pooled connections of every thread."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
            self._local = threading.local()
        for session in sessions:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
