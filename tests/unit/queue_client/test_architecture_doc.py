"""The page on the wire names what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_client import wire, wire_document, wire_numbers, wire_outcome
from queue_client.padding import LAYOUTS

PAGE = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("part", sorted(wire._KEYS))
def test_every_part_of_a_batch_is_described(part):
    assert f"| `{part}` |" in PAGE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_described(layout):
    assert f"| `{layout}` |" in PAGE


def test_version_codes_and_fields_are_the_codes_own():
    assert f"the version is {wire_document.VERSION}." in PAGE
    codes = [code for code in wire_numbers._BITS if code[0] in "ui"]
    assert f"`{' '.join(codes)}`" in PAGE
    assert ", ".join(name for name, _ in wire_outcome._FIELDS) in PAGE
