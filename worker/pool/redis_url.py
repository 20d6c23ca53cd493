"""The URL of a connection that was made from options, for parts that take a URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import redis

#: TLS options that redis-py also reads from a URL's query.
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


def url_of(connection: redis.Redis) -> str | None:
    """Return a URL that leads to the same database, or None where none can say it (Sentinel)."""
    pool = connection.connection_pool
    options: dict[str, Any] = pool.connection_kwargs
    if isinstance(pool, redis.sentinel.SentinelConnectionPool):
        return None
    user = quote(str(options.get("username") or ""), safe="")
    password = quote(str(options.get("password") or ""), safe="")
    login = f"{user}:{password}@" if user or password else ""
    database = options.get("db") or 0
    if options.get("path"):
        return f"unix://{login}{options['path']}?{urlencode({'db': database})}"
    tls = issubclass(pool.connection_class, redis.SSLConnection)
    query = {name: options[name] for name in _TLS if tls and options.get(name) is not None}
    host = str(options.get("host") or "localhost")
    host = f"[{host}]" if ":" in host else host
    address = f"{host}:{options.get('port') or 6379}/{database}"
    return f"{'rediss' if tls else 'redis'}://{login}{address}" + (
        f"?{urlencode(query)}" if query else ""
    )
