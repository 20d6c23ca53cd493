"""verl's functions by their old names, against a server."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sandbox_server import Answer, SandboxServer, ran
from sandbox_table import ROWS

from worker.sandbox import compat
from worker.sandbox.calls import RetryPolicy
from worker.sandbox.compat import _process_single_case, call_sandbox_api, check_correctness
from worker.sandbox.sync_client import SandboxFusion

VERLS_KEYS = {
    "case_index", "input", "expected_output", "api_request_error", "api_response", "status",
    "stdout", "stderr", "exit_code", "duration", "compile_duration", "compile_stderr",
    "api_status", "compile_status", "run_status",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick_and_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients of these tests do not wait long and do not outlive them."""
    made: dict[str, SandboxFusion] = {}

    def client(url: str) -> SandboxFusion:
        quick = RetryPolicy(attempts=2, first_delay_s=0.01)
        return made.setdefault(url, SandboxFusion(url, retry=quick))

    monkeypatch.setattr(compat, "_client", client)
    yield
    for each in made.values():
        each.close()


def single(url: str, code: str, stdin: Any, expected: Any, **more: Any) -> Any:
    return _process_single_case(0, stdin, expected, url, code, 5, 1024, "python", **more)


def test_a_case_returns_its_result_and_verls_metadata(sandbox: SandboxServer) -> None:
    result, metadata = single(sandbox.url, "print(int(input()) * 2)", 2, 4)
    assert result is True
    assert set(metadata) >= VERLS_KEYS
    assert (metadata["status"], metadata["stdout"], metadata["exit_code"]) == ("success", "4\n", 0)
    assert (metadata["input"], metadata["expected_output"]) == ("2", "4")
    assert (metadata["api_status"], metadata["run_status"]) == ("Success", "Finished")
    assert sandbox.seen[0].body["stdin"] == "2"
    assert single(sandbox.url, "print(5)", None, "4")[0] is False
    assert single(sandbox.url, "1 / 0", None, "4")[0] == -2


@pytest.mark.parametrize(
    ("answer", "result", "status"),
    [
        (Answer(503), -1, "api_error"),
        (Answer(422, {}), -1, "api_error"),
        (Answer(200, {}), -1, "unknown_api_state"),
        (Answer(200, ran("SandboxError", "Error", None)), -1, "sandbox_error"),
        (Answer(200, ran("Failed", "TimeLimitExceeded", None)), -3, "timeout"),
        (Answer(200, ran("Failed", "Finished", 1)), -2, "runtime_error"),
        (Answer(200, ran("Queued")), -1, "unknown_api_status_Queued"),
    ],
)
def test_faults_have_their_old_numbers(
    stub: SandboxServer, answer: Answer, result: int, status: str
) -> None:
    stub.answering = lambda body: answer
    found, metadata = single(stub.url, "x", None, "4")
    assert (found, metadata["status"]) == (result, status)
    assert set(metadata) >= VERLS_KEYS
    assert (metadata["api_request_error"] is None) is (status != "api_error")


def test_the_whole_table_holds_against_a_server(stub: SandboxServer) -> None:
    for name, body, expected, result, status in ROWS:
        stub.answering = lambda request, body=body: Answer(200, body)
        found, metadata = single(stub.url, "x", None, expected)
        assert (found, type(found)) == (result, type(result)), name
        # the server cannot tell a flood, so verl's word for it stays
        assert metadata["status"] == status.replace("output_flood", "timeout"), name


def test_a_flood_stays_a_timeout_with_a_flag(stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(
        200, ran("Failed", "TimeLimitExceeded", None, "x" * 100_000)
    )
    result, metadata = single(stub.url, "x", None, "4")
    assert (result, metadata["status"], metadata["output_flood"]) == (-3, "timeout", True)
    assert metadata["stdout_bytes"] == 100_000


def test_an_unknown_language_is_not_sent(stub: SandboxServer) -> None:
    found = _process_single_case(0, None, None, stub.url, "x", 5, 1024, "cobol")
    assert (found[0], found[1]["status"]) == (-1, "api_error")
    assert "cobol" in found[1]["api_request_error"]
    assert not stub.seen


def test_a_called_function_that_raises_does_not_pass(sandbox: SandboxServer) -> None:
    raises = "def solve(x): raise ValueError"
    assert single(sandbox.url, raises, "1", "", fn_name="solve")[0] == -2
    assert single(sandbox.url, raises, "1", None, fn_name="solve")[0] == -2
    right = "class Solution:\n    def solve(self, x): return x > 0"
    assert single(sandbox.url, right, "1\n", "True", fn_name="solve")[0] is True


def test_all_cases_come_back_in_order(sandbox: SandboxServer) -> None:
    tests = {"inputs": ["1", "2", "x", "4"], "outputs": ["2", "5", "6", "8"]}
    results, metadata = check_correctness(sandbox.url, tests, "print(int(input()) * 2)")
    assert results == [True, False, -2, True]
    assert [each["case_index"] for each in metadata] == [0, 1, 2, 3]


def test_assert_cases_need_evidence(sandbox: SandboxServer) -> None:
    tests = {
        "inputs": [None] * 3,
        "outputs": [None] * 3,
        "assert_case": ["assert f(1) == 2", "assert f(2) == 4", "assert f(3) == 7"],
    }
    assert check_correctness(sandbox.url, tests, "def f(x): return 2 * x")[0] == [
        True,
        True,
        False,
    ]
    assert check_correctness(sandbox.url, tests, "import os; os._exit(0)")[0] == [-2, -2, -2]


def test_after_a_compile_error_nothing_more_is_sent(stub: SandboxServer) -> None:
    body = ran("Failed", None, compiled={"status": "Finished", "return_code": 1})
    stub.answering = lambda request: Answer(200, body)
    tests = {"inputs": ["1"] * 20, "outputs": ["4"] * 20}
    results, metadata = check_correctness(stub.url, tests, "int main(){", language="cpp")
    assert results == [-4] * 20
    assert [each["status"] for each in metadata] == ["compile_error"] + [
        "compile_error_skipped"
    ] * 19
    assert len(stub.seen) == 1


@pytest.mark.parametrize("tests", [None, {}, {"inputs": ["1"]}])
def test_missing_tests_are_one_fault(tests: Any) -> None:
    assert check_correctness("http://127.0.0.1:1", tests, "x") == (
        [-1],
        [{"error": "Invalid input/output data"}],
    )


def test_empty_and_uneven_tests() -> None:
    assert check_correctness("http://a", {"inputs": [], "outputs": []}, "x") == ([], [])
    results, metadata = check_correctness("http://a", {"inputs": ["1", "2"], "outputs": ["1"]}, "x")
    assert results == [-1, -1]
    assert "2 inputs" in metadata[0]["error"]


def test_a_semaphore_bounds_calls_and_is_free_while_waiting(stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(200, ran(stdout="4"), sleep_s=0.03)
    stub.scripted.extend([Answer(503)] * 3)
    with multiprocessing.get_context("spawn").Manager() as manager:
        semaphore = manager.Semaphore(2)
        with ThreadPoolExecutor(6) as threads:
            work = [
                threads.submit(single, stub.url, "x", None, "4", concurrent_semaphore=semaphore)
                for _ in range(12)
            ]
            assert [each.result()[0] for each in work] == [True] * 12
        assert all(semaphore.acquire(False) for _ in range(2))
    assert stub.most_in_flight <= 2
    multiprocessing.resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def test_the_servers_answer_is_handed_on(stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(200, ran(stdout="4"))
    assert call_sandbox_api(stub.url, "x", None, 5, 5, 1024) == (ran(stdout="4"), None)
    stub.answering = lambda body: Answer(503)
    answer, problem = call_sandbox_api(stub.url, "x", None, 5, 5, 1024)
    assert answer is None
    assert problem is not None
    assert "503" in problem
