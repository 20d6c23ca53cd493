"""Whatever was stored becomes plain JSON of bounded size."""

from __future__ import annotations

import base64
import json
import math
import zlib

import pytest

from worker.ops.dashboard.shown import MAX_INFLATED, MAX_ITEMS, MAX_TEXT, inflated, plain


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (0.25, 0.25),
        (2**60, str(2**60)),
        (True, True),
        (None, None),
        (b"\x00\x01", "<2 bytes: 00 01>"),
        ({1: b"x", "a": {"b": (1, 2)}}, {"1": "<1 bytes: 78>", "a": {"b": [1, 2]}}),
        ("<script>", "<script>"),
        (object, "<type>"),
    ],
)
def test_values_become_json_a_browser_reads(value: object, shown: object) -> None:
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


def test_huge_values_are_cut_and_counted() -> None:
    assert plain("x" * (MAX_TEXT + 5)).endswith("… (5 more)")
    assert plain(list(range(MAX_ITEMS + 3)))[-1] == "… 3 more"
    assert plain({str(i): i for i in range(MAX_ITEMS + 2)})["…"] == "2 more"
    assert "bits" in plain(1 << 100_000)


def test_nesting_ends() -> None:
    nested: list[object] = []
    for _ in range(500):
        nested = [nested]
    assert "nested too deeply" in json.dumps(plain(nested))


def test_a_lone_surrogate_does_not_break_the_page() -> None:
    json.dumps(plain("a\ud800b")).encode()
    plain("a\ud800b").encode()


def test_a_bomb_inflates_to_a_bounded_text() -> None:
    bomb = base64.b64encode(zlib.compress(b"a" * (64 << 20)))
    assert len(inflated(bomb)) <= MAX_INFLATED


@pytest.mark.parametrize("stored", [b"!!", b"AAAA", base64.b64encode(b"not zlib")])
def test_text_that_is_not_packed_is_described(stored: bytes) -> None:
    assert "undecodable" in inflated(stored)
