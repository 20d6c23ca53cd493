"""Finding functions by name, and telling async ones."""

from __future__ import annotations

import functools
import sys

import pytest

from worker.scoring.functions import is_async, load
from worker.settings import SettingsError


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "my_rewards.py"
    path.write_text(
        "import beside\n"
        "runs = []\n"
        "runs.append(1)\n"
        "def compute_score(solution_str): return len(runs)\n"
        "class Holder:\n"
        "    @staticmethod\n"
        "    def score(solution_str): return 2\n"
        "number = 3\n"
    )
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "broken.py").write_text("raise SystemExit('no key set')\n")
    yield path
    sys.modules.pop("beside", None)
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def test_a_file_is_run_once_however_often_it_is_named(module):
    first = load(f"{module}:compute_score")
    assert load(f"{module}:Holder.score")("") == 2
    assert load(f"{module}:compute_score") is first
    assert first("") == 1


def test_a_function_is_found_in_a_package_with_colon_or_dot():
    assert load("json:dumps") is load("json.dumps") is load("pkg://json:dumps")


def test_a_built_in_is_found_by_its_name():
    assert load("builtin:gsm8k")("openai/gsm8k", "#### 42", "42") == 1.0


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("{file}:missing", "has no 'missing'"),
        ("{file}:number", "int, not callable"),
        ("{folder}/absent.py:f", "no file"),
        ("{folder}/broken.py:f", "SystemExit: no key set"),
        ("no_such_package:f", "ModuleNotFoundError"),
        ("nonsense", "none of"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_the_reason(module, spec, names):
    with pytest.raises(SettingsError, match=names):
        load(spec.format(file=module, folder=module.parent))


def test_async_is_seen_through_partials_and_callable_objects():
    async def score(solution_str, x=1):
        return 1

    class Scorer:
        async def __call__(self, solution_str):
            return 1

        async def method(self, solution_str):
            return 1

    assert is_async(score)
    assert is_async(functools.partial(functools.partial(score, x=1), x=2))
    assert is_async(Scorer())
    assert is_async(Scorer().method)
    assert not is_async(lambda solution_str: 1)
    assert not is_async(Scorer)
