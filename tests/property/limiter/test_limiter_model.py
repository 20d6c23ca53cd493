"""The scripts answer as the plain model does, on Valkey and, where there is one, on Redis."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from limiter_histories import History

from worker.ops.embedded import EmbeddedServer

PARTS, HISTORIES, STEPS = 8, 200, 500
ON_REDIS = 10

#: What a careless change would do to the scripts: (in this text, that instead).
DECIDES = "local wait, layers = core.blocked(cost)\n  if first and wait == 0 then"
TAKES = "redis.call('ZADD', key_leases, 'NX', string.format('%d', now + lease_ms), id) == 1"
FAULTS = {
    "charge before check": [(DECIDES, f"core.charge(cost)\n  {DECIDES}")],
    "barging": [("local first = S.waiting == 0", "local first = true")],
    "no replay check": [
        (TAKES, TAKES.replace("'NX', ", "").replace(" == 1", "")),
        ("local answer = replay(id, owner)", "local answer = nil"),
    ],
    "refunds capped at capacity only": [("S.tcap - high)", "S.tcap - min(S.tlevel, S.tcap))")],
}


@pytest.mark.parametrize("part", range(PARTS))
def test_the_scripts_answer_as_the_model_does(redis_url: str, part: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        for seed in range(part, HISTORIES, PARTS):
            History(client, seed).run(STEPS)
        client.flushall()


def test_the_scripts_answer_as_the_model_does_on_redis() -> None:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("no redis-server on the PATH")
    with EmbeddedServer(binary=Path(binary)) as server, redis.Redis.from_url(server.url) as client:
        for seed in range(1000, 1000 + ON_REDIS):
            History(client, seed).run(STEPS)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_test_catches_a_planted_fault(redis_url: str, fault: str) -> None:
    planted: set[str] = set()

    def plant(verb: str, text: str) -> str:
        for sound, faulty in FAULTS[fault]:
            if sound in text:
                planted.add(sound)
                text = text.replace(sound, faulty)
        return text

    with redis.Redis.from_url(redis_url) as client:
        try:
            with pytest.raises(AssertionError, match=r"seed \d+, step \d+"):
                run_all(client, plant)
        finally:
            client.flushall()
    assert planted == {sound for sound, _ in FAULTS[fault]}, "the scripts have changed"


def run_all(client: redis.Redis, alter: Callable[[str, str], str]) -> None:
    for seed in range(40):
        History(client, seed, alter=alter).run(STEPS)
