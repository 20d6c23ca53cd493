"""The pages' frames: rq-dashboard's own, filled by scripts that read `data.py`."""

from __future__ import annotations

from typing import Any

from flask import Response, abort, current_app, make_response, render_template, url_for
from rq import VERSION as RQ_VERSION
from rq_dashboard.version import VERSION as DASHBOARD_VERSION

from queue_client.protocol import DEFAULT_QUEUE, valid_job_id
from worker.ops.dashboard.state import state
from worker.ops.rq_state import JOB_PREFIX, REGISTRIES, queue_names

REGISTRY_NAMES = ("queued", *REGISTRIES)
MAX_PER_PAGE = 200


def context() -> dict[str, Any]:
    """What every template needs; rq-dashboard's script breaks when one of these is missing."""
    return {
        "current_instance": 0,
        "instance_list": [state().shown_url],
        "rq_url_prefix": url_for("rq_dashboard.queues_overview"),
        "rq_dashboard_version": DASHBOARD_VERSION,
        "rq_version": RQ_VERSION,
        "poll_interval": current_app.config["RQ_DASHBOARD_POLL_INTERVAL"],
        "deprecation_options_usage": None,
        "enable_delete": state().access.delete,
        "enable_requeue": state().access.requeue,
    }


def queues_overview(instance_number: int) -> Response:
    """Every queue with the size of its registries."""
    _only(instance_number)
    return _page("rq_dashboard/queues.html", active_tab="queues")


def workers_overview(instance_number: int) -> Response:
    """Every worker, its state and what it has in flight."""
    _only(instance_number)
    return _page("rq_dashboard/workers.html", active_tab="workers")


def jobs_overview(
    instance_number: int,
    queue_name: str | None,
    registry_name: str,
    per_page: int | str,
    order: str,
    page: int | str,
) -> Response:
    """One registry of one queue, page by page."""
    _only(instance_number)
    names = queue_names(state().connection)
    queue = queue_name or (
        DEFAULT_QUEUE if DEFAULT_QUEUE in names else next(iter(names), "rewards")
    )
    check_list(queue, registry_name, int(per_page), order, int(page))
    return _page(
        "rq_dashboard/jobs.html",
        active_tab="jobs",
        queues=[{"name": name} for name in names],
        queue={"name": queue},
        registry_name=registry_name,
        per_page=int(per_page),
        order=order,
        page=int(page),
    )


def job_view(instance_number: int, job_id: str) -> Response:
    """One job: its fields, its result and its rows' outcomes."""
    _only(instance_number)
    if not valid_job_id(job_id) or not state().connection.exists(JOB_PREFIX + job_id):
        abort(404, "there is no such job (any more)")
    return _page("rq_dashboard/job.html", active_tab="jobs", id=job_id)


def check_list(queue: str, registry: str, per_page: int, order: str, page: int) -> None:
    """Refuse, by name, what no link of ours asks for."""
    if registry not in REGISTRY_NAMES:
        abort(404, f"registry: one of {', '.join(REGISTRY_NAMES)}")
    if order not in {"asc", "dsc"}:
        abort(404, "order: asc or dsc")
    if page < 1 or page > 10**9 or not 1 <= per_page <= MAX_PER_PAGE:
        abort(404, f"page: from 1; per page: 1 to {MAX_PER_PAGE}")
    if not queue.isprintable() or "\\" in queue or len(queue) > 500:
        abort(404, "queue: its name cannot be shown")


def _only(instance_number: int) -> None:
    if instance_number != 0:
        abort(404, "this dashboard shows one Redis: instance 0")


def _page(template: str, **values: Any) -> Response:
    response = make_response(render_template(template, **context(), **values))
    response.headers["Cache-Control"] = "no-store"
    return response
