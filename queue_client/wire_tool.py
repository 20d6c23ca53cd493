"""A tool call on the wire: the second message beside batches, run by one registered function."""

from __future__ import annotations

import math
from typing import Any

from queue_client.errors import WireError
from queue_client.plain import NotPlain, plain
from queue_client.wire_document import pack_message, unpack_message

MAX_TOOL_NAME = 128
MAX_TOOL_BYTES = 1 << 26


def encode_tool_call(tool: str, arguments: dict[str, Any], *, timeout_s: float | None) -> bytes:
    """Return a tool call as bytes; raises WireError that names the argument that cannot travel."""
    try:
        data = pack_message("tool_call", tool, plain(arguments, "arguments"), timeout_s)
    except (NotPlain, TypeError, ValueError, OverflowError) as error:
        raise WireError(f"tool call cannot be sent: {error}") from None
    decode_tool_call(data)
    return data


def decode_tool_call(data: bytes) -> tuple[str, dict[str, Any], float | None]:
    """Return tool, arguments and timeout in seconds; raises WireError for anything else."""
    body = unpack_message(data, "tool_call", max_bytes=MAX_TOOL_BYTES)
    if len(body) != 3:
        raise WireError(f"tool call has {len(body)} parts, expected 3")
    tool, arguments, timeout_s = body
    if type(tool) is not str or not 0 < len(tool) <= MAX_TOOL_NAME:
        raise WireError(f"tool call: tool is no name of up to {MAX_TOOL_NAME} characters")
    if type(arguments) is not dict:
        raise WireError(f"tool call: arguments is {type(arguments).__name__}, expected a map")
    if timeout_s is not None and (
        type(timeout_s) not in (int, float) or not math.isfinite(timeout_s) or timeout_s < 0
    ):
        raise WireError("tool call: timeout_s is no number of seconds")
    return tool, arguments, timeout_s
