"""The retrieval protocol: queries out, passages back, and how they read to the model."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests

from queue_client.tools.places import Places

RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
TRIES = 10
NO_RESULTS = "No search results found."
GAVE_UP = "Search request failed or timed out after retries."


@dataclass(slots=True)
class Found:
    """What came of a search; `metadata` is what verl's tool reports."""

    text: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Retriever:
    """Asks one retrieval service; the limit is held for a request and not while backing off.

    After a failed request it waits `first_delay_s`, then twice, three times that, and so on.
    """

    url: str
    topk: int = 3
    timeout_s: float = 30.0
    limit: Places | None = None
    tries: int = TRIES
    first_delay_s: float = 1.0
    _local: threading.local = field(default_factory=threading.local, repr=False)

    def search(self, queries: Sequence[str]) -> Found:
        """Return the text for the model, as JSON, and metadata; a bad service is such a text."""
        metadata: dict[str, Any] = {
            "query_count": len(queries),
            "queries": list(queries),
            "api_request_error": None,
            "api_response": None,
            "status": "unknown_api_state",
            "total_results": 0,
            "formatted_result": None,
        }
        body, problem = self._ask(queries)
        if body is None:
            metadata.update(status="api_error", api_request_error=problem)
            said = GAVE_UP if problem is None else f"Search error: {problem}"
            return _found(said, metadata)
        metadata["api_response"] = body
        try:
            lists = [list(each) for each in body["result"]]
            texts = [passages_text(each) for each in lists]
        except (KeyError, TypeError, AttributeError) as error:
            problem = f"unexpected answer: {type(error).__name__}"
            metadata.update(status="processing_error", api_request_error=problem)
            return _found(f"Search error: {problem}", metadata)
        total = sum(map(len, lists))
        if not total:
            metadata["status"] = "no_results"
            return _found(NO_RESULTS, metadata)
        joined = "\n---\n".join(texts)
        metadata.update(status="success", total_results=total, formatted_result=joined)
        return _found(joined, metadata)

    def _ask(self, queries: Sequence[str]) -> tuple[dict[str, Any] | None, str | None]:
        """Return the service's answer, or what was wrong."""
        problem: str | None = None
        for attempt in range(1, self.tries + 1):
            pause_s = self.first_delay_s * attempt
            try:
                reply, fence = self._post(queries)
            except (requests.ConnectionError, requests.Timeout) as error:
                problem = f"API request failed: {type(error).__name__}"
            except requests.RequestException as error:
                return None, f"API request failed: {type(error).__name__}"
            else:
                if reply.status_code not in RETRIED_STATUS:
                    return _body(reply)
                problem = f"API request failed: HTTP {reply.status_code}"
                if reply.status_code == 429:
                    pause_s = max(pause_s, self._throttle(reply, fence))
            if attempt < self.tries:
                time.sleep(pause_s)
        return None, f"{problem} in {self.tries} tries. {GAVE_UP}"

    def _post(self, queries: Sequence[str]) -> tuple[requests.Response, int]:
        payload = {"queries": list(queries), "topk": self.topk, "return_scores": True}
        if self.limit is None:
            return self._session().post(self.url, json=payload, timeout=self.timeout_s), 0
        lease = self.limit.acquire(timeout_s=None, lease_s=2 * self.timeout_s + 5)
        try:
            return self._session().post(self.url, json=payload, timeout=self.timeout_s), lease.fence
        finally:
            with suppress(Exception):  # lost or unreachable: it runs out by itself
                lease.release()

    def _throttle(self, reply: requests.Response, fence: int) -> float:
        try:
            seconds = min(max(float(reply.headers.get("Retry-After", 1)), 0.0), 300.0)
        except ValueError:
            seconds = 1.0
        if self.limit is not None:
            self.limit.throttle(retry_after_s=seconds, fence=fence)
        return seconds

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.trust_env = False
        return session


def passages_text(passages: Sequence[Any]) -> str:
    """Return one query's passages: numbered, the first line of each as its title."""
    parts = []
    for number, passage in enumerate(passages, start=1):
        title, _, text = passage["document"]["contents"].partition("\n")
        parts.append(f"Doc {number} (Title: {title})\n{text}")
    return "\n\n".join(parts).strip()


def _body(reply: requests.Response) -> tuple[dict[str, Any] | None, str | None]:
    if reply.status_code >= 400:
        return None, f"API request failed: HTTP {reply.status_code}"
    try:
        body = reply.json()
    except ValueError:
        return None, "API answer is not JSON"
    if not isinstance(body, dict):
        return None, "API answer is not a JSON object"
    return body, None


def _found(text: str, metadata: dict[str, Any]) -> Found:
    return Found(json.dumps({"result": text}, ensure_ascii=False), metadata)
