"""`docs/pool-reports.md` names tests that exist, and says something about every report."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "pool-reports.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def test_every_test_named_in_the_reports_exists() -> None:
    named = set(TEST.findall((ROOT / "docs" / "pool-reports.md").read_text(encoding="utf-8")))
    missing = {
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file()
        or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    }
    assert not missing
    assert len(named) > 60


def test_every_row_of_the_reports_is_answered() -> None:
    found = rows()
    assert len(found) == 24
    for row in found:
        assert len(row) == 4, row
        said = row[3]
        assert TEST.search(said) or "cannot happen" in said or "not shown" in said, row[0]
        assert "::" not in TEST.sub("", said), f"a test is named in another way: {row[0]}"


def test_only_small_programs_fork() -> None:
    """They run on their own, before any thread or model; a worker only starts them."""
    forking = {
        str(path.relative_to(ROOT))
        for package in ("limiter", "queue_client", "worker")
        for path in (ROOT / package).rglob("*.py")
        if re.search(
            r"\bos\.fork(pty)?\(|get_context\(.fork|ProcessPoolExecutor\(", path.read_text()
        )
    }
    programs = {
        "worker/sandbox/harness/nursery.py",
        "worker/sandbox/local/launcher.py",
        "worker/scoring/helpers/nursery.py",
    }
    assert programs <= forking
    assert forking - programs <= {"queue_client/tools/execution.py"}
    execution = (ROOT / "queue_client" / "tools" / "execution.py").read_text(encoding="utf-8")
    assert 'get_context("spawn")' in execution
    for program in programs:
        text = (ROOT / program).read_text(encoding="utf-8")
        assert not re.search(r"import (torch|threading|transformers)|from transformers", text)
