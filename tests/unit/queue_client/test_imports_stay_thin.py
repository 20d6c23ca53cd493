"""Importing the client pulls in nothing heavy, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FORBIDDEN = ("torch", "transformers", "tokenizers", "worker", "limiter", "verl", "ray", "pydantic",
             "httpx", "PIL", "numba", "tensordict", "fastapi", "rich")  # fmt: skip


def imported_by(statement: str) -> set[str]:
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "module",
    [
        "queue_client",
        "queue_client.wire",
        "queue_client.view",
        "queue_client.rewards_tensor",
        "queue_client.verl",
        "queue_client.compat",
        "queue_client.trl",
    ],
)
def test_importing_the_client_pulls_nothing_heavy(module):
    assert not imported_by(f"import {module}") & set(FORBIDDEN)


def test_padding_sending_and_reading_a_batch_pulls_nothing_heavy():
    statement = (
        "from queue_client import *; from queue_client.wire import *;"
        "b = TrajectoryBatch.pad([Trajectory([Output([1], [2], text='x')])]);"
        "decode_batch(encode_batch(b)).input_ids; decode_outcome(encode_outcome(Outcome.scored(1)))"
    )
    assert not imported_by(statement) & set(FORBIDDEN)


def test_every_exported_name_is_there():
    import queue_client

    assert sorted(queue_client.__all__) == sorted(set(queue_client.__all__))
    for name in queue_client.__all__:
        assert hasattr(queue_client, name), name
