"""The RQ job, read with suspicion: nothing in it runs unless it is registered here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rq.job import Job, JobStatus
from rq.utils import as_text, decode_redis_hash, parse_timeout, str_to_date

from queue_client import protocol
from queue_client.errors import WireError
from queue_client.wire import Serializer
from worker.pool.safety import MAX_JOB_DATA, MAX_TEXT, inflate, remove_pickle

remove_pickle()

#: What a job may run, by the name it carries; everything else is refused unseen.
REGISTERED = frozenset({protocol.SCORE_FUNCTION, protocol.TOOL_FUNCTION})

DEFAULT_RESULT_TTL_S = protocol.RESULT_TTL_S


class BadJob(ValueError):
    """A job that cannot be run: says which field and what stood there."""


def _nothing(value: bytes) -> None:
    """Refuse what we never run: callbacks, webhooks."""
    raise ValueError("is never run by this pool")


def _json(value: bytes) -> Any:
    if len(value) > MAX_TEXT:
        raise ValueError("too large")
    return json.loads(value)


def _status(value: bytes) -> JobStatus:
    return JobStatus(as_text(value))


_CHECKS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(
        ("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"), str_to_date
    ),
    **dict.fromkeys(("origin", "worker_name", "description", "group_id", "dependency_id"), as_text),
    **dict.fromkeys(
        ("result_ttl", "failure_ttl", "ttl", "number_of_retries", "retries_left", "repeats_left",
         "enqueue_at_front", "enqueue_at_front_on_retry", "allow_dependency_failures",
         "success_callback_timeout", "failure_callback_timeout", "stopped_callback_timeout",
         "rate_limit_concurrency", protocol.ROWS_FIELD), int),
    **dict.fromkeys(("retry_intervals", "repeat_intervals", "dependency_ids"), _json),
    **dict.fromkeys(("success_callback_name", "failure_callback_name", "stopped_callback_name",
                     "webhooks"), _nothing),
    "rate_limit_key": as_text,
    "timeout": parse_timeout,
    "status": _status,
    "meta": lambda value: Serializer.loads(inflate(value, MAX_TEXT)),
}  # fmt: skip
#: Fields that RQ writes empty when there is nothing to say.
_MAY_BE_EMPTY = frozenset(_CHECKS) - {"status", protocol.ROWS_FIELD}
#: Fields of which this class takes nothing: what stands there is never decoded.
_IGNORED = frozenset({"result"})


class PoolJob(Job):  # type: ignore[misc]
    """An RQ job whose fields may hold anything: reading never raises, `fault` says what is wrong.

    It has no callbacks, no webhooks and no instance; its function is one of `REGISTERED`.
    """

    fault: str | None = None

    def restore(self, raw_data: Mapping[Any, Any]) -> None:
        """Take the fields that can be read; `fault` names the first one that cannot."""
        self.fault = None
        fields = decode_redis_hash({k: v for k, v in raw_data.items() if _is_text(k)})
        data = self._checked_data(fields.pop("data", None))
        error_text = fields.pop("exc_info", None)
        kept = {name: value for name, value in fields.items() if self._is_sound(name, value)}
        super().restore({**kept, "data": b""})
        self.data = data
        self._exc_info = _error_text(error_text)

    def _checked_data(self, data: Any) -> bytes:
        if not isinstance(data, bytes) or not data:
            self._note("data", "is missing")
            return b""
        try:
            return inflate(data, MAX_JOB_DATA)
        except ValueError as error:
            self._note("data", str(error))
            return b""

    def _is_sound(self, name: str, value: Any) -> bool:
        if name in _IGNORED:
            return False
        check = _CHECKS.get(name)
        if check is None or (not value and name in _MAY_BE_EMPTY):
            return False
        try:
            check(value)
        except Exception as error:  # noqa: BLE001 - whatever a reader of RQ's raises at a field
            self._note(name, f"cannot be read: {_said(error)} (got {_short(value)})")
            return False
        return True

    def _note(self, field: str, what: str) -> None:
        self.fault = self.fault or f"{field}: {what}"

    def call(self) -> tuple[str, protocol.Reference]:
        """Return the registered function's name and the reference. Raises BadJob."""
        if self.fault:
            raise BadJob(self.fault)
        try:
            called = self.serializer.loads(self.data)
        except Exception as error:
            raise BadJob(f"data: not written by our serializer ({type(error).__name__})") from error
        if not isinstance(called, list | tuple) or len(called) != 4:
            raise BadJob("data: function, instance, args and kwargs expected")
        function, instance, args, kwargs = called
        if not isinstance(function, str) or function not in REGISTERED:
            raise BadJob(f"function: {_short(function)} is not registered with this pool")
        if instance is not None or kwargs:
            raise BadJob(f"{function}: takes no instance and no keyword arguments")
        try:
            return function, protocol.Reference.read(self.id, args)
        except WireError as error:
            raise BadJob(str(error)) from error

    @property
    def func(self) -> Callable[..., Any]:
        """The registered function; it runs inside a PoolWorker only."""
        from worker.pool import jobs

        return jobs.resolve(self.call()[0])

    @property
    def success_callback(self) -> None:
        """None: callbacks are never run."""

    @property
    def failure_callback(self) -> None:
        """None: callbacks are never run."""

    @property
    def stopped_callback(self) -> None:
        """None: callbacks are never run."""

    def send_webhooks(self, status: Any, *, exc_string: str | None = None) -> None:
        """Send nothing: webhooks are never sent."""


def _is_text(name: Any) -> bool:
    try:
        as_text(name)
    except (ValueError, UnicodeDecodeError):
        return False
    return True


def _error_text(value: Any) -> str | None:
    if not isinstance(value, bytes) or not value:
        return None
    try:
        return inflate(value, MAX_TEXT).decode("utf-8", "replace")
    except ValueError:
        return "(an error text too large to show)"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:120]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
