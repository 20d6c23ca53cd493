"""A script's header is its contract: its names are those the body binds, in that order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lua

SCRIPTS = sorted(Path(lua.__path__[0]).glob("pool_*.lua"))
ENTRY = re.compile(r"^-- (KEYS|ARGV)\[(\d+)(\+?)\]\s+(\w+)")
BINDING = re.compile(r"^local ([\w, ]+) = (.+)$", re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_body_binds_what_the_header_names(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    header = text[: text.index("\nlocal ")]
    body = text[len(header) :]
    entries = [ENTRY.match(line) for line in header.splitlines()]
    named = [match.groups() for match in entries if match]
    assert re.search(r"^-- Returns? ", header, re.MULTILINE)
    assert header.startswith("-- ")
    for kind in ("KEYS", "ARGV"):
        numbers = [int(number) for which, number, _, _ in named if which == kind]
        assert numbers == list(range(1, len(numbers) + 1)), f"{kind} are not named one by one"
    bound = {}
    for names, values in BINDING.findall(body):
        for name, value in zip(names.split(", "), values.split(", "), strict=False):
            for which, number in re.findall(r"(KEYS|ARGV)\[(\d+)\]", value):
                bound.setdefault((which, number), name)
    for which, number, many, name in named:
        if many:
            assert f"{name}" in body, f"{which}[{number}+] {name} is not used"
        else:
            assert bound.get((which, number)) == name, f"{which}[{number}] is not bound to {name}"
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", body)}
    assert used <= {int(number) for which, number, _, _ in named if which == "KEYS"}
