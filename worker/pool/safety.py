"""Redis is trusted for availability, never for code: pickle out, decompression bounded."""

from __future__ import annotations

import zlib

import rq.serializers

from queue_client.wire import Serializer

MAX_JOB_DATA = 1 << 20  # bytes of a job's function name and arguments, inflated
MAX_TEXT = 1 << 18  # bytes of an error text, inflated


class TooLarge(ValueError):
    """Stored bytes inflate to more than anything of ours would."""


def remove_pickle() -> None:
    """Make RQ's default serializer ours, in this process, under each of its names.

    RQ falls back to its default wherever a caller names no serializer (`Job.fetch`, `rq info`,
    `worker-pool`, rq-dashboard); with this, that fallback is msgpack and builds no objects.
    """
    default = rq.serializers.DefaultSerializer
    default.dumps = staticmethod(Serializer.dumps)
    default.loads = staticmethod(Serializer.loads)
    rq.serializers.SERIALIZER_ALIASES["pickle"] = default


def inflate(data: bytes, most: int) -> bytes:
    """Return zlib-compressed bytes inflated, or bytes that are not compressed as they are.

    Raises TooLarge instead of inflating to more than `most` bytes.
    """
    if len(data) > most:
        raise TooLarge(f"{len(data)} bytes, at most {most} allowed")
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, most)
    except zlib.error:
        return data
    if inflater.unconsumed_tail or not inflater.eof:
        raise TooLarge(f"inflates to more than {most} bytes, or is cut off")
    return text
