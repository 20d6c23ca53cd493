"""Tools in verl's shape: sandbox, search, image zoom, and the execution pool they share.

Nothing is imported before it is asked for: where verl is installed the tools are subclasses of its
`BaseTool`, and importing verl takes seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue_client.tools.execution import ExecutionPool as ExecutionPool
    from queue_client.tools.execution import ExecutionWorker as ExecutionWorker
    from queue_client.tools.execution import PoolMode as PoolMode
    from queue_client.tools.execution import TokenBucketWorker as TokenBucketWorker
    from queue_client.tools.execution import init_execution_pool as init_execution_pool
    from queue_client.tools.image_zoom import ImageZoomInTool as ImageZoomInTool
    from queue_client.tools.sandbox_fusion import SandboxFusionTool as SandboxFusionTool
    from queue_client.tools.search import SearchTool as SearchTool
    from queue_client.tools.shape import BaseTool as BaseTool
    from queue_client.tools.shape import ToolResponse as ToolResponse

_HOMES = {
    "BaseTool": "shape",
    "ExecutionPool": "execution",
    "ExecutionWorker": "execution",
    "ImageZoomInTool": "image_zoom",
    "PoolMode": "execution",
    "SandboxFusionTool": "sandbox_fusion",
    "SearchTool": "search",
    "TokenBucketWorker": "execution",
    "ToolResponse": "shape",
    "init_execution_pool": "execution",
}

__all__ = [
    "BaseTool",
    "ExecutionPool",
    "ExecutionWorker",
    "ImageZoomInTool",
    "PoolMode",
    "SandboxFusionTool",
    "SearchTool",
    "TokenBucketWorker",
    "ToolResponse",
    "init_execution_pool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
