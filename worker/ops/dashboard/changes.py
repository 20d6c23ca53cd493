"""What the buttons do. Requeueing is on unless refused; what destroys is off unless asked for."""

from __future__ import annotations

from flask import Response, abort, jsonify, request

from queue_client.protocol import valid_job_id
from worker.ops import requeue
from worker.ops.dashboard.state import state
from worker.ops.rq_state import REGISTRIES


def requeue_job(job_id: str) -> Response:
    """Put one failed job back on its queue."""
    _only_if(state().access.requeue, "requeueing")
    if not valid_job_id(job_id):
        abort(404, "there is no such job")
    fault = requeue.requeue(state().connection, job_id)
    if fault is not None:
        abort(409, fault)
    return jsonify(status="OK")


def requeue_all(queue_name: str) -> Response:
    """Put all failed jobs of one queue back on it."""
    _only_if(state().access.requeue, "requeueing")
    done, left = requeue.requeue_failed(state().connection, queue_name)
    return jsonify(status="OK", count=done, left=left)


def delete_job(job_id: str) -> Response:
    """Remove one job and everything that belongs to it."""
    _only_if(state().access.delete, "deleting")
    if not valid_job_id(job_id):
        abort(404, "there is no such job")
    return jsonify(status="OK" if requeue.delete(state().connection, [job_id]) else "ERROR")


def empty_queue(queue_name: str, registry_name: str) -> Response:
    """Remove every job of one registry."""
    _only_if(state().access.delete, "deleting")
    if registry_name not in ("queued", *REGISTRIES):
        abort(404, "registry: there is no such one")
    return jsonify(status="OK", count=requeue.empty(state().connection, queue_name, registry_name))


def compact_queue(queue_name: str) -> Response:
    """Take ids off a queue whose jobs are gone."""
    _only_if(state().access.delete, "deleting")
    return jsonify(status="OK", count=requeue.compact(state().connection, queue_name))


def _only_if(allowed: bool, what: str) -> None:
    if request.method != "POST":
        abort(405, "changes are POSTs")
    if not allowed:
        abort(403, f"{what} is off on this dashboard")
