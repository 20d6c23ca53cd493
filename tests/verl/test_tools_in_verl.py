"""The tools in the real verl: loaded by its loader, subclasses of its classes, used as it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.verl

TOOLS = """
tools:
  - class_name: queue_client.tools.SandboxFusionTool
    config: {type: native, sandbox_fusion_url: "http://127.0.0.1:1/run_code", retries: 1}
    tool_schema:
      type: function
      function:
        name: code_interpreter
        description: runs code
        parameters:
          type: object
          properties: {code: {type: string, description: c}}
          required: [code]
  - class_name: queue_client.tools.SearchTool
    config: {type: native, retrieval_service_url: "http://127.0.0.1:1/retrieve", max_retries: 1}
    tool_schema:
      type: function
      function:
        name: search
        description: searches
        parameters:
          type: object
          properties: {query_list: {type: array, description: q}}
          required: [query_list]
  - class_name: queue_client.tools.ImageZoomInTool
    config: {type: native}
    tool_schema:
      type: function
      function:
        name: zoom
        description: zooms
        parameters:
          type: object
          properties: {bbox_2d: {type: array, description: b}}
          required: [bbox_2d]
"""
USE = """
import asyncio, json, sys
from PIL import Image
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.tools.tool_registry import load_all_tools

tools = load_all_tools(tool_config_path=sys.argv[1], function_tool_path=None)
assert [t.name for t in tools] == ["code_interpreter", "search", "zoom"], tools
for tool in tools:
    assert isinstance(tool, BaseTool) and isinstance(tool.tool_schema, OpenAIFunctionToolSchema)

async def use(tool, arguments, **create):
    instance, made = await tool.create(create_kwargs=create)
    assert isinstance(made, ToolResponse)
    try:
        response, reward, metrics = await tool.execute(instance, arguments, agent_data=None)
    finally:
        await tool.release(instance)
    assert isinstance(response, ToolResponse) and isinstance(metrics, dict)
    return response, reward

async def main():
    sandbox, search, zoom = tools
    found = [await use(sandbox, {"code": "print(1)"}), await use(search, {"query_list": ["x"]})]
    found.append(await use(zoom, {"bbox_2d": [0, 0, 50, 50]}, image=Image.new("RGB", (99, 99))))
    assert found[2][0].image[0].size == (50, 50)
    print("FOUND " + json.dumps([[r.text, reward] for r, reward in found]))

asyncio.run(main())
for tool in tools:
    tool.close()
"""


def test_verls_loader_makes_and_uses_them(tmp_path: Path) -> None:
    pytest.importorskip("verl.tools.tool_registry")
    (tmp_path / "tools.yaml").write_text(TOOLS)
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "tools.yaml")],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    sandbox, search, zoom = json.loads(line.removeprefix("FOUND "))
    assert sandbox == ["The sandbox failed, the program was not run. Try again.", None]
    assert search[1] == 0.0
    assert "Search error" in search[0]
    assert zoom == ["Zoomed in on the image to the region [0, 0, 50, 50].", 0.0]
