"""What waiting for results costs the trainer: CPU of the client, and its import.

Run `python bench/client.py [--json] [--rows N] [--job-s S]`. N rows are handed over, a consumer in
a process of its own answers them after S seconds, as a worker does, and the CPU time of this
process is counted from the last enqueue to the last outcome. Beside it, in the same run, the same
number of jobs is waited for by polling their status every 50 ms in one pipeline.
The server is an embedded one unless `--redis URL` names another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import redis

from queue_client import Outcome, Output, RewardClient, Trajectory
from queue_client.jobs import job_key, queue_key
from queue_client.protocol import REPLY_TTL_S, RESULT_TTL_S, producer_of, reply_key
from queue_client.wire import encode_outcome
from worker.ops.embedded import EmbeddedServer

POLL_S = 0.05
IMPORTS = (
    "import time; a = time.perf_counter(); import queue_client; print(time.perf_counter() - a)"
)


def rows(count: int) -> list[Trajectory]:
    """Short texts."""
    return [Trajectory(outputs=[Output(text="42")], uid=str(number)) for number in range(count)]


def consume(url: str, total: int, job_s: float) -> None:
    """Answer `total` rows: a job's rows in one entry, once `job_s` has passed since the last."""
    client = redis.Redis.from_url(url)
    found: list[tuple[str, int]] = []
    while sum(count for _, count in found) < total:
        popped: Any = client.blpop([queue_key("bench")], 5)
        if popped is None:
            return
        job_id = popped[1].decode()
        count: Any = client.hget(job_key(job_id), "rows")
        found.append((job_id, int(count)))
    client.set("bench:ready", 1, ex=60)
    time.sleep(job_s)
    encoded = encode_outcome(Outcome.scored(1.0, {"acc": 1.0}))
    for start in range(0, len(found), 64):
        pipeline = client.pipeline()
        for job_id, count in found[start : start + 64]:
            stream = reply_key(producer_of(job_id) or "")
            pipeline.hset(job_key(job_id), "status", "finished")
            pipeline.expire(job_key(job_id), RESULT_TTL_S)
            pipeline.xadd(stream, {"job": job_id, **{str(n): encoded for n in range(count)}})
            pipeline.expire(stream, REPLY_TTL_S)
        pipeline.execute()


@contextlib.contextmanager
def consumer(url: str, total: int, job_s: float) -> Iterator[None]:
    """A consumer process for the length of a block."""
    command = [sys.executable, __file__, "--consume", url, str(total), str(job_s)]
    with subprocess.Popen(command) as process:
        yield
        process.wait(60)


def await_ready(connection: redis.Redis) -> None:
    """Wait until the consumer has taken every job."""
    while not connection.getdel("bench:ready"):
        time.sleep(0.05)


def by_futures(url: str, total: int, job_s: float, rows_per_job: int) -> dict[str, float]:
    """CPU seconds of submitting and of waiting for futures."""
    with (
        RewardClient(url, queue="bench", rows_per_job=rows_per_job) as client,
        redis.Redis.from_url(url) as connection,
        consumer(url, total, job_s),
    ):
        some = rows(total)
        began = time.process_time()
        futures = client.submit(some)
        await_ready(connection)
        submitted = time.process_time()
        wait(futures)
        done = time.process_time()
        assert all(future.result().reward == 1.0 for future in futures)
    return {"submit_cpu_s": submitted - began, "wait_cpu_s": done - submitted}


def by_asyncio(url: str, total: int, job_s: float, rows_per_job: int) -> dict[str, float]:
    """CPU seconds from the call to the last outcome, submitting included."""
    with (
        RewardClient(url, queue="bench", rows_per_job=rows_per_job) as client,
        consumer(url, total, job_s),
    ):
        some = rows(total)
        began = time.process_time()
        asyncio.run(client.score_async(some))
        done = time.process_time()
    with redis.Redis.from_url(url) as connection:
        connection.delete("bench:ready")
    return {"submit_and_wait_cpu_s": done - began}


def by_polling(url: str, total: int, job_s: float) -> dict[str, float]:
    """CPU seconds of asking for every job's status again and again, one job a row."""
    with (
        RewardClient(url, queue="bench", rows_per_job=1) as client,
        redis.Redis.from_url(url) as connection,
        consumer(url, total, job_s),
    ):
        client.submit(rows(total))
        await_ready(connection)
        ids = [job.id for job in client._tie.get().flight.jobs()]
        began = time.process_time()
        open_ids = set(ids)
        while open_ids:
            time.sleep(POLL_S)
            asked = list(open_ids)
            pipeline = connection.pipeline(transaction=False)
            for job_id in asked:
                pipeline.hget(job_key(job_id), "status")
            for job_id, status in zip(asked, pipeline.execute(), strict=True):
                if status == b"finished":
                    open_ids.discard(job_id)
        spent = time.process_time() - began
    return {"wait_cpu_s": spent}  # the client's own reader included


def import_s(tries: int = 5) -> float:
    """Seconds of `import queue_client` in a fresh interpreter, the best of some."""
    command = [sys.executable, "-c", IMPORTS]
    runs = (
        subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(tries)
    )
    return min(float(run.stdout) for run in runs)


def measure(url: str, total: int, job_s: float) -> list[dict[str, Any]]:
    """All figures, one dict a line."""
    return [
        {"what": "futures, jobs of 32", **by_futures(url, total, job_s, 32)},
        {"what": "futures, jobs of 1", **by_futures(url, total, job_s, 1)},
        {"what": "asyncio, jobs of 32", **by_asyncio(url, total, job_s, 32)},
        {"what": "polling, jobs of 1", **by_polling(url, total, job_s)},
    ]


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--consume"]:
        return consume(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--redis", metavar="URL")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--job-s", type=float, default=2.0)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.redis or stack.enter_context(EmbeddedServer()).url
        report = {
            "rows": options.rows,
            "import_s": import_s(),
            "waiting": measure(url, options.rows, options.job_s),
        }
    if options.json:
        print(json.dumps(report, indent=2))
        return None
    print(f"import queue_client: {report['import_s']:.3f} s")
    print(f"{options.rows} outstanding results, client CPU seconds")
    for row in report["waiting"]:
        figures = "  ".join(f"{name} {value:.3f}" for name, value in row.items() if name != "what")
        print(f"{row['what']:<22}{figures}")
    return None


if __name__ == "__main__":
    main()
