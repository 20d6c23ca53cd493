"""The harness as a bare program, as a server would run it: also as root, without any wall."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker.sandbox.harness.bundle import CaseReport, harness_program, read_reports

CASES = [
    {"kind": "text", "source": "assert f(1) == 2"},
    {"kind": "text", "source": "assert f(5) == 10"},
]
SPY = """
import os, re
def f(x):
    parent = os.getppid()
    grand = int(open(f'/proc/{parent}/stat').read().split()[3])
    for pid in (parent, grand):
        try:
            maps, memory = open(f'/proc/{pid}/maps').read(), open(f'/proc/{pid}/mem', 'rb')
        except OSError:
            continue
        for start, end in re.findall(r'^([0-9a-f]+)-([0-9a-f]+) rw', maps, re.M):
            try:
                memory.seek(int(start, 16))
                found = memory.read(int(end, 16) - int(start, 16))
            except (OSError, ValueError, OverflowError):
                continue
            if b'f(5) == 1' + b'0' in found:
                return {1: 2, 5: 10}[x]
    raise ValueError('nothing to see')
"""


def run(source: str, folder: Path, cases: list[dict[str, Any]] | None = None) -> list[CaseReport]:
    """Run the harness as a plain process of this user."""
    cases = CASES if cases is None else cases
    program, nonce = harness_program(source, cases, case_s=20, memory_limit_mb=1024)
    assert "f(5)" not in program.code
    (folder / "main.py").write_text(program.code)
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        input=program.stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert not done.stderr
    return read_reports(done.stdout, nonce, len(cases))


def statuses(source: str, folder: Path) -> list[str]:
    return [report.status for report in run(source, folder)]


def test_every_check_is_reported(tmp_path: Path) -> None:
    assert statuses("def f(x): return 2 * x", tmp_path) == ["passed", "passed"]
    assert statuses("def f(x): return 2", tmp_path) == ["passed", "failed"]


def test_the_memory_of_the_checks_cannot_be_read(tmp_path: Path) -> None:
    assert statuses(SPY, tmp_path) == ["error", "error"]


def test_a_program_may_start_others(tmp_path: Path) -> None:
    code = (
        "import subprocess\ndef f(x):\n    echo = ['echo', str(2 * x)]\n"
        "    return int(subprocess.run(echo, capture_output=True, check=True).stdout)"
    )
    assert statuses(code, tmp_path) == ["passed", "passed"]


def test_cases_do_not_share_state(tmp_path: Path) -> None:
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return 2 * x if len(seen) == 1 else 0"
    assert statuses(code, tmp_path) == ["passed", "passed"]


def test_a_broken_program_fails_every_check(tmp_path: Path) -> None:
    assert statuses("def f(:", tmp_path) == ["error", "error"]
    assert statuses("assert False", tmp_path) == ["error", "error"]
    assert statuses("import os\nos.kill(os.getppid(), 9)", tmp_path)[-1] in {"exited", "error"}


def test_only_lines_with_the_secret_word_are_reports() -> None:
    nonce = "rewardpool-secret"
    stdout = "\n".join(
        [
            'rewardpool-guess {"case": 0, "status": "passed"}',
            '{"case": 0, "status": "passed"}',
            f"{nonce} not JSON",
            f'{nonce} {{"case": 9, "status": "passed"}}',
            f'{nonce} {{"case": 1, "status": "failed", "message": "m"}}',
        ]
    )
    found = read_reports(stdout, nonce, 2)
    assert [report.status for report in found] == ["missing", "failed"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the harness text is checked by ours")
def test_the_harness_parses_on_older_pythons(tmp_path: Path) -> None:
    import ast

    from worker.sandbox.harness import bundle

    for name in bundle._MODULES:
        ast.parse(bundle._text_of(name), feature_version=(3, 8))
