"""The shape of a tool: verl's own classes where verl is installed, else ours with the same names.

verl's loader makes a tool as `cls(config=…, tool_schema=…)`, and its agent loop calls create,
execute and release.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

logger = logging.getLogger(__name__)


class _ToolResponse:
    """What a tool hands back to the model: text, images, videos; any of them may be None."""

    def __init__(
        self,
        text: str | None = None,
        image: list[Any] | None = None,
        video: list[Any] | None = None,
    ) -> None:
        for name, value in (("image", image), ("video", video)):
            if value is not None and not isinstance(value, list):
                raise ValueError(f"{name}: a list expected (got {type(value).__name__})")
        self.text, self.image, self.video = text, image, video

    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.text and not self.image and not self.video

    def is_text_only(self) -> bool:
        """Whether there is text and nothing else."""
        return bool(self.text) and not self.image and not self.video

    def __repr__(self) -> str:
        return f"ToolResponse(text={self.text!r}, image={self.image!r}, video={self.video!r})"


class _Function:
    """The `function` part of a schema."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.name = str(fields["name"])
        self.description = str(fields.get("description", ""))
        self.parameters = fields.get("parameters", {})


class _ToolSchema:
    """An OpenAI function schema."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.type = fields.get("type", "function")
        self.function = _Function(fields["function"])

    @classmethod
    def model_validate(cls, fields: dict[str, Any]) -> _ToolSchema:
        """Read a schema. Raises ValueError without a function's name."""
        if not isinstance(fields, dict) or "name" not in fields.get("function", {}):
            raise ValueError(f"tool_schema: function.name expected (got {fields!r})")
        return cls(fields)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the schema as it came."""
        return self._fields


class _BaseTool:
    """A tool: instances are made, used and released by id."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.config = config
        self.tool_schema = tool_schema
        self.name = tool_schema.function.name

    def get_openai_tool_schema(self) -> Any:
        """Return the schema that the model sees."""
        return self.tool_schema

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, _ToolResponse]:
        """Begin an instance for one trajectory."""
        return instance_id or str(uuid4()), _ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[_ToolResponse, float | None, dict[str, Any]]:
        """Use the tool once: response, reward, metrics."""
        return _ToolResponse(text="Updated the tool state."), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Return the reward of an instance."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End an instance."""


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _verl() -> tuple[Any, Any, Any, Any] | None:
    if importlib.util.find_spec("verl") is None:
        return None
    try:
        from verl.tools.base_tool import BaseTool
        from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
        from verl.utils.rollout_trace import rollout_trace_op
    except ImportError as error:
        logger.warning("verl is installed but was not imported error=%s", error)
        return None
    return BaseTool, ToolResponse, OpenAIFunctionToolSchema, rollout_trace_op


if TYPE_CHECKING:
    BaseTool = _BaseTool
    ToolResponse = _ToolResponse
    ToolSchema = _ToolSchema
    traced = _same
else:
    BaseTool, ToolResponse, ToolSchema, traced = _verl() or (
        _BaseTool,
        _ToolResponse,
        _ToolSchema,
        _same,
    )


def schema_from(given: Any, default: dict[str, Any]) -> Any:
    """Return a schema object from an object, a mapping, or None for the tool's own."""
    if given is None:
        return ToolSchema.model_validate(default)
    return ToolSchema.model_validate(given) if isinstance(given, dict) else given
