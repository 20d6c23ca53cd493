"""What the pages' scripts fetch: JSON in the shape rq-dashboard's scripts expect."""

from __future__ import annotations

from math import ceil
from typing import Any

from flask import Response, abort, jsonify, url_for

from queue_client.protocol import valid_job_id
from queue_client.wire import Serializer
from worker.ops.dashboard.jobs import job_detail, page_of_jobs
from worker.ops.dashboard.outcomes import outcomes_of
from worker.ops.dashboard.pages import check_list
from worker.ops.dashboard.shown import clipped
from worker.ops.dashboard.state import state
from worker.ops.pool_facts import WorkerFacts, worker_facts
from worker.ops.rq_state import WorkerState, moment, queue_states, worker_states

WINDOW = 10  # page links shown at once


def list_queues(instance_number: int) -> Response:
    """Every queue: counts, and where its lists are."""
    return _reply(queues=[_queue(one) for one in queue_states(state().connection)])


def list_workers(instance_number: int) -> Response:
    """Every worker."""
    workers = worker_states(state().connection)
    facts = worker_facts(state().connection, workers)
    return _reply(workers=[_worker(*pair) for pair in zip(workers, facts, strict=True)])


def list_jobs(
    instance_number: int, queue_name: str, registry_name: str, per_page: str, order: str, page: str
) -> Response:
    """One page of one registry."""
    if not (per_page.isdecimal() and page.isdecimal()):
        abort(404, "page and per page: whole numbers")
    number, width = int(page), int(per_page)
    check_list(queue_name, registry_name, width, order, number)
    found = page_of_jobs(
        state().connection,
        queue_name,
        registry_name,
        offset=(number - 1) * width,
        count=width,
        newest_first=order == "dsc",
    )
    return _reply(
        name=queue_name,
        registry_name=registry_name,
        total=found.total,
        jobs=found.jobs,
        pagination=_pagination(found.total, number, width, queue_name, registry_name, order),
    )


def job_info(instance_number: int, job_id: str) -> Response:
    """One job with its rows' outcomes."""
    found = None
    if valid_job_id(job_id):
        found = job_detail(state().connection, job_id, Serializer.loads)
    if found is None:
        abort(404, "there is no such job (any more)")
    total, rows = outcomes_of(state().connection, job_id)
    return _reply(**found, outcomes=rows, outcomes_total=total)


def _queue(queue: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": clipped(queue.name, 500),
        "count": queue.queued,
        "oldest_wait_s": round(queue.oldest_wait_s),
        "queued_url": _list_url(queue.name, "queued"),
    }
    for registry, count in queue.registries.items():
        entry[f"{registry}_job_registry_count"] = count
        entry[f"{registry}_url"] = _list_url(queue.name, registry)
    return entry


def _worker(worker: WorkerState, facts: WorkerFacts) -> dict[str, Any]:
    birth = moment(worker.facts.get("birth"))
    beat = worker.heartbeat_age_s
    return {
        "name": clipped(worker.name, 500),
        "state": worker.state,
        "said_state": clipped(worker.state, 100),  # the script turns `state` into busy or not
        "queues": list(worker.queues),
        "in_flight": worker.in_flight,
        "rows": facts.rows,
        "places": facts.concurrency,
        "jobs": list(worker.jobs),
        "heartbeat_age_s": None if beat is None else round(beat),
        "birth_date": birth.isoformat() if birth else None,
        "host": worker.facts.get("hostname", ""),
        "pid": worker.facts.get("pid", ""),
        "successful_job_count": worker.facts.get("successful_job_count", "0"),
        "failed_job_count": worker.facts.get("failed_job_count", "0"),
        "version": worker.facts.get("version", ""),
        "python_version": worker.facts.get("python_version", ""),
    }


def _pagination(
    total: int, page: int, width: int, queue: str, registry: str, order: str
) -> dict[str, Any]:
    last = max(1, ceil(total / width))
    first_shown = max(1, min(page - WINDOW // 2, last - WINDOW + 1))
    shown = range(first_shown, min(last, first_shown + WINDOW - 1) + 1)

    def link(number: int) -> dict[str, Any]:
        return {"number": number, "url": _list_url(queue, registry, width, order, number)}

    found: dict[str, Any] = {
        "current_page": page,
        "num_pages": ceil(total / width),
        "pages_in_window": [link(number) for number in shown],
        "first_page": link(1),
        "last_page": link(last),
    }
    if page > 1:
        found["prev_page"] = link(page - 1)
    if page < last:
        found["next_page"] = link(page + 1)
    return found


def _list_url(
    queue: str, registry: str, per_page: int = 8, order: str = "asc", page: int = 1
) -> str:
    return url_for(
        "rq_dashboard.jobs_overview",
        instance_number=0,
        queue_name=queue,
        registry_name=registry,
        per_page=per_page,
        order=order,
        page=page,
    )


def _reply(**values: Any) -> Response:
    response = jsonify(values)
    response.headers["Cache-Control"] = "no-store"
    return response
