"""A reward model behind vLLM's `/classify` or SGLang's `/v1/embeddings`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from worker.rewards.errors import RateLimited, UpstreamError
from worker.scoring.results import number
from worker.scoring.upstream import retry_after_s
from worker.settings import ModelSettings

CONNECT_TIMEOUT_S = 5.0
#: More are an embedding rather than labels, and are not passed on.
MOST_LABELS = 16
_PATHS = {"vllm": "/classify", "sglang": "/v1/embeddings"}


class ServedModel:
    """Asks the server once a row; connections are kept. Time limits are the row's own."""

    def __init__(
        self, settings: ModelSettings, on_close: list[Callable[[], Awaitable[None]]]
    ) -> None:
        import httpx

        url = settings.url or ""
        address = url if "://" in url else f"http://{url}"
        self._dialect, self._model = settings.dialect, settings.path or ""
        self._url = address.rstrip("/") + _PATHS[settings.dialect]
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        on_close.append(self._client.aclose)

    async def judge(self, text: str) -> tuple[float, dict[str, Any]]:
        """Return the last class' raw output.

        Raises RateLimited on a 429, UpstreamError for what a later try may mend or, with
        `retryable` off, for the server's 4xx.
        """
        import httpx

        body: dict[str, Any] = {"model": self._model, "input": text}
        if self._dialect == "vllm":
            body["use_activation"] = False
        try:
            reply = await self._client.post(self._url, json=body)
        except httpx.HTTPError as error:
            raise UpstreamError(f"reward model: {type(error).__name__}: {error}") from error
        if reply.status_code == 429:
            raise RateLimited(retry_after_s(reply.headers.get("retry-after")))
        if reply.status_code >= 400:
            raise UpstreamError(
                f"reward model: HTTP {reply.status_code}", retryable=reply.status_code >= 500
            )
        outputs = self._outputs(reply)
        return outputs[-1], {"outputs": outputs} if len(outputs) > 1 else {}

    def _outputs(self, reply: Any) -> list[float]:
        field = "probs" if self._dialect == "vllm" else "embedding"
        try:
            listed = reply.json()["data"][-1][field]
            outputs = [number(each, field) for each in listed]
        except (ValueError, LookupError, TypeError) as error:
            raise UpstreamError(
                f"reward model: no data[-1].{field} in the reply ({type(error).__name__})"
            ) from None
        if not outputs:
            raise UpstreamError(f"reward model: data[-1].{field} is empty")
        return outputs if len(outputs) <= MOST_LABELS else outputs[-1:]
