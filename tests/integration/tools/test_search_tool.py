"""SearchTool against a retrieval service on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from queue_client.tools import SearchTool


@pytest.fixture
def tool(retrieval: Any) -> Iterator[SearchTool]:
    made = SearchTool(
        config={
            "retrieval_service_url": retrieval.url,
            "topk": 2,
            "initial_retry_delay": 0.01,
            "rate_limit": 4,
            "timeout": 20,
        }
    )
    yield made
    made.close()


async def searched(tool: SearchTool, *queries: str) -> tuple[str, dict[str, Any]]:
    instance, _ = await tool.create()
    response, reward, metrics = await tool.execute(instance, {"query_list": list(queries)})
    assert reward == 0.0
    await tool.release(instance)
    await tool.release(instance)
    return json.loads(response.text or "")["result"], metrics


async def test_passages_are_numbered_titled_and_joined(tool: SearchTool, retrieval: Any) -> None:
    text, metrics = await searched(tool, "cats", "dogs")
    assert text == (
        "Doc 1 (Title: cats 0)\nAbout cats.\nMore.\n\nDoc 2 (Title: cats 1)\nAbout cats.\nMore."
        "\n---\n"
        "Doc 1 (Title: dogs 0)\nAbout dogs.\nMore.\n\nDoc 2 (Title: dogs 1)\nAbout dogs.\nMore."
    )
    assert metrics == {
        "query_count": 2,
        "status": "success",
        "total_results": 4,
        "api_request_error": None,
    }
    assert retrieval.seen == [{"queries": ["cats", "dogs"], "topk": 2, "return_scores": True}]


@pytest.mark.parametrize("statuses", [[500], [502, 503, 504], [429]])
async def test_a_passing_fault_is_tried_again(
    tool: SearchTool, retrieval: Any, statuses: list[int]
) -> None:
    retrieval.scripted.extend(statuses)
    assert (await searched(tool, "cats"))[1]["status"] == "success"
    assert len(retrieval.seen) == len(statuses) + 1


async def test_after_ten_tries_the_model_is_told(tool: SearchTool, retrieval: Any) -> None:
    retrieval.scripted.extend([503] * 10)
    text, metrics = await searched(tool, "cats")
    assert text.startswith("Search error: API request failed: HTTP 503")
    assert text.endswith("Search request failed or timed out after retries.")
    assert metrics["status"] == "api_error"
    assert len(retrieval.seen) == 10


@pytest.mark.parametrize(
    ("status", "body", "said", "state"),
    [
        (404, {}, "Search error: API request failed: HTTP 404", "api_error"),
        (200, b"<html>", "Search error: API answer is not JSON", "api_error"),
        (200, [], "Search error: API answer is not a JSON object", "api_error"),
        (200, {}, "Search error: unexpected answer: KeyError", "processing_error"),
        (200, {"result": [[{}]]}, "Search error: unexpected answer: KeyError", "processing_error"),
        (200, {"result": [[]]}, "No search results found.", "no_results"),
    ],
)
async def test_a_lasting_fault_is_told_after_one_try(
    tool: SearchTool, retrieval: Any, status: int, body: Any, said: str, state: str
) -> None:
    retrieval.scripted.append(status)
    retrieval.body = body
    text, metrics = await searched(tool, "cats")
    assert (text, metrics["status"]) == (said, state)
    assert len(retrieval.seen) == 1


async def test_nobody_there_is_told(retrieval: Any) -> None:
    config = {"retrieval_service_url": "http://127.0.0.1:1", "max_retries": 2}
    tool = SearchTool(config={**config, "initial_retry_delay": 0.01})
    text, metrics = await searched(tool, "cats")
    assert "ConnectionError in 2 tries" in text
    assert metrics["status"] == "api_error"
    tool.close()


@pytest.mark.parametrize("queries", [None, [], "cats", {}])
async def test_bad_queries_are_an_error_for_the_model(tool: SearchTool, queries: Any) -> None:
    response, reward, metrics = await tool.execute("i", {"query_list": queries})
    assert "'query_list'" in json.loads(response.text or "")["result"]
    assert (reward, metrics) == (0.0, {})


async def test_the_limit_holds_and_is_free_while_backing_off(
    retrieval: Any, redis_url: str
) -> None:
    retrieval.sleep_s = 0.03
    config = {
        "retrieval_service_url": retrieval.url,
        "redis_url": redis_url,
        "rate_limit": 2,
        "initial_retry_delay": 0.05,
    }
    tools = [SearchTool(config=dict(config)) for _ in range(2)]
    retrieval.scripted.extend([503] * 4)
    await asyncio.gather(*(searched(tool, "cats") for tool in tools for _ in range(6)))
    assert len(retrieval.seen) == 16
    assert retrieval.most_in_flight <= 2
    for tool in tools:
        tool.close()


async def test_an_overridden_search_is_used(retrieval: Any) -> None:
    class Own(SearchTool):
        def execute_search(self, *args: Any) -> Any:
            if args[1] == ["fail"]:
                raise RuntimeError("no")
            return json.dumps({"result": "mine"}), {"status": "own"}

    tool = Own(config={"retrieval_service_url": retrieval.url})
    assert (await searched(tool, "x"))[1]["status"] == "own"
    text, metrics = await searched(tool, "fail")
    assert (text, metrics) == ("Error: Search failed: no", {"error": "no"})
    tool.close()
