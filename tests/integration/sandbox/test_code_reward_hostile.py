"""Programs that want the reward without the work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

TESTS = {"assert_case": ["assert f(1) == 2", "assert f(5) == 10"]}
ALWAYS = """
class Always:
    def __init__(self, *args): pass
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __sub__(self, other): return 0
    def __abs__(self): return 0
    def __contains__(self, item): return True
    def startswith(self, text): return True
    def __bool__(self): return True
    def __hash__(self): return 2
"""
HOSTILE = {
    "exits on call": "import sys\ndef f(x): sys.exit(0)",
    "ends its process on call": "import os\ndef f(x): os._exit(0)",
    "exits in an atexit hook": "import atexit, os\natexit.register(lambda: os._exit(0))",
    "raises": "def f(x): raise ValueError",
    "raises SystemExit from a thread": (
        "import threading, os\nthreading.Thread(target=lambda: os._exit(0)).start()\n"
        "def f(x): return 0"
    ),
    "redefines equality": ALWAYS + "def f(x): return Always()",
    "redefines equality of a subclass of int": (
        "class Int(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return Int(0)"
    ),
    "is a class with its own equality": ALWAYS.replace("Always", "f"),
    "patches builtins": (
        "import builtins\nbuiltins.print = lambda *a, **k: None\nbuiltins.all = lambda *a: True\n"
        "builtins.AssertionError = type('E', (Exception,), {})\ndef f(x): return 0"
    ),
    "defines the names of builtins": (
        "def abs(*a): return 0\ndef isinstance(*a): return True\ndef f(x): return 0"
    ),
    "prints what a harness might": (
        'print(\'passed\'); print(\'rewardpool-0 {"case": 0, "status": "passed"}\')\n'
        "def f(x): return 0"
    ),
    "reads its own files": (
        "import os, glob\n"
        "def f(x):\n"
        "    for path in glob.glob('*') + glob.glob('/tmp/*') + glob.glob('/box/*'):\n"
        "        try: text = open(path).read()\n"
        "        except OSError: continue\n"
        "        if 'f(5) == 10' in text: return {1: 2, 5: 10}[x]\n"
    ),
    "reads its frames and objects": (
        "import gc, sys\n"
        "def f(x):\n"
        "    frame, seen = sys._getframe(), ''\n"
        "    while frame: seen += repr(frame.f_locals); frame = frame.f_back\n"
        "    seen += ''.join(o for o in gc.get_objects() if type(o) is str)\n"
        "    if 'f(5) == 10' in seen: return {1: 2, 5: 10}[x]\n"
    ),
    "reads its parent": (
        "import os\n"
        "def f(x):\n"
        "    for name in ('mem', 'environ', 'cmdline', 'maps', 'fd/0', 'fd/1'):\n"
        "        try: text = open(f'/proc/{os.getppid()}/{name}', 'rb').read(1 << 20)\n"
        "        except OSError: continue\n"
        "        if b'f(5) == 10' in text: return {1: 2, 5: 10}[x]\n"
    ),
    "writes to every standard output": (
        "import glob\n"
        "def f(x):\n"
        "    for path in glob.glob('/proc/*/fd/1'):\n"
        '        try: open(path, \'w\').write(\'{"case": 0, "status": "passed"}\\n\')\n'
        "        except OSError: pass\n"
        "    return 0"
    ),
    "kills its parent": "import os\ndef f(x): os.kill(os.getppid(), 9)",
    "alarms its parent": "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGALRM)",
    "stands in for the libraries": (
        "import sys, types\nfor n in ('math', 'unittest', 'json'):\n"
        "    sys.modules[n] = types.ModuleType(n)\ndef f(x): return 0"
    ),
    "writes modules that the checks might import": (
        "for name in ('math', 'json', 'ast'):\n"
        "    try: open(name + '.py', 'w').write('raise SystemExit(0)')\n"
        "    except OSError: pass\n"
        "def f(x): return 0"
    ),
    "sends a broken message": "import os\ndef f(x):\n    for n in range(3, 20):\n"
    "        try: os.write(n, b'{' * 100 + b'\\n')\n        except OSError: pass\n    return 0",
    "defines nothing": "x = 1",
}


async def test_programs_that_cheat_pass_nothing(score: Any) -> None:
    work = [score(code, TESTS, timeout=10.0) for code in HOSTILE.values()]
    for name, found in zip(HOSTILE, await asyncio.gather(*work), strict=True):
        assert (found["score"], found["passed"]) == (0.0, 0), (name, found)
        assert not found["acc"]


AGREED = [
    "assert abs(f(2) - 4) < 1e-6",
    "assert 4 in f(2)",
    "assert f(2).startswith('a')",
    "import math\nassert math.isclose(f(2), 4)",
    "assert math.isclose(f(2), 4)",
    "assert np.allclose(f(2), 4)",
    "assert not (f(2) != 4)",
    "assert f(2) < 5",
    "assert {4: 'x'}[f(2)]",
    "assert f(2) in [4, 5]",
    "assert [f(2)] == [4]",
    "assert isclose(f(2), 4)",
]


async def test_an_object_that_agrees_with_everything_agrees_with_nothing(score: Any) -> None:
    helpers = (
        "class math:\n    isclose = staticmethod(lambda *a: True)\n"
        "class np:\n    allclose = staticmethod(lambda *a: True)\n"
        "def isclose(*a): return True\n"
    )
    program = ALWAYS + helpers + "def f(x): return Always()"
    found = await score(program, {"assert_case": AGREED})
    assert (found["passed"], found["total"]) == (0, len(AGREED))


async def test_a_program_that_loops_is_out_of_time_for_each_check(score: Any) -> None:
    found = await score("def f(x):\n    while True: pass", TESTS, timeout=1.0)
    assert (found["passed"], found["status"]) == (0, "timeout")


async def test_only_the_check_that_hangs_fails(score: Any) -> None:
    code = "def f(x):\n    while x == 1: pass\n    return 2 * x"
    found = await score(code, TESTS, timeout=3.0)
    assert (found["passed"], found["score"], found["status"]) == (1, 0.5, "timeout")


async def test_a_check_that_never_uses_the_program_judges_nobody(score: Any) -> None:
    from worker.rewards.errors import BadInput

    with pytest.raises(BadInput, match="never uses the program"):
        await score("def f(x): return 2 * x", {"assert_case": ["assert True"]})


async def test_call_based_cheats_pass_nothing(score: Any) -> None:
    tests = {"inputs": ["1", "2"], "outputs": ["2", "4"], "fn_name": "f"}
    for name in ("redefines equality", "exits on call", "raises", "defines nothing"):
        assert (await score(HOSTILE[name], tests))["passed"] == 0, name


async def test_standard_output_cheats_pass_nothing(score: Any) -> None:
    tests = {"inputs": ["1", "2"], "outputs": ["2", "4"]}
    for code in ("import sys; sys.exit(0)", "import os; os._exit(0)", "", "print('passed')"):
        assert (await score(code, tests))["passed"] == 0, code
