"""The rows of a batch on the wire: lengths, ids without shared prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queue_client.errors import BadTrajectory, WireError
from queue_client.token_ids import as_ids
from queue_client.trajectory import Output
from queue_client.wire_numbers import pack_vector, unpack_vector

MAX_ROW_TOKENS = 1 << 24
MAX_TOKENS = 1 << 27
#: Tokens that may have to be copied on arrival, because a row shares only a part of another.
MAX_COPIED = 1 << 26
#: A prefix shorter than this is sent again.
MIN_SHARED = 16
_NONE = np.zeros(0, np.int32)


def pack_rows(outputs: Sequence[Output]) -> dict[str, Any]:
    """Return lengths and ids of the rows; an empty map where no row has ids.

    Raises BadTrajectory for more tokens than the other side reads.
    """
    if all(one.prompt_ids is None and one.response_ids is None for one in outputs):
        return {}
    parts: list[Any] = []
    for one in outputs:
        parts += (_ids(one.prompt_ids), _ids(one.response_ids))
    lens = np.array([len(part) for part in parts], np.int64)
    if lens.max() > MAX_ROW_TOKENS or lens.sum() > MAX_TOKENS:
        raise BadTrajectory(
            f"rows have {lens.sum()} tokens and up to {lens.max()} each, at most {MAX_TOKENS} "
            f"and {MAX_ROW_TOKENS} travel together"
        )
    tokens = np.concatenate(parts)
    ends = np.cumsum(lens)[1::2]
    starts = ends - lens[0::2] - lens[1::2]
    shared = _shared_prefixes(tokens, starts.tolist(), ends.tolist(), lens[0::2].tolist())
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
    """Return `count` outputs with their ids; raises WireError where sizes disagree.

    Every size is checked before anything of that size is allocated.
    """
    unknown = packed.keys() - {"prompt_lens", "response_lens", "ids", "shared"}
    if unknown:
        raise WireError(f"rows has the unknown part {min(unknown)[:40]!r}")
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
    lens = zip(prompt_lens, response_lens, shared, strict=True)
    return [
        Output(prompt if prompts_given[row] else None, response if responses_given[row] else None)
        for row, (prompt, response) in enumerate(_rows_of(ids, lens))
    ]


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


def _shared_prefixes(
    tokens: NDArray[Any], starts: list[int], ends: list[int], prompt_lens: list[int]
) -> list[int]:
    """Return how many leading tokens each row takes from the row before it.

    Either the whole row before, as in a growing context, or no more than this row's prompt, as in
    a group of rollouts of one prompt: both are views on arrival. What else is shared is copied
    there, so it is bounded.
    """
    shared, copied, whole = [0], 0, True
    for row, ((a, b), (c, d)) in enumerate(pairwise(zip(starts, ends, strict=True)), 1):
        size = min(b - a, d - c)
        same = tokens[a : a + size] == tokens[c : c + size]
        cut = size if same.all() else int(same.argmin())
        if cut != b - a:
            cut = min(cut, prompt_lens[row])
        if cut < MIN_SHARED:
            cut = 0
        view = cut == 0 or (whole and cut == b - a)
        if not view and not cut == prompt_lens[row] <= prompt_lens[row - 1]:
            copied += d - c
            if copied > MAX_COPIED:
                cut, view = 0, True
        whole = view
        shared.append(cut)
    return shared


def _rows_of(
    ids: NDArray[Any], lens: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield each row's prompt and response, from its lengths and what it shares.

    A row is a view where it begins anew, goes on where the row before ended, or has the same
    prompt; otherwise it is a copy.
    """
    start = end = 0  # where the row before stands in `ids`; start is -1 if it is in two pieces
    prompt = response = ids[:0]
    copied = 0
    for prompt_len, response_len, cut in lens:
        before = len(prompt) + len(response)
        fresh = ids[end : end + prompt_len + response_len - cut]
        if cut == 0:
            start = end
        elif start >= 0 and cut != before:
            start = -1
        end += len(fresh)
        if start >= 0:
            prompt, response = ids[start : start + prompt_len], ids[start + prompt_len : end]
        elif cut == prompt_len <= len(prompt):
            prompt, response = prompt[:cut], fresh
        else:
            copied += prompt_len + response_len
            if copied > MAX_COPIED:
                raise WireError(f"rows share parts of {copied} tokens, at most {MAX_COPIED}")
            row = np.concatenate((prompt, response))[:cut]
            row = np.concatenate((row, fresh))
            row.flags.writeable = False
            prompt, response = row[:prompt_len], row[prompt_len:]
        yield (prompt, response) if ids.dtype == np.int32 else (_narrow(prompt), _narrow(response))


def _narrow(ids: NDArray[Any]) -> NDArray[Any]:
    """One enormous id makes the vector int64; rows without one are int32 as they were."""
    return as_ids(ids, "ids")
