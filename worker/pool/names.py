"""Names of RQ 3.0's own keys, as its scripts and ours build them; contract tests compare them."""

from __future__ import annotations

from rq.defaults import RQ_KEY_PREFIX as _PREFIX

RQ_KEY_PREFIX: str = _PREFIX

SUSPENDED = f"{RQ_KEY_PREFIX}:suspended"
WORKERS = f"{RQ_KEY_PREFIX}:workers"


def queue_key(queue: str) -> str:
    """LIST of job ids."""
    return f"{RQ_KEY_PREFIX}:queue:{queue}"


def intermediate_key(queue: str) -> str:
    """LIST of job ids between the queue and their start."""
    return f"{queue_key(queue)}:intermediate"


def wip_key(queue: str) -> str:
    """ZSET `job:execution` -> when it is given up, seconds since 1970."""
    return f"{RQ_KEY_PREFIX}:wip:{queue}"


def registry_key(kind: str, queue: str) -> str:
    """ZSET of job ids: finished, failed, canceled, …"""
    return f"{RQ_KEY_PREFIX}:{kind}:{queue}"


def listeners_key(queue: str) -> str:
    """SET of the keys of workers on a queue."""
    return f"{RQ_KEY_PREFIX}:workers:{queue}"


def job_key(job_id: str) -> str:
    """HASH of one job."""
    return f"{RQ_KEY_PREFIX}:job:{job_id}"


def dependents_key(job_id: str) -> str:
    """SET of jobs that wait for this one."""
    return f"{job_key(job_id)}:dependents"


def results_key(job_id: str) -> str:
    """STREAM of a job's results."""
    return f"{RQ_KEY_PREFIX}:results:{job_id}"


def execution_key(job_id: str, run: str) -> str:
    """HASH of one execution of a job."""
    return f"{RQ_KEY_PREFIX}:execution:{job_id}:{run}"


def executions_key(job_id: str) -> str:
    """ZSET of a job's executions."""
    return f"{RQ_KEY_PREFIX}:executions:{job_id}"


def rq_worker_key(name: str) -> str:
    """HASH of one worker."""
    return f"{RQ_KEY_PREFIX}:worker:{name}"


def holds_key(name: str) -> str:
    """SET of `job:execution` that a worker holds."""
    return f"{rq_worker_key(name)}:executions"
