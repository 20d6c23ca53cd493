"""The tools' shape where verl is absent, and their configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import queue_client.tools as tools
from queue_client.tools import ImageZoomInTool, SandboxFusionTool, SearchTool, ToolResponse

URL = {"sandbox_fusion_url": "http://127.0.0.1:1", "enable_global_rate_limit": False}
SCHEMA = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}


def test_every_name_is_there() -> None:
    for name in tools.__all__:
        assert getattr(tools, name).__name__.lstrip("_") == name
    assert dir(tools) == sorted(tools.__all__)
    with pytest.raises(AttributeError, match="MCPTool"):
        _ = tools.MCPTool  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import queue_client.tools, sys; "
        "print([m for m in ('requests', 'httpx', 'PIL', 'verl', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_response_holds_text_images_and_videos() -> None:
    assert ToolResponse().is_empty()
    assert ToolResponse(text="x").is_text_only()
    assert not ToolResponse(text="x", image=[1]).is_text_only()
    for name in ("image", "video"):
        with pytest.raises(ValueError, match=name):
            ToolResponse(**{name: "x"})


def test_a_schema_may_be_an_object_a_mapping_or_the_tools_own() -> None:
    own = SandboxFusionTool(config=dict(URL))
    assert own.name == "code_interpreter"
    assert own.get_openai_tool_schema().model_dump()["type"] == "function"
    given = SandboxFusionTool(config=dict(URL), tool_schema=SCHEMA)
    assert given.name == "f"
    again = SandboxFusionTool(config=dict(URL), tool_schema=given.tool_schema)
    assert again.name == "f"
    with pytest.raises(ValueError, match="function"):
        SandboxFusionTool(config=dict(URL), tool_schema={"function": {}})


def test_defaults_are_verls() -> None:
    sandbox = SandboxFusionTool(config=dict(URL))
    assert (sandbox.num_workers, sandbox.rate_limit, sandbox.default_timeout) == (10, 10, 30)
    assert (sandbox.default_language, sandbox.memory_limit_mb) == ("python", 1024)
    search = SearchTool(config={"retrieval_service_url": "http://127.0.0.1:1"})
    assert (search.num_workers, search.rate_limit, search.timeout, search.topk) == (120, 120, 30, 3)
    zoom = ImageZoomInTool(config={})
    assert (zoom.num_workers, zoom.rate_limit, zoom.timeout) == (20, 50, 30)
    names = {sandbox.limit_name, search.limit_name, zoom.limit_name}
    assert names == {"sandbox", "search", "image_zoom"}


@pytest.mark.parametrize(
    ("tool", "config", "said"),
    [
        (SandboxFusionTool, {}, "sandbox_fusion_url"),
        (SandboxFusionTool, {"sandbox_fusion_url": ""}, "sandbox_fusion_url"),
        (SandboxFusionTool, {**URL, "num_workers": 0}, "num_workers.*0"),
        (SandboxFusionTool, {**URL, "default_timeout": "x"}, "default_timeout.*'x'"),
        (SandboxFusionTool, {**URL, "enable_global_rate_limit": "no"}, "enable_global_rate_limit"),
        (SandboxFusionTool, {**URL, "languages": "python"}, "languages"),
        (SandboxFusionTool, {**URL, "execution": "ray"}, "execution.*'ray'"),
        (SandboxFusionTool, {"execution": "pool"}, "redis_url"),
        (SearchTool, {}, "retrieval_service_url"),
        (SearchTool, {"retrieval_service_url": "http://a", "topk": True}, "topk"),
    ],
)
def test_wrong_configuration_names_the_key(tool: Any, config: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tool(config=config)
