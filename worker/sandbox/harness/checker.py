"""The checks' side: runs each case against a fresh process of the program and reports it.

A report is a line that begins with a word the program never sees. Cases, expected values and that
word come on standard input and stay in this process, which the program cannot read: it is not
dumpable, and where we are root the program is root without capabilities.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import io
import json
import os
import signal
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

from worker.sandbox.compare import same_output, same_value
from worker.sandbox.harness.names import WELL_KNOWN, Names
from worker.sandbox.harness.nursery import Nursery
from worker.sandbox.harness.peer import Gone, OutOfTime, Peer
from worker.sandbox.harness.proxies import Link, ProgramExited, Remote

PR_SET_DUMPABLE = 4


class CaseFailed(Exception):
    """A value is not the expected one."""


class LoadFailed(Exception):
    """The program raised before anything of it could be checked."""


class NotUsed(Exception):
    """A check ran to its end without using the program."""


class Session:
    """A fresh process with the program loaded, and the link to it."""

    def __init__(self, deadline: float) -> None:
        self.link = Link()
        self._deadline = deadline
        self._ends: list[int] = []
        self._pid = 0

    def start(self, nursery: Nursery) -> None:
        """Start the process."""
        ask_read, ask_write = os.pipe()
        tell_read, tell_write = os.pipe()
        self._ends = [ask_write, tell_read]
        try:
            self._pid = nursery.start(ask_read, tell_write)
        finally:
            os.close(ask_read)
            os.close(tell_write)
        os.set_blocking(ask_write, False)
        self.link.peer = Peer(tell_read, ask_write, self.link.serve, self._deadline)
        self.link.peer.receive()

    def load(self, source: str, function: str | None) -> None:
        """Run the program's text; a task about one function gets the usual imports before it."""
        try:
            self.link.ask({"q": "load", "source": source, "function": function})
        except Exception as error:
            raise LoadFailed(f"{type(error).__name__}: {_short(error)}") from error

    def close(self) -> None:
        """End the process and what it started."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                os.close(end)
        self._ends = []
        pid, self._pid = self._pid, 0
        for kill in (os.killpg, os.kill) if pid else ():
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)


def check_call(session: Session, case: dict[str, Any]) -> None:
    """Call a function and compare what it returns."""
    function = session.link.ask({"q": "method", "name": case["function"]})
    value = function(*case["args"])
    if not agrees(value, case["expected"]):
        raise CaseFailed("another value was returned")


def agrees(value: Any, expected: Any) -> bool:
    """Whether a returned value is the expected one, given as a value or as its text."""
    if isinstance(value, Remote):
        return False
    if same_value(value, expected) or same_value(_as_json(value), expected):
        return True
    if isinstance(expected, list) and len(expected) == 1 and agrees(value, expected[0]):
        return True
    if not isinstance(expected, str) or isinstance(value, str):
        return False
    return any(
        same_value(found, value) or same_value(found, _as_json(value))
        for found in _readings(expected)
    ) or same_output(value, expected)


def _readings(text: str) -> Iterator[Any]:
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            yield read(text.strip())


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return value


def check_text(session: Session, case: dict[str, Any]) -> None:
    """Run a check's text with the program's names in it."""
    source = case["source"]
    tree = ast.parse(source)
    space = Names(session.link, tree).space()
    module = types.ModuleType("checks")
    module.__dict__.update(space)
    exec(compile(tree, "checks.py", "exec"), module.__dict__)  # noqa: S102
    _run_collected(module)
    if not session.link.used:
        raise NotUsed("the check never used the program")


def _run_collected(module: types.ModuleType) -> None:
    """Run what the text only defined: test functions without parameters, and test cases."""
    unittest = sys.modules.get("unittest")  # slow to import, and only there if the checks use it
    for name, found in list(vars(module).items()):
        if unittest and isinstance(found, type) and issubclass(found, unittest.TestCase):
            suite = unittest.defaultTestLoader.loadTestsFromTestCase(found)
            result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
            if not result.wasSuccessful() or not result.testsRun:
                raise CaseFailed(f"{name}: {result.testsRun} tests ran, not all passed")
        elif name.startswith("test") and _is_test(found):
            found()


def _is_test(found: Any) -> bool:
    return (
        isinstance(found, types.FunctionType)
        and found.__module__ == "checks"
        and not found.__code__.co_argcount
    )


def run_case(
    nursery: Nursery, job: dict[str, Any], case: dict[str, Any], deadline: float
) -> dict[str, Any]:
    """Return the status of one case: passed, failed, error, exited or timeout."""
    session: Session | None = None
    link: Link | None = None
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))
    try:
        session = Session(deadline)
        link = session.link
        session.start(nursery)
        session.load(job["source"], case.get("function"))
        (check_call if case["kind"] == "call" else check_text)(session, case)
        status, message = "passed", ""
    except (AssertionError, CaseFailed) as error:
        status, message = "failed", _short(error)
    except (OutOfTime, _Alarm):
        status, message = "timeout", ""
    except Gone as error:
        status, message = "exited", f"the program's process {_short(error)}"
    except ProgramExited as error:
        status, message = "exited", _short(error)
    except NotUsed as error:
        status, message = "unused", str(error)
    except LoadFailed as error:
        status, message = "error", str(error)
    except BaseException as error:  # noqa: BLE001  (whatever a check raises is its result)
        status, message = "error", f"{type(error).__name__}: {_short(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if session is not None:
            session.close()
    if link is not None and link.exited and status == "passed":
        status, message = "exited", "the program tried to exit during the check"
    return {"status": status, "message": message[:500]}


def _short(error: BaseException) -> str:
    return str(error)[:400]


class _Alarm(BaseException):
    pass


def _ring(*_: Any) -> None:
    raise _Alarm


def main(well_known: dict[str, str]) -> None:
    """Read the job, run its cases in order, report each, and at last how many there were."""
    ctypes_guard()
    WELL_KNOWN.update(well_known)
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd(), sys.path[0])]
    nursery = Nursery()
    job = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    sys.argv[:] = ["checks.py"]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    signal.signal(signal.SIGALRM, _ring)
    end = time.monotonic() + job["total_s"]
    for number, case in enumerate(job["cases"]):
        sys.stdout = io.StringIO()
        started = time.monotonic()
        result = run_case(nursery, job, case, min(started + job["case_s"], end))
        result.update(case=number, took_s=time.monotonic() - started)
        out.write(f"{job['nonce']} {json.dumps(result)}\n")
        out.flush()
    out.write(f"{job['nonce']} {json.dumps({'done': len(job['cases'])})}\n")
    out.flush()
    nursery.close()


def ctypes_guard() -> None:
    """Close this process to the eyes of others of the same user, where the system can."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
