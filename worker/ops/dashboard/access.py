"""Who may see and change what: basic auth, own host name, own origin, and what pages may load."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from flask import Flask, Response, abort, g, request

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz"})


@dataclass(frozen=True)
class Access:
    """The dashboard's doors. `hosts` empty admits every Host header (auth guards it then)."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hosts: frozenset[str] = LOOPBACK
    requeue: bool = True
    delete: bool = False


def guard(app: Flask, access: Access) -> None:
    """Check every request, and tell browsers what a page may do."""

    @app.before_request
    def check() -> Response | None:
        g.nonce = secrets.token_urlsafe(16)
        if request.path in OPEN_PATHS:
            return None
        if access.hosts and _host() not in access.hosts:
            abort(421, "unknown host name; name it with --host-name")  # DNS rebinding ends here
        if access.user is not None and not _known(access):
            return Response(
                "Please log in.\n", 401, {"WWW-Authenticate": 'Basic realm="rewardpool"'}
            )
        if request.method not in {"GET", "HEAD"} and not _same_origin():
            abort(403, "a change must come from the dashboard's own pages")
        return None

    @app.after_request
    def seal(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = _policy()
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _policy() -> str:
    """Scripts: our files and those with this response's nonce, so a script in a text never runs.

    rq-dashboard's row templates are compiled in the browser, hence unsafe-eval.
    """
    return (
        "default-src 'none'; "
        f"script-src 'self' 'nonce-{g.get('nonce', '')}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _host() -> str:
    try:
        return (urlsplit(f"//{request.host}").hostname or "").lower()
    except ValueError:
        return ""


def _known(access: Access) -> bool:
    given = request.authorization
    if given is None or given.type != "basic":
        return False
    pairs = ((given.username, access.user), (given.password, access.password))
    same = [
        hmac.compare_digest((mine or "").encode(), (theirs or "").encode())
        for theirs, mine in pairs
    ]
    return all(same)


def _same_origin() -> bool:
    """Browsers say where a change comes from; programs that say nothing hold no one's login."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.host
