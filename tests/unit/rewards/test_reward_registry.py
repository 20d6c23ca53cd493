"""Built-ins are found by name and by data source, and what is unknown is named."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from worker.rewards.errors import BadInput
from worker.rewards.registry import BUILTINS, Builtin, builtin, known_sources, route

VERL_SOURCES = {
    "openai/gsm8k": "gsm8k",
    "lighteval/MATH": "math",
    "DigitalLearningGmbH/MATH-lighteval": "math",
    "HuggingFaceH4/MATH-500": "math",
    "math_dapo": "math_dapo",
    "math": "math_dapo",
    "math_dapo_reasoning": "math_dapo",
    "aime2024": "math_dapo",
    "aime_2025": "math_dapo",
    "numina_aops_forum": "prime_math",
    "numina_synthetic_math": "prime_math",
    "numina_amc_aime": "prime_math",
    "numina_synthetic_amc": "prime_math",
    "numina_cn_k12": "prime_math",
    "numina_olympiads": "prime_math",
    "codecontests": "code",
    "apps": "code",
    "codeforces": "code",
    "taco": "code",
    "hiyouga/geometry3k": "geo3k",
    "searchR1_nq": "search_r1",
    "searchR1_triviaqa": "search_r1",
    "searchR1_popqa": "search_r1",
    "searchR1_hotpotqa": "search_r1",
    "searchR1_2wikimultihopqa": "search_r1",
    "searchR1_musique": "search_r1",
    "searchR1_bamboogle": "search_r1",
}
OURS = [each for each in BUILTINS if each.name != "code"]


@pytest.mark.parametrize(("source", "name"), VERL_SOURCES.items())
def test_every_data_source_of_verl_has_its_function(source: str, name: str) -> None:
    assert route(source).name == name


def test_a_row_without_a_data_source_goes_to_the_maths_verifier() -> None:
    assert route(None).name == "math_verify"


@pytest.mark.parametrize("source", ["gsm8k", "", "AIME", "openai/gsm8k ", "aim", 7])
def test_an_unknown_source_is_bad_input_that_lists_the_known_ones(source: str) -> None:
    with pytest.raises(BadInput) as caught:
        route(source)

    assert repr(source) in str(caught.value)
    assert all(known in str(caught.value) for known in known_sources())


def test_a_hostile_source_is_cut_in_the_message() -> None:
    with pytest.raises(BadInput) as caught:
        route("x" * 1_000_000)

    assert len(str(caught.value)) < 2_000


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'gsm8k'"):
        builtin("builtin:gms8k")
    with pytest.raises(BadInput, match="there are code, cosine_length"):
        builtin("nothing-like-it")


@pytest.mark.parametrize("each", OURS, ids=lambda each: each.name)
def test_every_target_loads_and_takes_verls_arguments(each: Builtin) -> None:
    function = each.load()
    parameters = inspect.signature(function).parameters

    assert list(parameters)[:4] == ["data_source", "solution_str", "ground_truth", "extra_info"]
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    assert inspect.iscoroutinefunction(function) == (each.executor == "async")


def test_what_calls_the_maths_library_runs_in_a_killable_process() -> None:
    hanging = ("math_verify", "prime_math", "geo3k", "cosine_length")

    assert {builtin(name).executor for name in hanging} == {"process"}


def test_the_registry_imports_no_function() -> None:
    code = (
        "import sys; import worker.rewards.registry; "
        "print([m for m in ('sympy', 'httpx', 'math_verify') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("each", BUILTINS, ids=lambda each: each.name)
def test_the_page_on_rewards_has_every_function_with_its_sources(each: Builtin) -> None:
    page = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{each.name}` |"))

    assert all(f"`{source}`" in row for source in each.sources)
    assert row.rstrip(" |").endswith(each.executor)


@pytest.mark.parametrize("name", ["math_verify", "prime_math", "geo3k"])
def test_the_maths_library_is_loaded_before_the_first_row(name: str) -> None:
    code = (
        "import sys; from worker.rewards.registry import builtin; "
        f"it = builtin({name!r}); it.load(); early = 'sympy' in sys.modules; it.prepare(); "
        "print(early, 'sympy' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]
