"""What a producer and the pool agree on in Redis: keys, fields, clocks and lifetimes.

**A job** is one batch on an RQ queue, at most `MAX_ROWS` rows (trajectories). In ONE transaction
the producer writes the payload (`payload_key`, `SET … EX`), the RQ job and its id on the queue, and
the hash field `ROWS_FIELD` of the RQ job. The transaction does nothing when the job's hash exists
already, so sending it again after a lost reply runs the job once. The RQ job has

- `id` = `new_job_id(producer)`: the producer's id, an underscore, then letters and digits. Whoever
  ends a job whose fields cannot be read still knows whom to tell;
- function `SCORE_FUNCTION` (or `TOOL_FUNCTION`), no instance, `args = Reference(…).args()`, no
  kwargs, serialised by `queue_client.wire.Serializer`; no callbacks, webhooks, dependencies, Retry;
- `ttl` = `job_ttl_s(…)`, `result_ttl` = RESULT_TTL_S, `failure_ttl` = FAILURE_TTL_S, `timeout` = -1
  (a row's time is the pool's business), a short `description` without any prompt or response;
- an expiry on its hash of `ttl` + 60 s (RQ sets none on a queued job until it is looked at).

**Clock.** Every time on the wire is whole milliseconds of Redis' own clock (`TIME`). Producers and
workers measure their offset to it and never compare wall clocks with each other.

**Outcomes travel row by row**, gathered for at most 50 ms. One script writes them: it does nothing
when the execution is no longer registered in `rq:wip:{queue}`; the first write of a row into
`outcomes_key` wins; only rows that were written there go to the producer's reply stream.

**A reply-stream entry** (`reply_key`, XADD by workers, XREAD by the producer alone) is either

- rows: `job` = job id, then one field a row: its number in decimal = `encode_outcome(…)`;
- the end of a whole job: `job` = job id, `failed` = a `Kind`, `message` = why. It ends every row of
  that job which has no outcome yet, and it is written in the transaction which ends the job;
- the last entry of a job that ran to its end may carry `done` = "1" beside its rows.

Unknown fields are to be ignored. The stream is trimmed to about `REPLY_MAXLEN` entries and expires
`REPLY_TTL_S` after the last write. A producer that lost entries reads `outcomes_key` (kept for
RESULT_TTL_S after the job ended) and the RQ job's `status` and `exc_info`:
`finished` with no outcome of a row, `failed`, `canceled`, or no hash at all, each mean that nobody
works on the row any more. Its own resolved rows stay resolved: first outcome wins there too.

**Attempts.** `attempts_key` counts the starts of each row, before it starts. A row without an
outcome whose worker died starts again, apart from others in the end; once it has been started
`[worker] max_attempts` times it ends as `worker_lost`. `Outcome.attempts` is that count. A start
which was given back (warm stop, cold stop) is not counted.

**Cancelling.** `SADD cancel_key row…` or `"*"`, with an expiry of CANCEL_TTL_S. Workers look every
second: rows that wait are not scored, rows that run are stopped, both get the outcome `cancelled`.
Whole jobs that are still queued are taken off the queue by `pool_cancel.lua`, which writes the
cancel key itself and says which jobs it took off: those will get no reply, the producer ends them.

**Liveness.** `SET producer_key 1 EX PRODUCER_TTL_S`, at the latest every PRODUCER_BEAT_S, written
before the first enqueue. Rows of a producer whose key is gone are not started and are stopped; they
end as `cancelled`. A job whose id names no producer (no underscore) has no reply stream and no
liveness: its outcomes are in `outcomes_key` only.

**Deadline.** `Reference.deadline_ms`, 0 for none. Rows not started by then, and rows that still run
then, end as `timeout`.

**Terminal failures of a job** (in RQ's failed registry, the result's text begins with the reason):
a field of the hash that cannot be read, a function that is not registered, a foreign serializer, a
missing payload, a payload that cannot be decoded or has another number of rows: `bad_input`;
stopped by `rq`'s stop-job command: `cancelled`.

**A worker process** publishes a HASH at `worker_key(its RQ name)`, refreshed with its heartbeat
and expiring with it: `host`, `pid`, `version`, `queues` (comma separated), `concurrency`,
`in_flight` (rows), `clock_ms` (its wall clock minus Redis' clock), `settings` (a hash of them),
`functions` (JSON object: name -> sha256 of its source, or "error: …"), `limits` (JSON list).

**Counters** of a queue, for metrics, are in the HASH `stats_key(queue)`, field
`{source}|{status}|{what}`: `source` is the data source (at most 64 characters, "-" for none,
"other" past some 200 sources), `status` is "scored" or the kind of a failure, `what` is one of
`rows`, `reward` (sum), `wait_ms`, `run_ms`, `tokens` (response tokens), and for histograms
`wait_le_{bound}`, `run_le_{bound}` (TIME_BOUNDS_S) and `reward_le_{bound}` (REWARD_BOUNDS, rows
with a reward): a row counts under the smallest bound that holds its value, else under "inf"; bounds
as `:g` writes them. They are written with the outcomes they count, each row once; a job that ends
as a whole counts its rows without an outcome as `-|{kind}|rows`.

**A ping** is a row whose `data_source` is PING_SOURCE: it is answered with `Outcome.scored(0.0)` by
the worker itself and no reward function sees it.

**Tool calls** are jobs of one row for `TOOL_FUNCTION`. The payload is `encode_tool_call(…)`, the
outcome is scored with `reward` None and the tool's reply in `extra`, or failed with a kind.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

from queue_client.errors import WireError
from queue_client.wire_tool import decode_tool_call as decode_tool_call
from queue_client.wire_tool import encode_tool_call as encode_tool_call

#: The one function a job of ours names; the producer knows the worker only by this text.
SCORE_FUNCTION: Final = "worker.pool.jobs.score_batch"
#: A tool call as a job of its own.
TOOL_FUNCTION: Final = "worker.pool.jobs.call_tool"

PREFIX: Final = "rewardpool"
DEFAULT_QUEUE: Final = "rewards"
VERSION: Final = 1
MAX_ROWS: Final = 4096
#: Field of the RQ job's hash: how many rows, so that a worker takes no more than it has places for.
ROWS_FIELD: Final = "rows"

#: A row of this data source is answered by the worker itself: for round-trip checks.
PING_SOURCE: Final = "rewardpool/ping"

PRODUCER_TTL_S: Final = 60  # a producer silent for longer is gone: its work is not scored
PRODUCER_BEAT_S: Final = 15
CANCEL_TTL_S: Final = 24 * 3600
REPLY_TTL_S: Final = 3600
REPLY_MAXLEN: Final = 100_000
RESULT_TTL_S: Final = 600  # finished jobs and their outcomes
MAX_OUTCOME_BYTES: Final = 1 << 20  # a longer one is not read; workers say `bad_score` instead
TIME_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
REWARD_BOUNDS: Final = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0)
STATS_TTL_S: Final = 7 * 24 * 3600
FAILURE_TTL_S: Final = 24 * 3600  # dead letters: jobs that could not be read
MAX_JOB_TTL_S: Final = 24 * 3600  # a job without a deadline waits this long for a worker
JOB_TTL_SLACK_S: Final = 600  # kept past the deadline, so that a worker can say `timeout`

_PRODUCER = re.compile(r"[A-Za-z0-9-]{1,64}")
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def payload_key(job_id: str) -> str:
    """STRING: the encoded batch; written in the transaction of the enqueue, gone with the job."""
    return f"{PREFIX}:job:{{{job_id}}}:payload"


def outcomes_key(job_id: str) -> str:
    """HASH row -> encoded outcome; the first write of a row wins and is the only one."""
    return f"{PREFIX}:job:{{{job_id}}}:outcomes"


def attempts_key(job_id: str) -> str:
    """HASH row -> starts so far; counted before a row runs, so one that kills its worker counts."""
    return f"{PREFIX}:job:{{{job_id}}}:attempts"


def cancel_key(job_id: str) -> str:
    """SET of cancelled rows, or "*" for all of them."""
    return f"{PREFIX}:job:{{{job_id}}}:cancelled"


def reply_key(producer_id: str) -> str:
    """STREAM of outcomes for one producer; the entries are described above."""
    return f"{PREFIX}:reply:{producer_id}"


def producer_key(producer_id: str) -> str:
    """STRING refreshed while the producer lives."""
    return f"{PREFIX}:producer:{producer_id}"


def worker_key(name: str) -> str:
    """HASH: what the worker process of that RQ name says about itself."""
    return f"{PREFIX}:worker:{name}"


def stats_key(queue: str) -> str:
    """HASH: counters of rows, rewards, waiting and run times of a queue."""
    return f"{PREFIX}:stats:{queue}"


def new_producer_id() -> str:
    """Return a fresh producer id: letters and digits, no underscore."""
    return secrets.token_hex(10)


def new_job_id(producer_id: str) -> str:
    """Return a fresh job id that names its producer. Raises ValueError for a bad producer id."""
    if not _PRODUCER.fullmatch(producer_id):
        raise ValueError(f"producer id: letters, digits and dashes only (got {producer_id!r})")
    return f"{producer_id}_{secrets.token_hex(8)}"


def producer_of(job_id: str) -> str | None:
    """Return the producer that a job id names, or None for a job of nobody's."""
    head, underscore, _ = job_id.partition("_")
    return head if underscore and _PRODUCER.fullmatch(head) else None


def valid_job_id(job_id: str) -> bool:
    """Whether the text can be a job id at all."""
    return _JOB_ID.fullmatch(job_id) is not None


def job_ttl_s(timeout_s: float | None) -> int:
    """Return how long a job may wait and its payload is kept, seconds."""
    if timeout_s is None:
        return MAX_JOB_TTL_S
    return min(MAX_JOB_TTL_S, int(timeout_s) + 1 + JOB_TTL_SLACK_S)


@dataclass(frozen=True, slots=True)
class Reference:
    """What an RQ job carries instead of its batch; times are ms on Redis' clock.

    `deadline_ms` is 0 for none. `sent_ms` is when the producer enqueued it, 0 if it does not know.
    """

    job_id: str
    rows: int
    deadline_ms: int = 0
    sent_ms: int = 0

    @property
    def producer(self) -> str | None:
        """The producer that waits for the outcomes."""
        return producer_of(self.job_id)

    @property
    def payload(self) -> str:
        """The key of the encoded batch."""
        return payload_key(self.job_id)

    @property
    def reply(self) -> str | None:
        """The producer's reply stream."""
        return None if self.producer is None else reply_key(self.producer)

    def args(self) -> tuple[dict[str, Any]]:
        """Return the RQ job's `args`: one plain map."""
        return (
            {
                "v": VERSION,
                "payload": self.payload,
                "rows": self.rows,
                "reply": self.reply,
                "producer": self.producer,
                "deadline_ms": self.deadline_ms,
                "sent_ms": self.sent_ms,
            },
        )

    @classmethod
    def read(cls, job_id: str, args: Any) -> Reference:
        """Read a job's `args`. Raises WireError naming the field and the value.

        Keys are never taken from the map: they follow from the job's id, and have to agree.
        """
        if not isinstance(args, list | tuple) or len(args) != 1 or not isinstance(args[0], dict):
            raise WireError(f"args: one map expected (got {_short(args)})")
        fields = args[0]
        if fields.get("v") != VERSION:
            raise WireError(f"args.v: version {VERSION} expected (got {_short(fields.get('v'))})")
        found = cls(
            job_id=job_id,
            rows=_whole(fields, "rows", 1, MAX_ROWS),
            deadline_ms=_whole(fields, "deadline_ms", 0, 2**53),
            sent_ms=_whole(fields, "sent_ms", 0, 2**53),
        )
        for name in ("payload", "reply", "producer"):
            if fields.get(name) != getattr(found, name):
                raise WireError(
                    f"args.{name}: does not belong to the job (got {_short(fields.get(name))})"
                )
        return found


def _whole(fields: dict[Any, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise WireError(
            f"args.{name}: a whole number {least}..{most} expected (got {_short(value)})"
        )
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
