"""Functions that hang, exit, crash, flood or eat memory cost their own row and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from scoring_support import FUNCTIONS, helper_processes, request

from queue_client import Kind
from worker.scoring.helpers import frames
from worker.scoring.helpers.link import Helper, HelperCrash

BAD = {"hang": Kind.TIMEOUT, "exit": Kind.SCORER_ERROR, "segfault": Kind.SCORER_ERROR,
       "memory 2048": Kind.SCORER_ERROR}  # fmt: skip


async def wait_until(holds, timeout_s=15.0):
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.02)


async def test_five_bad_functions_among_256_rows_cost_four_rows(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave", "timeout_s": 2},
        worker={"processes": 2, "memory_mb": 1024},
    )
    texts = ["good"] * 256
    for at, bad in zip((3, 50, 100, 150, 200), [*BAD, "flood"], strict=True):
        texts[at] = bad

    outcomes = await asyncio.gather(*(engine.score(request(text)) for text in texts))

    failed = {text: o.kind for text, o in zip(texts, outcomes, strict=True) if not o.ok}
    assert failed == BAD
    assert sum(outcome.ok for outcome in outcomes) == 252
    assert len(helper_processes()) <= 3, "the nursery and two helpers"
    assert not [p for p in helper_processes() if p.status() == psutil.STATUS_ZOMBIE]
    again = await asyncio.gather(*(engine.score(request("good")) for _ in range(64)))
    assert all(outcome.ok for outcome in again)
    assert max(outcome.run_s for outcome in again) < 5

    await engine.close()
    assert helper_processes() == []


WAYS_TO_FAIL = {
    "exit": "SystemExit: 3",
    "_exit": "exit code 3",
    "segfault": "SIGSEGV",
    "kill": "SIGKILL",
    "memory 2048": "MemoryError",
    "raise 7": "ValueError: cannot parse 7",
    "interrupt": "KeyboardInterrupt",
    "generator": "GeneratorExit",
}


async def test_each_way_to_fail_is_a_scorer_error_that_says_what_happened(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave"}, worker={"processes": 1, "memory_mb": 512}
    )

    for text, says in WAYS_TO_FAIL.items():
        outcome = await engine.score(request(text))
        assert outcome.kind is Kind.SCORER_ERROR, text
        assert says in outcome.message
        assert not outcome.retryable
        assert (await engine.score(request("good"))).ok, text


async def test_what_a_function_leaves_behind_does_not_meet_the_next_row(make_engine):
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})

    for text in ("close", "flood", "replace", "flood", "limits", "alarm"):
        assert (await engine.score(request(text))).ok, text
        assert (await engine.score(request("good"))).ok, text
    slept = await engine.score(request("sleep 1.2"))

    assert slept.ok, "the alarm was set off"


async def test_a_helper_stays_warm(make_engine):
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})

    pids = {(await engine.score(request("good"))).extra["pid"] for _ in range(5)}

    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_a_helper_is_replaced_after_many_rows(make_engine, monkeypatch):
    monkeypatch.setattr("worker.scoring.helpers.pool.MOST_ROWS", 3)
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})

    pids = [(await engine.score(request("good"))).extra["pid"] for _ in range(7)]

    assert [len(set(pids[at : at + 3])) for at in (0, 3)] == [1, 1]
    assert len(set(pids)) == 3


@pytest.mark.parametrize("own_session", ["", "own"])
async def test_a_timeout_kills_what_the_function_had_started(make_engine, own_session):
    engine = await make_engine(
        reward={"function": "misbehave", "timeout_s": 1}, worker={"processes": 1}
    )
    await engine.score(request("good"))

    outcome = await engine.score(request(f"family {own_session}"))

    assert outcome.kind is Kind.TIMEOUT
    assert outcome.run_s < 2
    await wait_until(lambda: not sleepers())


def sleepers():
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.cmdline()[:1] == ["sleep"]:
                found.append(child)
    return found


async def test_the_time_limit_counts_from_the_start_of_the_run(make_engine):
    """Rows that land at once wait for a place; their waiting is no running."""
    engine = await make_engine(
        reward={"function": "misbehave", "timeout_s": 3}, worker={"processes": 2}
    )

    outcomes = await asyncio.gather(*(engine.score(request("sleep 0.05")) for _ in range(160)))

    assert all(outcome.ok for outcome in outcomes)
    assert max(outcome.wait_s for outcome in outcomes) > 3
    assert max(outcome.run_s for outcome in outcomes) < 3


async def test_catastrophic_backtracking_costs_one_row_and_the_loop_stays_alive(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave", "timeout_s": 1}, worker={"processes": 2}
    )
    await engine.score(request("good"))
    pauses, last = [], time.monotonic()
    stuck = asyncio.ensure_future(engine.score(request("regex")))
    while not stuck.done():
        await asyncio.sleep(0.02)
        pauses.append(time.monotonic() - last)
        last = time.monotonic()
        assert (await engine.score(request("good"))).ok

    assert (await stuck).kind is Kind.TIMEOUT
    assert max(pauses) < 10, "the loop beats on"


async def test_a_cancelled_row_ends_its_helper_and_frees_its_place(make_engine):
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})
    first = (await engine.score(request("good"))).extra["pid"]
    row = asyncio.ensure_future(engine.score(request("hang")))
    waiting = asyncio.ensure_future(engine.score(request("good")))
    await asyncio.sleep(0.2)

    row.cancel()
    outcome = await waiting

    assert outcome.ok
    assert outcome.extra["pid"] != first
    with pytest.raises(asyncio.CancelledError):
        await row
    await wait_until(lambda: not psutil.pid_exists(first))


async def test_a_cancelled_row_that_still_waits_disturbs_nobody(make_engine):
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})
    await engine.score(request("good"))
    rows = [asyncio.ensure_future(engine.score(request("sleep 0.1"))) for _ in range(6)]
    await asyncio.sleep(0.02)
    for row in rows[1::2]:
        row.cancel()

    results = await asyncio.gather(*rows, return_exceptions=True)

    assert [isinstance(r, asyncio.CancelledError) for r in results] == [False, True] * 3
    assert all(outcome.ok for outcome in results[::2])


async def test_many_timeouts_leave_no_zombie_and_no_descriptor(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave", "timeout_s": 1}, worker={"processes": 3}
    )
    await asyncio.gather(*(engine.score(request("good")) for _ in range(20)))
    before = psutil.Process().num_fds()

    outcomes = await asyncio.gather(
        *(engine.score(request("hang" if at % 10 == 0 else "good")) for at in range(120))
    )

    assert {outcome.kind for outcome in outcomes[::10]} == {Kind.TIMEOUT}
    assert sum(outcome.ok for outcome in outcomes) == 108
    await wait_until(lambda: psutil.Process().num_fds() <= before + 2)
    await wait_until(lambda: len(helper_processes()) <= 4)
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() == "zombie"]


async def test_a_dead_nursery_is_replaced(make_engine):
    engine = await make_engine(reward={"function": "misbehave"}, worker={"processes": 1})
    await engine.score(request("good"))
    nursery = min(helper_processes(), key=lambda process: process.create_time())

    nursery.kill()
    await wait_until(lambda: not nursery.is_running() or nursery.status() == "zombie")
    await asyncio.sleep(0.1)

    assert (await engine.score(request("good"))).ok


def test_killing_the_worker_outright_leaves_no_helper(tmp_path):
    script = tmp_path / "worker_to_kill.py"
    script.write_text(
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(FUNCTIONS.parent)!r})\n"
        "from scoring_support import request, helper_processes\n"
        "from worker.scoring import ScoringEngine\n"
        "from worker.settings import settings_from\n"
        "async def main():\n"
        f"    function = {f'{FUNCTIONS}:misbehave'!r}\n"
        "    engine = ScoringEngine(settings_from({'reward': {'function': function},\n"
        "                                          'worker': {'processes': 3}}))\n"
        "    await engine.start()\n"
        "    await engine.score(request('good'))\n"
        "    rows = [engine.score(request(t)) for t in ('hang', 'regex', 'family own')]\n"
        "    asyncio.gather(*rows)\n"
        "    await asyncio.sleep(1.5)\n"
        "    print(*(p.pid for p in helper_processes()), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as worker:
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        family = [psutil.Process(pid) for pid in pids]
        grandchildren = [c for p in family for c in p.children(recursive=True)]
        assert len(family) == 4, "the nursery and three helpers"
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    gone, alive = psutil.wait_procs([*family, *grandchildren], timeout=10)
    assert alive == []
    assert len(gone) >= 4


async def test_the_maths_verifier_scores_behind_a_process(make_engine):
    """It sets alarms, which only a main thread may do."""
    pytest.importorskip("math_verify")
    engine = await make_engine(reward={"function": "with_math_verify"}, worker={"processes": 1})

    outcomes = await asyncio.gather(
        *(engine.score(request(text, ground_truth=r"$\frac{1}{3}$"))
          for text in (r"$\boxed{\frac{1}{3}}$", r"$\boxed{\frac{1}{4}}$"))
    )  # fmt: skip

    assert [outcome.reward for outcome in outcomes] == [1.0, 0.0], outcomes


async def test_an_async_function_may_be_told_to_run_in_a_process(make_engine):
    engine = await make_engine(
        reward={"function": "misbehave_async", "executor": "process", "timeout_s": 1}
    )

    good, slow, exits = await asyncio.gather(
        *(engine.score(request(text)) for text in ("other", "sleep 60", "exit"))
    )

    assert good.reward == 0.5
    assert slow.kind is Kind.TIMEOUT
    assert exits.kind is Kind.SCORER_ERROR


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x00\x00\x02\xc1\xc1", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\x07"]
)
async def test_a_helper_that_talks_nonsense_is_cut_off(nonsense):
    helper = Helper(1)
    loop = asyncio.get_running_loop()
    server, client = socket.socketpair()
    server.setblocking(False)
    await loop.connect_accepted_socket(lambda: helper, server)
    reply = helper.ask(frames.pack({"op": "run"}))
    with client:
        client.sendall(nonsense)
        with pytest.raises(HelperCrash):
            await asyncio.wait_for(reply, 5)
    assert not helper.alive


@pytest.mark.parametrize(
    "reply",
    [
        {"reward": float("nan"), "extra": {}, "usage": None},
        {"reward": 1.0, "extra": [1], "usage": None},
        {"reward": "1", "extra": {}, "usage": None},
        {"reward": 1.0, "extra": {"x": float("inf")}, "usage": None},
        {},
    ],
)
async def test_a_helper_that_was_taken_over_sends_no_reward_that_is_none(
    make_engine, monkeypatch, reply
):
    engine = await make_engine(reward={"function": "misbehave"})

    async def answer(*_):
        return reply

    monkeypatch.setattr("worker.scoring.helpers.pool.HelperPool.run", answer)

    assert (await engine.score(request("good"))).kind is Kind.BAD_SCORE
