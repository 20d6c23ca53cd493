"""SearchTool: the model's queries to a retrieval service."""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import uuid4

from queue_client.tools.execution import ExecutionPool, PoolMode, init_execution_pool
from queue_client.tools.options import Options
from queue_client.tools.places import places
from queue_client.tools.retrieval import TRIES, Retriever
from queue_client.tools.shape import BaseTool, ToolResponse, schema_from, traced

logger = logging.getLogger(__name__)

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches for passages about each query.",
        "parameters": {
            "type": "object",
            "properties": {
                "query_list": {"type": "array", "description": "Queries, complete sentences."}
            },
            "required": ["query_list"],
        },
    },
}
_REPORTED = ("query_count", "status", "total_results", "api_request_error")


class SearchTool(BaseTool):
    """Searches for the model.

    verl's keys: `retrieval_service_url` (required), `num_workers` 120, `rate_limit` 120, `timeout`
    30, `topk` 3, `enable_global_rate_limit` true. Ours: `redis_url` (then the limit is the
    cluster's), `limit_name` search, `max_retries` 10, `initial_retry_delay` 1.
    """

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, schema_from(tool_schema, SCHEMA))
        options = Options(type(self).__name__, config)
        self.num_workers = options.whole("num_workers", 120)
        self.rate_limit = options.whole("rate_limit", 120)
        self.timeout = options.seconds("timeout", 30)
        self.topk = options.whole("topk", 3)
        self.enable_global_rate_limit = options.flag("enable_global_rate_limit", True)
        self.retrieval_service_url = options.text("retrieval_service_url") or ""
        if not self.retrieval_service_url:
            raise ValueError(f"{options.tool}: config.retrieval_service_url: an address expected")
        self.redis_url = options.text("redis_url")
        self.limit_name = options.text("limit_name", "search") or "search"
        self.max_retries = options.whole("max_retries", TRIES)
        self.initial_retry_delay = options.seconds("initial_retry_delay", 1)
        limited = self.enable_global_rate_limit
        self._limit = places(self.limit_name, self.rate_limit, self.redis_url) if limited else None
        # the limit is held around each request, not around the retries of one
        self.execution_pool: ExecutionPool = init_execution_pool(
            self.num_workers, False, self.rate_limit, PoolMode.ThreadMode
        )
        self._instance_dict: dict[str, dict[str, Any]] = {}

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Begin an instance for one trajectory."""
        instance_id = instance_id or str(uuid4())
        self._instance_dict[instance_id] = {}
        return instance_id, ToolResponse()

    @traced
    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Search for every query in `query_list`; the reward is 0.0."""
        queries = parameters.get("query_list")
        if not isinstance(queries, list) or not queries:
            return _error("'query_list' is missing, empty, or not a list in parameters."), 0.0, {}
        try:
            text, metadata = await self.execution_pool.execute(
                self.execute_search,
                instance_id,
                [str(query) for query in queries],
                self.retrieval_service_url,
                self.topk,
                self.timeout,
            )
        except Exception as error:  # noqa: BLE001  (the model is told)
            logger.warning("search failed error=%s", f"{type(error).__name__}: {error}")
            return _error(f"Search failed: {error}"), 0.0, {"error": str(error)}
        return ToolResponse(text=text), 0.0, {key: metadata.get(key) for key in _REPORTED}

    def execute_search(
        self,
        instance_id: str,
        query_list: list[str],
        retrieval_service_url: str,
        topk: int,
        timeout: float,
    ) -> tuple[str, dict[str, Any]]:
        """Return the text for the model and metadata. Runs in a thread; override freely."""
        found = Retriever(
            retrieval_service_url,
            topk=topk,
            timeout_s=timeout,
            limit=self._limit,
            tries=self.max_retries,
            first_delay_s=self.initial_retry_delay,
        ).search(query_list)
        return found.text, found.metadata

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Return 0.0: searching is rewarded by whoever reads the answer."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End an instance; a second time is harmless."""
        self._instance_dict.pop(instance_id, None)

    def close(self) -> None:
        """End threads."""
        self.execution_pool.close()


def _error(message: str) -> ToolResponse:
    return ToolResponse(text=json.dumps({"result": f"Error: {message}"}))
