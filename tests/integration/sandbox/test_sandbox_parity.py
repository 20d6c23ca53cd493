"""The same program gets the same verdict from the server and from this machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandbox_server import Answer, SandboxServer, ran

from worker.rewards.errors import BadInput, SandboxFailure
from worker.sandbox.async_client import AsyncSandboxFusion
from worker.sandbox.code_reward import compute_score
from worker.sandbox.local import LocalRunner
from worker.sandbox.local.recipes import installed
from worker.sandbox.program import Program
from worker.sandbox.verdict import judge

PROGRAMS: dict[str, tuple[Program, Any, str]] = {
    "right": (Program("print(int(input()) * 2)", stdin="2"), "4", "success"),
    "wrong": (Program("print(5)"), "4", "wrong_answer"),
    "nothing expected": (Program("print(5)"), None, "success"),
    "silent as expected": (Program(""), "", "success"),
    "trailing space": (Program("print('1 2 ')"), "1 2", "success"),
    "carriage return": (Program("print('4\\r')"), "4", "success"),
    "rounding": (Program("print(0.1 + 0.2)"), "0.3", "success"),
    "exit code": (Program("print(4); raise SystemExit(3)"), "4", "runtime_error"),
    "exception": (Program("assert False"), "", "runtime_error"),
    "syntax": (Program("print("), "4", "runtime_error"),
    "killed": (Program("import os; os.kill(os.getpid(), 9)"), "4", "runtime_error"),
    "loop": (Program("while True: pass", run_timeout_s=1.0), "4", "timeout"),
    "sleep": (Program("import time; time.sleep(60)", run_timeout_s=1.0), "4", "timeout"),
    "memory": (Program("x = bytearray(4 << 30)"), "4", "runtime_error"),
    "memory limit": (Program("x = b'1' * (500 << 20)", memory_limit_mb=128), "", "runtime_error"),
    "flood": (Program("while True: print('x' * 65536)"), "4", "output_flood"),
    "write outside": (Program("open('/usr/x', 'w')"), "", "runtime_error"),
    "network": (
        Program("import socket; socket.create_connection(('192.0.2.1', 80), 3)"),
        "",
        "runtime_error",
    ),
    "bash": (Program("read x; echo $x", language="bash", stdin="4\n"), "4", "success"),
    "not utf-8": (Program("import sys; sys.stdout.buffer.write(b'\\xff')"), "4", "wrong_answer"),
}
COMPILED = {
    "compiles": (Program("int main(){return 0;}", language="cpp"), "", "success"),
    "does not compile": (Program("int main(){", language="cpp"), "4", "compile_error"),
}


async def test_verdicts_are_equal(runner: LocalRunner, sandbox: SandboxServer) -> None:
    programs = PROGRAMS | (COMPILED if "cpp" in installed() else {})
    work = [program for program, _, _ in programs.values()]
    async with AsyncSandboxFusion(sandbox.url) as client:
        there = await asyncio.gather(*map(client.run, work))
    here = await asyncio.gather(*map(runner.run, work))
    for name, ours, theirs in zip(programs, here, there, strict=True):
        _, expected, status = programs[name]
        assert judge(ours, expected) == judge(theirs, expected), name
        assert judge(ours, expected).status == status, (name, ours)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (ran(stdout="4\n"), (1.0, "success")),
        (ran(stdout="5\n"), (0.0, "wrong_answer")),
        (ran("Failed", "Finished", 1, "4\n"), (0.0, "runtime_error")),
        (ran("Failed", "TimeLimitExceeded", None), (0.0, "timeout")),
        (
            ran("Failed", None, compiled={"status": "Finished", "return_code": 1}),
            (0.0, "compile_error"),
        ),
    ],
    ids=["right", "wrong", "runtime", "time", "compile"],
)
async def test_what_the_server_says_becomes_a_score(
    stub: SandboxServer, backends: None, body: dict[str, Any], outcome: tuple[float, str]
) -> None:
    stub.answering = lambda request: Answer(200, body)
    found = await score(stub, "print(4)", {"inputs": ["1"], "outputs": ["4"]})
    assert (found["score"], found["status"]) == outcome


async def score(server: SandboxServer, code: str, tests: Any, **options: Any) -> dict[str, Any]:
    from worker.settings import SandboxSettings

    options.setdefault("sandbox", SandboxSettings(retries=2))
    response = f"```{options.get('language', 'python')}\n{code}\n```"
    return await compute_score("taco", response, tests, sandbox_fusion_url=server.url, **options)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, ran("SandboxError", "Error", None, message="no space")),
        Answer(503),
        Answer(200, {}),
        Answer(200, ran("Queued")),
        Answer(reset=True),
    ],
    ids=["SandboxError", "503", "empty", "unknown", "reset"],
)
async def test_a_fault_of_the_sandbox_is_never_a_score(
    stub: SandboxServer, backends: None, answer: Answer
) -> None:
    stub.answering = lambda request: answer
    for tests in ({"inputs": ["1"], "outputs": ["4"]}, {"assert_case": ["assert f() == 1"]}):
        with pytest.raises(SandboxFailure) as caught:
            await score(stub, "def f(): return 1", tests)
        assert caught.value.kind.value == "sandbox_error"


async def test_a_refused_request_is_a_failure_without_a_second_try(
    stub: SandboxServer, backends: None
) -> None:
    stub.answering = lambda request: Answer(400, {"detail": "no"})
    with pytest.raises(SandboxFailure) as caught:
        await score(stub, "print(4)", {"inputs": ["1"], "outputs": ["4"]})
    assert not caught.value.retryable
    assert len(stub.seen) == 1


async def test_an_answer_without_evidence_passes_nothing(
    stub: SandboxServer, backends: None
) -> None:
    stub.answering = lambda request: Answer(200, ran(stdout="passed\n"))
    found = await score(stub, "def f(): return 1", {"assert_case": ["assert f() == 1"]})
    assert (found["score"], found["status"]) == (0.0, "no_evidence")


async def test_after_a_compile_error_nothing_more_is_sent(
    stub: SandboxServer, backends: None
) -> None:
    body = ran("Failed", None, compiled={"status": "Finished", "return_code": 1})
    stub.answering = lambda request: Answer(200, body)
    tests = {"inputs": ["1"] * 20, "outputs": ["4"] * 20}
    found = await score(stub, "int main(){", tests, language="cpp")
    assert (found["score"], found["total"], found["status"]) == (0.0, 20, "compile_error")
    assert len(stub.seen) == 1


async def test_cases_come_back_in_order_whatever_is_slow(
    stub: SandboxServer, backends: None
) -> None:
    from worker.sandbox.cases import read_cases
    from worker.sandbox.grading import grade

    stub.answering = lambda request: Answer(
        200, ran(stdout=request["stdin"]), sleep_s=0.3 if request["stdin"] == "1" else 0.0
    )
    tests = {"inputs": [str(n) for n in range(6)], "outputs": ["0", "1", "x", "3", "4", "5"]}
    async with AsyncSandboxFusion(stub.url) as client:
        results = await grade("print(input())", read_cases(tests), client)
    assert [result.result for result in results] == [True, True, False, True, True, True]
    assert [result.index for result in results] == list(range(6))


async def test_a_large_correct_output_passes_here_and_is_flagged_there(
    runner: LocalRunner, sandbox: SandboxServer, backends: None
) -> None:
    cut, hung = "print('x' * 400_000)", "print('x' * 2_000_000)"
    for code in (cut, hung):
        tests = {"inputs": [""], "outputs": ["x" * (400_000 if code == cut else 2_000_000)]}
        here = await compute_score("taco", f"```python\n{code}\n```", tests)
        assert (here["score"], here["output_flood"]) == (1.0, False)
    there = await score(sandbox, hung, {"inputs": [""], "outputs": ["x" * 2_000_000]})
    assert (there["score"], there["status"], there["output_flood"]) == (0.0, "output_flood", True)
    assert there["stdout_bytes"] >= 64 * 1024
    with pytest.raises(SandboxFailure, match="output_cut"):
        await score(sandbox, cut, {"inputs": [""], "outputs": ["x" * 400_000]})


@pytest.mark.parametrize(
    ("code", "expected", "passes"),
    [
        ("print('1 2 ')", "1 2", True),
        ("print('4', end='\\r\\n')", "4", True),
        ("print(0.1 + 0.2)", "0.3", True),
        ("print('4.0')", "4", True),
        ("print(' x')", "x", False),
    ],
)
async def test_backends_agree_on_outputs(
    score: Any, code: str, expected: str, passes: bool
) -> None:
    tests = {"inputs": [""], "outputs": [expected]}
    assert (await score(code, tests))["acc"] is passes
    assert (await score(code, tests, bare=True))["acc"] is passes


async def test_continuous_counts_every_case_and_all_or_nothing_needs_all(score: Any) -> None:
    tests = {"inputs": [str(n) for n in range(12)], "outputs": ["small"] * 10 + ["large"] * 2}
    code = "print('small')"
    found = await score(code, tests)
    assert found["score"] == pytest.approx(10 / 12)
    assert (await score(code, tests, continuous=False))["score"] == 0.0
    assert (await score(code, tests, max_cases=10, continuous=False))["score"] == 1.0


async def test_no_program_in_the_response_is_a_score_of_zero(score: Any) -> None:
    tests = {"inputs": ["1"], "outputs": ["4"]}
    found = await score("```text\nfour\n```", tests)
    assert (found["score"], found["status"], found["total"]) == (0.0, "no_code", 1)


@pytest.mark.parametrize("tests", [None, "null", "{", {}, {"inputs": ["1"], "outputs": []}])
async def test_tests_that_cannot_be_read_judge_nobody(score: Any, tests: Any) -> None:
    with pytest.raises(BadInput, match="ground_truth"):
        await score("print(4)", tests)


async def test_a_cancelled_row_ends_its_programs(runner: LocalRunner, backends: None) -> None:
    import psutil

    before = set(psutil.Process().children(recursive=True))
    tests = {"inputs": ["1"] * 4, "outputs": ["4"] * 4}
    row = asyncio.create_task(compute_score("taco", "```python\nwhile True: pass\n```", tests))
    await asyncio.sleep(0.5)
    row.cancel()
    with pytest.raises(asyncio.CancelledError):
        await row
    assert set(psutil.Process().children(recursive=True)) <= before
