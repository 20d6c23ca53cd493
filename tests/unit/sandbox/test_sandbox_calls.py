"""Attempts, pauses and answers of one call to the server, without a network."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sandbox_server import ran

from worker.sandbox.calls import (
    Fault,
    Pause,
    Reply,
    RetryPolicy,
    Send,
    attempts,
    http_timeout_s,
    lease_s,
    retry_after_s,
    run_url,
)
from worker.sandbox.errors import SandboxRefused, SandboxUnavailable
from worker.sandbox.program import Program

GOOD = Reply(200, {}, json.dumps(ran(stdout="4")).encode())
BROKEN = Reply(200, {}, json.dumps(ran("SandboxError", "Error", None)).encode())


def drive(*answers: Reply | Fault, policy: RetryPolicy | None = None) -> tuple[Any, list[Pause]]:
    plan = attempts(policy or RetryPolicy(attempts=5, first_delay_s=1, max_delay_s=8))
    given, pauses = list(answers), []
    step = next(plan)
    try:
        while True:
            if isinstance(step, Send):
                step = plan.send(given.pop(0))
            else:
                pauses.append(step)
                step = plan.send(None)
    except StopIteration as done:
        return done.value, pauses


def test_a_good_answer_needs_no_second_call() -> None:
    report, pauses = drive(GOOD)
    assert report.run_result.stdout == "4"
    assert not pauses


@pytest.mark.parametrize(
    "fault",
    [
        *(Reply(status, {}, b"") for status in (408, 425, 429, 500, 502, 503, 504)),
        Reply(200, {}, b"not JSON"),
        Reply(200, {}, b"[]"),
        Fault("reset", "reset"),
        Fault("read_timeout", "late"),
        Fault("not_sent", "refused"),
        BROKEN,
    ],
)
def test_what_may_pass_is_tried_again(fault: Reply | Fault) -> None:
    report, pauses = drive(fault, fault, GOOD)
    assert report.status == "Success"
    assert [0.5 <= pauses[0].seconds <= 1, 1 <= pauses[1].seconds <= 2] == [True, True]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refused_request_is_not_sent_again(status: int) -> None:
    with pytest.raises(SandboxRefused) as caught:
        drive(Reply(status, {}, b'{"detail": "no"}'), GOOD)
    assert caught.value.status == status
    assert not caught.value.retryable


def test_an_outage_is_an_error_that_says_so() -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        drive(*[Reply(503, {}, b"")] * 5)
    assert (caught.value.attempts, caught.value.last_status) == (5, 503)
    assert caught.value.retryable


def test_a_lasting_sandbox_error_is_the_report() -> None:
    report, pauses = drive(*[BROKEN] * 5)
    assert report.status == "SandboxError"
    assert len(pauses) == 4


def test_a_429_waits_as_told_and_slows_everybody() -> None:
    _, (pause,) = drive(Reply(429, {"retry-after": "7"}, b""), GOOD)
    assert (pause.seconds, pause.throttle_s) == (7, 7)
    _, (pause,) = drive(Reply(429, {}, b""), GOOD)
    assert pause.throttle_s == 1
    _, (pause,) = drive(Reply(503, {"Retry-After": "7"}, b""), GOOD)
    assert (pause.seconds, pause.throttle_s) == (7, None)


def test_retry_after_is_read_in_both_forms_and_bounded() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after_s({"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}, now) == 9
    assert retry_after_s({"Retry-After": "-3"}) == 0
    assert retry_after_s({"Retry-After": "1e9"}) == 300
    assert retry_after_s({"Retry-After": "nan"}) is None
    assert retry_after_s({"Retry-After": "soon"}) is None
    assert retry_after_s({}) is None


def test_pauses_stop_growing() -> None:
    policy = RetryPolicy(first_delay_s=1, max_delay_s=4)
    assert all(policy.pause_s(attempt) <= 4 for attempt in range(1, 2000, 111))


def test_a_place_outlasts_the_servers_own_limit() -> None:
    program = Program("", compile_timeout_s=5, run_timeout_s=7)
    assert http_timeout_s(program) == 22
    assert lease_s(program, 1.0) > 5 + 7
    assert lease_s(program, 90.0) > 90


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://a:8080/run_code", "http://a:8080/run_code"),
        ("http://a:8080", "http://a:8080/run_code"),
        ("a:8080/", "http://a:8080/run_code"),
        ("https://a/x/run_code?k=1", "https://a/x/run_code?k=1"),
    ],
)
def test_addresses_are_completed(given: str, url: str) -> None:
    assert run_url(given) == url


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="sandbox_fusion_url"):
        run_url("ftp://a")


def test_the_request_has_the_captured_fields() -> None:
    assert Program("print(4)", stdin="2", files={"a": b"b"}).payload() == {
        "compile_timeout": 10.0,
        "run_timeout": 10.0,
        "code": "print(4)",
        "stdin": "2",
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {"a": "Yg=="},
        "fetch_files": [],
    }
