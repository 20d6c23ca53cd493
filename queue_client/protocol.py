"""What a producer and the pool agree on in Redis: keys, fields and lifetimes.

Every key carries an expiry. Workers write outcomes; producers read their own reply stream.
"""

from __future__ import annotations

#: The one function a job of ours names; the producer knows the worker only by this text.
SCORE_FUNCTION = "worker.pool.jobs.score_batch"
#: A tool call as a job of its own.
TOOL_FUNCTION = "worker.pool.jobs.call_tool"

PREFIX = "rewardpool"
DEFAULT_QUEUE = "rewards"

PRODUCER_TTL_S = 60  # a producer silent for longer is gone: its queued work is not scored
DEAD_PRODUCER_GRACE_S = 5


def payload_key(job_id: str) -> str:
    """STRING: the encoded batch; written in the same transaction as the enqueue."""
    return f"{PREFIX}:job:{{{job_id}}}:payload"


def outcomes_key(job_id: str) -> str:
    """HASH row -> encoded outcome; the first write of a row wins and is the only one."""
    return f"{PREFIX}:job:{{{job_id}}}:outcomes"


def attempts_key(job_id: str) -> str:
    """HASH row -> starts so far; counted before a row runs, so a row that kills its worker counts."""
    return f"{PREFIX}:job:{{{job_id}}}:attempts"


def cancel_key(job_id: str) -> str:
    """SET of cancelled rows, or "*" for all of them."""
    return f"{PREFIX}:job:{{{job_id}}}:cancelled"


def reply_key(producer_id: str) -> str:
    """STREAM of outcomes for one producer: fields job, row, outcome; or job, failed, message."""
    return f"{PREFIX}:reply:{producer_id}"


def producer_key(producer_id: str) -> str:
    """STRING refreshed while the producer lives."""
    return f"{PREFIX}:producer:{producer_id}"
