"""SandboxFusionTool against a server that really runs programs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_server import Answer, SandboxServer, ran

from queue_client.tools import SandboxFusionTool, ToolResponse

Config = dict[str, Any]


@pytest.fixture
def config(sandbox: SandboxServer) -> Config:
    return {"sandbox_fusion_url": sandbox.url, "enable_global_rate_limit": False}


@pytest.fixture
def tool(config: Config) -> Iterator[SandboxFusionTool]:
    made = SandboxFusionTool(config=config)
    yield made
    made.close()


async def used(tool: SandboxFusionTool, **parameters: Any) -> tuple[str, dict[str, Any]]:
    """Create, execute, release, release; return the text and the metrics."""
    instance, created = await tool.create(create_kwargs={})
    assert created.is_empty()
    response, reward, metrics = await tool.execute(instance, parameters, agent_data=None)
    assert isinstance(response, ToolResponse)
    assert reward is None
    assert await tool.calc_reward(instance) == 0.0
    await tool.release(instance)
    await tool.release(instance)
    return response.text or "", metrics


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        ("print('ok')", "ok\n", "success"),
        ("", "[The program ended without printing anything.]", "success"),
        ("import sys; print('a', end=''); print('b', file=sys.stderr)", "a\nb\n", "success"),
        ("print('out', end=''); raise SystemExit(3)", "out\n[Failed with exit code 3.]", None),
        ("import sys; sys.exit('bad')", "bad\n[Failed with exit code 1.]", "runtime_error"),
    ],
)
async def test_the_model_reads_what_came_of_it(
    tool: SandboxFusionTool, code: str, text: str, status: str | None
) -> None:
    found, metrics = await used(tool, code=code)
    assert found == text
    assert metrics["status"] == status or status is None


async def test_a_time_out_is_told_from_silence_and_keeps_the_output(
    tool: SandboxFusionTool,
) -> None:
    code = "print('x', flush=True)\nwhile True: pass"
    text, metrics = await used(tool, code=code, timeout=1)
    assert text == "x\n[Timed out after 1 s.]"
    assert metrics["status"] == "timeout"


async def test_a_traceback_stands_on_a_line_of_its_own(tool: SandboxFusionTool) -> None:
    text, _ = await used(tool, code="print('out', end='')\nraise ValueError('no')")
    lines = text.split("\n")
    assert lines[:2] == ["out", "Traceback (most recent call last):"]
    assert lines[-2:] == ["ValueError: no", "[Failed with exit code 1.]"]


async def test_the_models_wishes_are_bounded(config: Config, sandbox: SandboxServer) -> None:
    bounds = {"default_timeout": 2, "max_timeout": 5, "languages": ["python", "bash"]}
    tool = SandboxFusionTool(config={**config, **bounds})
    for asked, given in [(3, 3), (3600, 5), (None, 2), (-1, 2), ("x", 2), (float("nan"), 2)]:
        await used(tool, code="print(1)", timeout=asked)
        assert sandbox.seen[-1].body["run_timeout"] == given, asked
    calls = len(sandbox.seen)
    text, _ = await used(tool, code="x", language="cobol")
    assert text == "Language 'cobol' is not offered. Use: bash, python."
    assert len(sandbox.seen) == calls
    assert (await used(tool, code="echo 1", language="bash"))[0] == "1\n"
    tool.close()


async def test_code_that_is_no_text_is_made_one(tool: SandboxFusionTool) -> None:
    assert (await used(tool, code=42))[0] == "[The program ended without printing anything.]"
    assert "[The program" in (await used(tool))[0]


async def test_an_outage_is_said_to_be_one(stub: SandboxServer) -> None:
    stub.answering = lambda body: Answer(503)
    tool = SandboxFusionTool(
        config={"sandbox_fusion_url": stub.url, "enable_global_rate_limit": False, "retries": 2}
    )
    text, metrics = await used(tool, code="print(1)")
    assert text == "The sandbox failed, the program was not run. Try again."
    assert metrics["status"] == "sandbox_error"
    assert "503" in metrics["error"]
    tool.close()


async def test_a_flood_is_named(stub: SandboxServer) -> None:
    body = ran("Failed", "TimeLimitExceeded", None, "x" * 100_000)
    stub.answering = lambda request: Answer(200, body)
    tool = SandboxFusionTool(config={"sandbox_fusion_url": stub.url})
    text, metrics = await used(tool, code="print('x' * 10**9)")
    assert text.endswith("[Stopped: it printed too much (100000 bytes or more).]")
    assert metrics["status"] == "output_flood"
    tool.close()


@pytest.mark.parametrize("in_redis", [False, True], ids=["here", "redis"])
async def test_the_limit_holds_at_the_server(
    stub: SandboxServer, redis_url: str, in_redis: bool
) -> None:
    stub.answering = lambda body: Answer(200, ran(stdout="1"), sleep_s=0.05)
    config: Config = {"sandbox_fusion_url": stub.url, "rate_limit": 3, "num_workers": 10}
    if in_redis:
        config["redis_url"] = redis_url
    tools = [SandboxFusionTool(config=dict(config)) for _ in range(2)]
    await asyncio.gather(*(used(tool, code="x") for tool in tools for _ in range(10)))
    assert len(stub.seen) == 20
    assert stub.most_in_flight <= 3
    for tool in tools:
        tool.close()


class Custom(SandboxFusionTool):
    """As users override it: code written for verl's tool."""

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        code = f"print({parameters['code']})"
        result = await self.execution_pool.execute.remote(
            self.execute_code, instance_id, code, self.default_timeout, self.default_language
        )
        return result, None, None


class Overridden(SandboxFusionTool):
    """Another way to run code."""

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = ""
    ) -> Any:
        return f"{language}: {code}"


async def test_overridden_methods_are_used(config: Config, redis_url: str) -> None:
    custom = Custom(config=config)
    assert (await custom.execute("i", {"code": "6 * 7"}))[0].text == "42\n"
    custom.close()
    limited = {**config, "enable_global_rate_limit": True, "redis_url": redis_url, "rate_limit": 1}
    own = Overridden(config=limited)
    assert own.execution_pool.limit is not None
    assert await used(own, code="x") == ("python: x", {})
    own.close()


async def test_an_instance_keeps_its_own_metrics(tool: SandboxFusionTool) -> None:
    first, _ = await tool.create("a")
    second, _ = await tool.create("b", ground_truth="4")
    assert (first, second) == ("a", "b")
    await asyncio.gather(
        tool.execute("a", {"code": "print(1)"}), tool.execute("b", {"code": "1 / 0"})
    )
    _, _, metrics = await tool.execute("c", {"code": "print(1)"})
    assert metrics == {}
    await tool.release("a")
    await tool.release("b")
