"""Putting the harness together as one text, and reading what it reports."""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from worker.sandbox.program import Program

_LOADER = """\
import sys, types
def _load(texts):
    for name, text in texts:
        module = types.ModuleType(name)
        sys.modules[name] = module
        exec(compile(text, name, "exec"), module.__dict__)
"""
_LIBRARIES = (
    "math cmath collections itertools functools operator string re copy heapq bisect json random"
    " datetime decimal fractions statistics typing sys os time"
).split()
_GIVING = "math collections itertools functools heapq bisect copy fractions decimal".split()
#: In the order in which they need each other.
_MODULES = (
    "worker.sandbox.compare",
    "worker.sandbox.harness.codec",
    "worker.sandbox.harness.peer",
    "worker.sandbox.harness.candidate",
    "worker.sandbox.harness.nursery",
    "worker.sandbox.harness.proxies",
    "worker.sandbox.harness.names",
    "worker.sandbox.harness.checker",
)


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What the harness saw of one case.

    `status` is passed, failed, error, exited, timeout, unused, or missing if it never got there.
    """

    status: str
    message: str = ""
    took_s: float | None = None


@cache
def harness_text() -> str:
    """Return the whole harness as one Python program, without any case in it."""
    texts = [(name, _text_of(name)) for name in _MODULES]
    call = f"sys.modules[{_MODULES[-1]!r}].main({_well_known()!r})"
    return f"{_LOADER}_load({texts!r})\n{call}\n"


def harness_program(
    source: str, cases: Sequence[dict[str, Any]], *, case_s: float, memory_limit_mb: int
) -> tuple[Program, str]:
    """Return the program that runs these cases, and the word its reports begin with."""
    nonce = f"rewardpool-{secrets.token_hex(16)}"
    total_s = total_time_s(len(cases), case_s)
    job = {
        "nonce": nonce,
        "source": source,
        "cases": list(cases),
        "case_s": case_s,
        "total_s": total_s,
    }
    program = Program(
        code=harness_text(),
        stdin=json.dumps(job),
        run_timeout_s=total_s + 2.0,
        memory_limit_mb=memory_limit_mb,
    )
    return program, nonce


def total_time_s(cases: int, case_s: float) -> float:
    """Return the seconds all cases together may take: four slow ones and the rest quick."""
    return min(cases * case_s, 4 * case_s + cases * 0.5)


def read_reports(stdout: str, nonce: str, cases: int) -> list[CaseReport]:
    """Return one report a case, in order; only lines that begin with the word count."""
    found = [CaseReport("missing")] * cases
    for line in stdout.splitlines():
        word, _, text = line.partition(" ")
        if word != nonce:
            continue
        try:
            fields = json.loads(text)
        except ValueError:
            continue
        number = fields.get("case")
        if isinstance(number, int) and 0 <= number < cases:
            found[number] = CaseReport(
                str(fields.get("status")), str(fields.get("message", "")), fields.get("took_s")
            )
    return found


def _well_known() -> dict[str, str]:
    """Return names that checks use without importing them, and the module each is from.

    A module of the standard library stands for itself.
    """
    found = {name: name for name in _LIBRARIES}
    for library in _GIVING:
        module = importlib.import_module(library)
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        for name in names:
            found.setdefault(name, library)
    return found


def _text_of(name: str) -> str:
    package, _, module = name.rpartition(".")
    return resources.files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")
