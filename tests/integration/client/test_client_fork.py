"""A client made before a fork: parent and child each go on with a link of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from client_consumer import Consumer

SCRIPT = """
    import os, sys
    from queue_client import ClientClosed, Output, RewardClient, Trajectory

    def rows(count):
        return [Trajectory(outputs=[Output(text="x" * row)], uid=str(row)) for row in range(count)]

    client = RewardClient(sys.argv[1])
    assert len(client.score(rows(3), timeout_s=60)) == 3
    held = client.submit(rows(1), queue="nobody")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                held[0].result(30)
            except ClientClosed:
                assert client.in_flight == 0
                found = [outcome.reward for outcome in client.score(rows(40), timeout_s=60)]
                status = 0 if found == [float(row) for row in range(40)] else 2
        finally:
            os._exit(status)
    found = [outcome.reward for outcome in client.score(rows(40), timeout_s=60)]
    assert found == [float(row) for row in range(40)]
    assert not held[0].done()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    client.close()
    print("both went on")
"""


def test_parent_and_child_each_go_on_after_a_fork(redis_url):
    with Consumer(redis_url):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), redis_url],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stdout) == (0, "both went on\n"), done.stderr


def test_an_interpreter_that_ends_takes_its_rows_back(redis_url, connection):
    script = """
        import sys
        from queue_client import Output, RewardClient, Trajectory
        client = RewardClient(sys.argv[1])
        client.submit([Trajectory(outputs=[Output(text="x")])])
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), redis_url], timeout=60, check=True
    )
    assert not list(connection.scan_iter("rewardpool:producer:*"))
