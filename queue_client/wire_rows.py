"""The rows of a batch on the wire: lengths, ids without shared prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import WireError
from queue_client.trajectory import Output
from queue_client.wire_numbers import pack_vector, unpack_vector

MAX_ROW_TOKENS = 1 << 24
MAX_TOKENS = 1 << 27
#: A prefix shorter than this is sent again: a row of its own need not be copied on arrival.
MIN_SHARED = 16
_NONE = np.zeros(0, np.int32)


def pack_rows(outputs: Sequence[Output]) -> dict[str, Any]:
    """Return lengths and ids of the rows; an empty map where no row has ids."""
    if all(one.prompt_ids is None and one.response_ids is None for one in outputs):
        return {}
    parts: list[Any] = []
    for one in outputs:
        parts += (_ids(one.prompt_ids), _ids(one.response_ids))
    tokens = np.concatenate(parts)
    lens = np.array([len(part) for part in parts], np.int64)
    ends = np.cumsum(lens)[1::2]
    starts = ends - lens[0::2] - lens[1::2]
    shared = _shared_prefixes(tokens, starts.tolist(), ends.tolist())
    kept = [tokens[a + cut : b] for a, b, cut in zip(starts, ends, shared, strict=True)]
    packed = {
        "prompt_lens": pack_vector(lens[0::2] + _given(one.prompt_ids for one in outputs)),
        "response_lens": pack_vector(lens[1::2] + _given(one.response_ids for one in outputs)),
        "ids": pack_vector(np.concatenate(kept)),
    }
    if any(shared):
        packed["shared"] = pack_vector(np.array(shared, np.int64))
    return packed


def unpack_rows(packed: dict[str, Any], count: int) -> list[Output]:
    """Return `count` outputs with their arrays; raises WireError where sizes disagree.

    Every size is checked before anything of that size is allocated.
    """
    prompt_lens, prompts_given = _lens(packed, "prompt_lens", count)
    response_lens, responses_given = _lens(packed, "response_lens", count)
    shared = _shared(packed, count)
    totals = [p + r for p, r in zip(prompt_lens, response_lens, strict=True)]
    if sum(totals) > MAX_TOKENS:
        raise WireError(f"rows claim {sum(totals)} tokens, at most {MAX_TOKENS} are read")
    before = 0
    for row, (total, cut) in enumerate(zip(totals, shared, strict=True)):
        if not 0 <= cut <= min(before, total):
            raise WireError(f"shared[{row}] is {cut}: no prefix of both rows")
        before = total
    ids = unpack_vector(_part(packed, "ids"), "ids", length=sum(totals) - sum(shared))
    ids.flags.writeable = False
    outputs = []
    for row, tokens in enumerate(_rows_of(ids, totals, shared)):
        cut = prompt_lens[row]
        outputs.append(
            Output(
                tokens[:cut] if prompts_given[row] else None,
                tokens[cut:] if responses_given[row] else None,
            )
        )
    return outputs


def _ids(ids: Any) -> Any:
    return _NONE if ids is None else ids


def _given(ids: Any) -> NDArray[np.int64]:
    """Lengths travel plus one, so that 0 says that a row has no such ids at all."""
    return np.array([one is not None for one in ids], np.int64)


def _lens(packed: dict[str, Any], name: str, count: int) -> tuple[list[int], list[bool]]:
    values = unpack_vector(_part(packed, name), name, length=count)
    if count and (values.min() < 0 or values.max() > MAX_ROW_TOKENS):
        raise WireError(f"{name} holds a length outside 0 to {MAX_ROW_TOKENS}")
    return np.maximum(values - 1, 0).tolist(), (values > 0).tolist()


def _shared(packed: dict[str, Any], count: int) -> list[int]:
    if "shared" not in packed:
        return [0] * count
    shared: list[int] = unpack_vector(packed["shared"], "shared", length=count).tolist()
    return shared


def _part(packed: dict[str, Any], name: str) -> Any:
    if name not in packed:
        raise WireError(f"{name} is missing")
    return packed[name]


def _shared_prefixes(tokens: NDArray[Any], starts: list[int], ends: list[int]) -> list[int]:
    """Return how many leading tokens each row has in common with the row before it."""
    shared = [0]
    for (a, b), (c, d) in pairwise(zip(starts, ends, strict=True)):
        size = min(b - a, d - c)
        same = tokens[a : a + size] == tokens[c : c + size]
        cut = size if same.all() else int(same.argmin())
        shared.append(cut if cut >= MIN_SHARED else 0)
    return shared


def _rows_of(ids: NDArray[Any], totals: Sequence[int], shared: Sequence[int]) -> list[NDArray[Any]]:
    """Return each row's tokens: views of `ids` where a row begins anew or goes on from the last."""
    rows: list[NDArray[Any]] = []
    start = end = 0  # where the last row stands in `ids`, while it is a view
    for total, cut in zip(totals, shared, strict=True):
        fresh = total - cut
        if cut == 0:
            start = end
        elif start >= 0 and cut != end - start:
            start = -1
        end += fresh
        if cut and start < 0:
            row = np.concatenate((rows[-1][:cut], ids[end - fresh : end]))
            row.flags.writeable = False
            rows.append(row)
        else:
            rows.append(ids[start:end])
    return rows
