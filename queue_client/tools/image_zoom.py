"""ImageZoomInTool: the model looks closer at a region of its image."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

from queue_client.tools.boxes import BadBox, fit_box
from queue_client.tools.execution import ExecutionPool, PoolMode, init_execution_pool
from queue_client.tools.images import BadImage, load_image
from queue_client.tools.options import Options
from queue_client.tools.shape import BaseTool, ToolResponse, schema_from, traced

logger = logging.getLogger(__name__)

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "image_zoom_in_tool",
        "description": "Cuts a region out of the image, to be looked at more closely.",
        "parameters": {
            "type": "object",
            "properties": {
                "bbox_2d": {
                    "type": "array",
                    "description": "The region in pixels: [left, top, right, bottom].",
                },
                "label": {"type": "string", "description": "What is in the region."},
            },
            "required": ["bbox_2d"],
        },
    },
}
FAILED_REWARD = -0.05


class ImageZoomInTool(BaseTool):
    """Cuts regions out of an instance's image.

    verl's keys: `num_workers` 20, `rate_limit` 50, `timeout` 30 (for fetching),
    `enable_global_rate_limit` true. Ours: `redis_url`, `limit_name` image_zoom.
    """

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, schema_from(tool_schema, SCHEMA))
        options = Options(type(self).__name__, config)
        self.num_workers = options.whole("num_workers", 20)
        self.rate_limit = options.whole("rate_limit", 50)
        self.timeout = options.seconds("timeout", 30)
        self.enable_global_rate_limit = options.flag("enable_global_rate_limit", True)
        self.redis_url = options.text("redis_url")
        self.limit_name = options.text("limit_name", "image_zoom") or "image_zoom"
        self.execution_pool: ExecutionPool = init_execution_pool(
            self.num_workers,
            self.enable_global_rate_limit,
            self.rate_limit,
            PoolMode.ThreadMode,
            name=self.limit_name,
            redis_url=self.redis_url,
        )
        self._instance_dict: dict[str, dict[str, Any]] = {}

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Load the image, from `image` or `create_kwargs["image"]`.

        Raises ValueError without one, BadImage if it cannot be had.
        """
        instance_id = instance_id or str(uuid4())
        source = kwargs.get("image")
        if source is None:
            source = (kwargs.get("create_kwargs") or {}).get("image")
        if source is None:
            raise ValueError("image: needed by create, as image or in create_kwargs")
        image = await self.execution_pool.execute(load_image, source, timeout_s=self.timeout)
        self._instance_dict[instance_id] = {"image": image}
        return instance_id, ToolResponse()

    @traced
    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Return the region `bbox_2d`: reward 0.0, or -0.05 with an error for the model."""
        held = self._instance_dict.get(instance_id)
        if held is None:
            return _failure("there is no image")
        box, label = parameters.get("bbox_2d"), parameters.get("label") or ""
        try:
            cut = await self.execution_pool.execute(_cut, held["image"], box)
        except (BadBox, BadImage) as error:
            return _failure(str(error))
        except Exception as error:  # noqa: BLE001  (the model is told)
            logger.warning("zoom failed error=%s", f"{type(error).__name__}: {error}")
            return _failure("the region could not be cut out")
        text = f"Zoomed in on the image to the region {list(box or [])}."
        if label:
            text = f"{text[:-1]} with label {label}."
        return ToolResponse(image=[cut], text=text), 0.0, {"success": True}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Return 0.0: rewards come with each execution."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End an instance and let go of its image; a second time is harmless."""
        self._instance_dict.pop(instance_id, None)

    def close(self) -> None:
        """End threads."""
        self.execution_pool.close()


def _cut(image: Any, box: Any) -> Any:
    return image.crop(fit_box(box, *image.size))


def _failure(message: str) -> tuple[ToolResponse, float, dict[str, Any]]:
    return ToolResponse(text=f"Error: {message}."), FAILED_REWARD, {"success": False}
