"""Both clients against a server: what is tried again, and what holds a place meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from sandbox_server import Answer, SandboxServer, ran

from limiter import Limiter, Limits
from worker.sandbox.async_client import AsyncSandboxFusion
from worker.sandbox.calls import RetryPolicy
from worker.sandbox.errors import SandboxRefused, SandboxUnavailable, UnsupportedLanguage
from worker.sandbox.program import Program, RunReport
from worker.sandbox.sync_client import SandboxFusion

QUICK = RetryPolicy(attempts=4, first_delay_s=0.02, max_delay_s=0.05)
GOOD = ran(stdout="4\n")
Run = Callable[..., RunReport]


def run_sync(url: str, program: Program, **options: Any) -> RunReport:
    with SandboxFusion(url, retry=QUICK, **options) as client:
        return client.run(program)


def run_async(url: str, program: Program, **options: Any) -> RunReport:
    async def main() -> RunReport:
        async with AsyncSandboxFusion(url, retry=QUICK, **options) as client:
            return await client.run(program)

    return asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.fixture(params=[run_sync, run_async], ids=["requests", "httpx"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


@pytest.mark.parametrize(
    "first",
    [
        [Answer(504), Answer(504)],
        [Answer(503)],
        [Answer(500)],
        [Answer(reset=True)],
        [Answer(200, b"<html>")],
        [Answer(200, ran("SandboxError", "Error", None))],
    ],
    ids=["504,504", "503", "500", "reset", "no JSON", "SandboxError"],
)
def test_a_passing_fault_does_not_change_the_result(
    run: Run, stub: SandboxServer, first: list[Answer]
) -> None:
    stub.scripted.extend([*first, Answer(200, GOOD)])
    report = run(stub.url, Program("print(4)"))
    assert report.run_result is not None
    assert report.run_result.stdout == "4\n"
    assert len(stub.seen) == len(first) + 1


def test_a_read_timeout_is_tried_again(run: Run, stub: SandboxServer) -> None:
    stub.scripted.extend([Answer(200, GOOD, sleep_s=3.0), Answer(200, GOOD)])
    stub.answering = lambda body: Answer(200, GOOD)
    assert run(stub.url, Program("print(4)"), timeout_s=1.0).status == "Success"
    assert len(stub.seen) >= 2


def test_a_refused_request_is_sent_once(run: Run, stub: SandboxServer) -> None:
    stub.scripted.extend([Answer(400, {"detail": "no"}), Answer(200, GOOD)])
    with pytest.raises(SandboxRefused):
        run(stub.url, Program("print(4)"))
    assert len(stub.seen) == 1


def test_an_outage_is_an_error(run: Run, stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(503)
    with pytest.raises(SandboxUnavailable):
        run(stub.url, Program("print(4)"))
    assert len(stub.seen) == 4


def test_nobody_there_is_an_error(run: Run) -> None:
    with pytest.raises(SandboxUnavailable, match="4 calls"):
        run("http://127.0.0.1:1/run_code", Program("print(4)"))


def test_an_unknown_language_is_not_sent(run: Run, stub: SandboxServer) -> None:
    with pytest.raises(UnsupportedLanguage, match="cobol"):
        run(stub.url, Program("x", language="cobol"))
    assert not stub.seen


def test_the_request_arrives_in_the_servers_shape(run: Run, stub: SandboxServer) -> None:
    stub.scripted.append(Answer(200, GOOD))
    program = Program("print(4)", stdin="2", compile_timeout_s=10, run_timeout_s=10)
    run(stub.url, program)
    assert stub.seen[0].body == program.payload()


def test_a_429_holds_back_every_process_for_as_long_as_it_says(
    stub: SandboxServer, redis_url: str
) -> None:
    limits = Limits(name="sandbox", max_concurrent=8)
    stub.scripted.append(Answer(429, headers={"Retry-After": "2"}))
    stub.answering = lambda body: Answer(200, GOOD)

    async def main() -> None:
        first, other = Limiter(redis_url, limits), Limiter(redis_url, limits)
        async with (
            AsyncSandboxFusion(stub.url, retry=QUICK, limit=first) as one,
            AsyncSandboxFusion(stub.url, retry=QUICK, limit=other) as two,
        ):
            told = asyncio.create_task(one.run(Program("a")))
            await until(lambda: bool(stub.seen))
            while not (await other.usage()).pause_s > 0:
                await asyncio.sleep(0.01)
            await two.run(Program("b"))
            await told
        await first.close()
        await other.close()

    asyncio.run(main())
    begun = stub.seen[0].at
    assert len(stub.seen) == 3
    assert all(seen.at - begun >= 1.9 for seen in stub.seen[1:])


def test_nothing_is_held_while_waiting_to_try_again(stub: SandboxServer, redis_url: str) -> None:
    stub.answering = lambda body: Answer(503) if body["code"] == "fails" else Answer(200, GOOD)
    slow = RetryPolicy(attempts=2, first_delay_s=60.0, max_delay_s=60.0)

    async def main() -> None:
        limit = Limiter(redis_url, Limits(name="sandbox", max_concurrent=1))
        async with AsyncSandboxFusion(stub.url, retry=slow, limit=limit) as client:
            failing = asyncio.create_task(client.run(Program("fails")))
            await until(lambda: bool(stub.seen))
            for _ in range(5):
                await client.run(Program("works"))
            assert not failing.done()
            assert (await limit.usage()).in_flight == 0
            failing.cancel()
            await asyncio.gather(failing, return_exceptions=True)
        await limit.close()

    asyncio.run(main())


def test_after_a_read_timeout_the_place_stays_taken(stub: SandboxServer, redis_url: str) -> None:
    stub.answering = lambda body: Answer(200, GOOD, sleep_s=1.0)
    once = RetryPolicy(attempts=1)

    async def main() -> int:
        limit = Limiter(redis_url, Limits(name="sandbox", max_concurrent=5))
        async with AsyncSandboxFusion(stub.url, retry=once, limit=limit, timeout_s=0.3) as client:
            with pytest.raises(SandboxUnavailable):
                await client.run(Program("a"))
            taken = (await limit.usage()).in_flight
        await limit.close()
        return taken

    assert asyncio.run(main()) == 1
    while stub.in_flight:
        time.sleep(0.05)


async def test_connections_are_kept(stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(200, GOOD)
    with SandboxFusion(stub.url) as client:
        for _ in range(5):
            client.run(Program("a"))
    assert stub.connections == 1
    async with AsyncSandboxFusion(stub.url) as pooled:
        for _ in range(5):
            await pooled.run(Program("a"))
    assert stub.connections == 2


async def test_slow_calls_do_not_change_verdicts_nor_pass_the_cap(
    stub: SandboxServer, redis_url: str
) -> None:
    """Three in ten calls outlast the client's patience; the server goes on with them."""
    limit = Limiter(redis_url, Limits(name="sandbox", max_concurrent=4))
    slow: set[str] = set()

    def answer(body: dict[str, Any]) -> Answer:
        code = body["code"]
        late = int(code) % 10 < 3 and code not in slow
        slow.add(code)
        return Answer(200, ran(stdout=code), sleep_s=3.0 if late else 0.01)

    stub.answering = answer
    patient = RetryPolicy(attempts=6, first_delay_s=0.05, max_delay_s=0.2)
    async with AsyncSandboxFusion(stub.url, retry=patient, limit=limit, timeout_s=0.5) as client:
        programs = [Program(str(n), compile_timeout_s=0.5, run_timeout_s=0.5) for n in range(10)]
        client.slack_s = 0.6
        reports = await asyncio.gather(*map(client.run, programs))
    await limit.close()
    assert [report.run_result and report.run_result.stdout for report in reports] == [
        str(n) for n in range(10)
    ]
    assert len(stub.seen) >= 13
    assert stub.most_in_flight <= 4
