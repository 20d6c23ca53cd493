"""The Limits page."""

from __future__ import annotations

from flask import Response, make_response, render_template

from worker.ops.dashboard.pages import context


def limits_overview() -> Response:
    """Every limit: what it admits, what waits, the last hour, and who changed it last."""
    response = make_response(
        render_template("rewardpool/limits.html", **context(), active_tab="limits", limits=[])
    )
    response.headers["Cache-Control"] = "no-store"
    return response
