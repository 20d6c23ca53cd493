"""What the buttons do. Requeueing is on unless refused; what destroys is off unless asked for."""

from __future__ import annotations

from typing import Any

from flask import Response, abort, jsonify, request

from queue_client.protocol import valid_job_id
from worker.ops.dashboard.state import state
from worker.ops.rq_state import REGISTRIES


def requeue_job(job_id: str) -> Response:
    """Put one failed job back on its queue."""
    _only_if(state().access.requeue, "requeueing")
    if not valid_job_id(job_id):
        abort(404, "there is no such job")
    from worker.ops.requeue import requeue

    fault = requeue(state().connection, job_id)
    if fault is not None:
        abort(409, fault)
    return jsonify(status="OK")


def requeue_all(queue_name: str) -> Response:
    """Put all failed jobs of one queue back on it."""
    _only_if(state().access.requeue, "requeueing")
    from worker.ops.requeue import requeue_failed

    done, left = requeue_failed(state().connection, queue_name)
    return jsonify(status="OK", count=done, left=left)


def delete_job(job_id: str) -> Response:
    """Remove one job and everything that belongs to it."""
    _only_if(state().access.delete, "deleting")
    if not valid_job_id(job_id):
        abort(404, "there is no such job")
    from worker.ops.requeue import delete

    return jsonify(status="OK" if delete(state().connection, [job_id]) else "ERROR")


def empty_queue(queue_name: str, registry_name: str) -> Response:
    """Remove every job of one registry."""
    _only_if(state().access.delete, "deleting")
    if registry_name not in ("queued", *REGISTRIES):
        abort(404, "registry: there is no such one")
    from worker.ops.requeue import empty

    return jsonify(status="OK", count=empty(state().connection, queue_name, registry_name))


def compact_queue(queue_name: str) -> Response:
    """Take ids off a queue whose jobs are gone."""
    _only_if(state().access.delete, "deleting")
    from worker.ops.requeue import compact

    return jsonify(status="OK", count=compact(state().connection, queue_name))


def _only_if(allowed: bool, what: str) -> None:
    if request.method != "POST":
        abort(405, "changes are POSTs")
    if not allowed:
        abort(403, f"{what} is off on this dashboard")


__all__: list[Any] = [
    "compact_queue", "delete_job", "empty_queue", "requeue_all", "requeue_job",
]  # fmt: skip
