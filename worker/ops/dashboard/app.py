"""Put the application together: rq-dashboard's blueprint, our reads, our doors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import redis
from flask import Blueprint, Flask, Response, jsonify, redirect, request, url_for
from rq_dashboard.web import blueprint as rq_pages
from rq_dashboard.web import config as rq_config
from werkzeug.exceptions import HTTPException

from queue_client.wire import Serializer
from worker.ops.address import connect
from worker.ops.dashboard import changes, data, limits_page, pages
from worker.ops.dashboard.access import Access, guard
from worker.ops.dashboard.state import KEY, State, state, without_secrets
from worker.ops.limit_state import LimitReader
from worker.pool.safety import remove_pickle

logger = logging.getLogger(__name__)

POLL_MS = 2_500

#: Every endpoint of rq-dashboard, and what answers it here. A new one of theirs is a 404.
VIEWS: dict[str, Callable[..., Any]] = {
    "queues_overview": pages.queues_overview,
    "workers_overview": pages.workers_overview,
    "jobs_overview": pages.jobs_overview,
    "job_view": pages.job_view,
    "list_queues": data.list_queues,
    "list_workers": data.list_workers,
    "list_jobs": data.list_jobs,
    "job_info": data.job_info,
    "delete_job_view": changes.delete_job,
    "requeue_job_view": changes.requeue_job,
    "requeue_all": changes.requeue_all,
    "empty_queue": changes.empty_queue,
    "compact_queue": changes.compact_queue,
}
THEIRS = frozenset({"favicon", "static"})


def create_app(
    redis_url: str,
    *,
    access: Access | None = None,
    url_prefix: str = "",
    poll_ms: int = POLL_MS,
) -> Flask:
    """Return the dashboard as a WSGI application."""
    remove_pickle()
    access = access or Access()
    app = Flask("worker.ops.dashboard", static_folder=None)
    connection = connect(redis_url)
    app.extensions[KEY] = State(
        connection, without_secrets(redis_url), access, LimitReader(connection)
    )
    app.config["RQ_DASHBOARD_POLL_INTERVAL"] = poll_ms
    app.config["RQ_DASHBOARD_DISABLE_DELETE"] = not access.delete
    app.json.sort_keys = False  # type: ignore[attr-defined]
    guard(app, access)
    _mount(app, url_prefix)
    _own_pages(app, url_prefix)
    _faults(app)
    return app


def _mount(app: Flask, url_prefix: str) -> None:
    """Register rq-dashboard, then put our functions behind its addresses."""
    rq_config.serializer = Serializer
    app.register_blueprint(rq_pages, url_prefix=url_prefix or None)
    app.before_request_funcs.pop(rq_pages.name, None)  # connects anew on every request
    app.template_context_processors.pop(rq_pages.name, None)
    for endpoint in list(app.view_functions):
        name = endpoint.removeprefix(f"{rq_pages.name}.")
        if name == endpoint or name in THEIRS:
            continue
        app.view_functions[endpoint] = VIEWS.get(name, _unknown)


def _own_pages(app: Flask, url_prefix: str) -> None:
    ours = Blueprint("rewardpool", __name__, static_folder="static", static_url_path="/own")
    ours.add_url_rule("/0/view/limits", "limits", limits_page.limits_overview)
    app.register_blueprint(ours, url_prefix=url_prefix or None)
    app.add_url_rule("/healthz", "healthz", _health)
    if url_prefix:
        app.add_url_rule("/", "root", lambda: redirect(url_for("rq_dashboard.queues_overview")))


def _health() -> tuple[str, int]:
    """200 while Redis answers; anything else is said by `_faults`."""
    state().connection.ping()
    return "ok\n", 200


def _unknown(**_: Any) -> Response:
    return Response("not part of this dashboard\n", 404)


def _faults(app: Flask) -> None:
    """Say what is wrong in one line; scripts get it as JSON and show it."""

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Any:
        return _said(error.code or 500, error.description or error.name)

    @app.errorhandler(redis.exceptions.ConnectionError)
    @app.errorhandler(redis.exceptions.TimeoutError)
    def gone(error: Exception) -> Any:
        logger.warning("redis unreachable error=%s", type(error).__name__)
        return _said(503, "Redis does not answer")

    @app.errorhandler(redis.exceptions.RedisError)
    def failed(error: redis.exceptions.RedisError) -> Any:
        logger.warning("redis refused error=%s", type(error).__name__)
        return _said(502, f"Redis refused: {type(error).__name__}")


def _said(code: int, message: str) -> Any:
    if request.path.endswith(".json") or request.method == "POST":
        return jsonify(status="ERROR", error=message), code
    return Response(f"{code}: {message}\n", code, mimetype="text/plain")
