"""Images of a trajectory do not travel yet: they are found, named and refused, or dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from queue_client.errors import BadTrajectory

#: Fields of a verl row that hold pixels.
MEDIA_FIELDS = ("multi_modal_data", "multi_modal_inputs", "images", "videos", "audios")
_PLACEHOLDERS = {
    "image": "<image>",
    "image_url": "<image>",
    "input_image": "<image>",
    "video": "<video>",
    "video_url": "<video>",
    "audio": "<audio>",
    "audio_url": "<audio>",
    "input_audio": "<audio>",
}


def refuse_images(messages: Iterable[Any], name: str) -> None:
    """Raise BadTrajectory, naming the message, if one holds an image, video or sound."""
    for place, message in enumerate(messages):
        if type(message) is not dict or type(message.get("content")) is str:
            continue
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in _PLACEHOLDERS:
                raise BadTrajectory(
                    f"{name}: messages[{place}] holds a part of type {part['type']!r}: images are "
                    "not supported; leave it out to score the text alone"
                )


def without_images(messages: Iterable[Any]) -> list[Any]:
    """Return the messages with a placeholder text for each image, video or sound."""
    return [_without(message) for message in messages]


def _without(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    return {**message, "content": [_text(part) for part in content]}


def _text(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in _PLACEHOLDERS:
        return {"type": "text", "text": _PLACEHOLDERS[part["type"]]}
    return part
