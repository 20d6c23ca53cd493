"""`rewardpool check` tells a sound reward function from one that would spoil a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from judge_stub import Answer, JudgeStub, verdict

from worker.ops.commands.check import command

SOUND = """
    text = solution_str.split()
    return {"score": float(text[-1:] == [ground_truth]), "words": len(text)}
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Checks a function with this body; returns the command's result."""
    monkeypatch.chdir(tmp_path)

    def run(body: str, *arguments: str, signature: str | None = None) -> Result:
        names = signature or "data_source, solution_str, ground_truth, extra_info=None, **kwargs"
        define = "" if body.lstrip().startswith("async") else "def"
        body = body.replace("async", "", 1) if not define else body
        keyword = "async def" if not define else "def"
        source = f"import os, random, re, time\n{keyword} compute_score({names}):\n{body}\n"
        # A module is executed once a process and path, so each function gets a file of its own.
        path = tmp_path / f"my_reward_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(source)
        return CliRunner().invoke(command, [str(path), *arguments])

    return run


def statuses(result: Result) -> dict[str, str]:
    """Each check's status, from `--json`."""
    return {each["name"]: each["status"] for each in json.loads(result.stdout)["checks"]}


def test_a_sound_function_is_ready(check: Any) -> None:
    result = check(SOUND)

    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip().endswith("ready")
    assert "a right response earns 1.0" in result.stdout
    assert "extra fields: score, words" in result.stdout


def test_json_has_every_check_by_name(check: Any) -> None:
    result = check(SOUND, "--json")

    assert set(statuses(result)) == {
        "full", "zero", "malformed", "hedging", "missing", "deterministic", "return types", "time",
    }  # fmt: skip
    assert set(statuses(result).values()) == {"passed"}
    assert json.loads(result.stdout)["ok"] is True


@pytest.mark.parametrize(
    ("body", "name", "words"),
    [
        ("    return solution_str.index('4') * 1.0", "malformed", "ValueError"),
        ("    return 1.0", "full", None),
        ("    return random.random()", "deterministic", "the next time"),
        ("    return 'good'", "return types", "bad_score"),
        ("    return float('nan')", "return types", "bad_score"),
        ("    return {'reward': 1}", "return types", "score"),
        ("    if not solution_str: os._exit(3)\n    return 0.0", "malformed", "scorer_error"),
        ("    raise SystemExit", "full", "no right response is scored"),
        ("    return float('41' not in solution_str)", "malformed", "earns the full reward"),
        (
            "    return float(re.match(r'(a+)+$', solution_str) is not None)",
            "time",
            "5,000 letters: timeout",
        ),
    ],
)
def test_a_fault_is_found_and_told(check: Any, body: str, name: str, words: str | None) -> None:
    # Only what never ends should run into a timeout, on a loaded machine too.
    result = check(body, "--json", "--timeout-s", "1" if name == "time" else "60")

    found = {each["name"]: each for each in json.loads(result.stdout)["checks"]}
    assert found[name]["status"] == ("failed" if words else "warned"), found
    assert (words or "--right") in found[name]["detail"]
    assert result.exit_code == (1 if words else 0)


def test_a_function_that_pays_for_two_answers_at_once_is_warned_of(check: Any) -> None:
    result = check("    return float(str(ground_truth) in solution_str)", "--json")

    assert statuses(result)["hedging"] == "warned"
    assert result.exit_code == 0


def test_fields_that_come_and_go_are_warned_of(check: Any) -> None:
    result = check("    return {'score': 1.0, 'x': 1} if '42' in solution_str else 0.0", "--json")

    assert statuses(result)["return types"] == "warned"


def test_an_async_function_is_awaited(check: Any) -> None:
    result = check("async\n    return float(solution_str.split()[-1:] == [ground_truth])")

    assert result.exit_code == 0, result.output


def test_right_and_wrong_responses_may_be_given(check: Any) -> None:
    body = "    return {'yes': 1.0, 'hm': 0.5}.get(solution_str, 0.0)"
    texts = ["--right", "yes", "--wrong", "no"]

    assert check(body, *texts).exit_code == 0
    failed = check(body, *texts, "--wrong", "yes", "--json")
    assert statuses(failed)["full"] == "failed"


def test_rows_of_ones_own_are_tried_too(check: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    records = [{"response": f"it is {n}", "ground_truth": "3"} for n in range(5)]
    rows.write_text("\n".join(map(json.dumps, records)))

    result = check(SOUND, "--rows", str(rows), "--max-rows", "4")

    assert "4 rows earn 0 to 1, mean 0.25" in result.stdout
    rows.write_text("not json\n")
    bad = check(SOUND, "--rows", str(rows))
    assert (bad.exit_code, "line 1: not JSON" in bad.stderr) == (2, True)


def test_keyword_arguments_reach_the_function(check: Any) -> None:
    body = "    return {'score': bonus * (solution_str == ground_truth)}"
    signature = "data_source, solution_str, ground_truth, *, bonus"

    assert (
        "a right response earns 3.0"
        in check(body, "--kwargs", '{"bonus": 3}', signature=signature).stdout
    )
    missing = check(body, signature=signature)
    assert (missing.exit_code, "needs 'bonus'" in missing.stderr) == (2, True)
    misspelled = check(body, "--kwargs", '{"bonnus": 3, "bonus": 1}', signature=signature)
    assert (misspelled.exit_code, "did you mean 'bonus'" in misspelled.stderr) == (2, True)


def test_what_the_settings_say_of_the_function_is_used(
    judge: JudgeStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rewardpool.toml").write_text(
        '[reward.sources."essay"]\nfunction = "builtin:judge"\n'
        f'[reward.sources."essay".kwargs]\nbase_url = "{judge.url}"\nmodel = "m"\n'
    )

    def grade(_: int, asked: dict[str, Any]) -> Answer:
        lines = asked["messages"][0]["content"].split("\n")
        first, last = (at for at, line in enumerate(lines) if re.match("-----[0-9a-f]{24}", line))
        response = "".join(lines[first + 1 : last])
        return verdict(float("42" in response and "41" not in response))

    judge.script = grade

    result = CliRunner().invoke(command, ["builtin:judge", "--json", "--timeout-s", "60"])

    assert result.exit_code == 0, result.output
    assert {statuses(result)[name] for name in ("full", "zero", "malformed", "hedging")} == {
        "passed"
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "there is no file"),
        (["builtin:gsm9k"], "did you mean 'gsm8k'"),
        (["nowhere.at_all:name"], "nowhere"),
        (["builtin:gsm8k", "--kwargs", "{"], "--kwargs: not JSON"),
        (["builtin:gsm8k", "--extra-info", "[1]"], "--extra-info: a JSON object is needed"),
        (["builtin:overlong"], "needs 'max_length'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(command, arguments)

    assert (result.exit_code, words in result.stderr) == (2, True), result.output
    assert "Traceback" not in result.output


def test_a_name_in_the_file_may_be_given(tmp_path: Path) -> None:
    path = tmp_path / "named_reward.py"
    path.write_text("def other(solution_str, ground_truth):\n    return 0.0\n")

    assert CliRunner().invoke(command, [f"{path}:other"]).exit_code == 0
    absent = CliRunner().invoke(command, [str(path)])
    assert (absent.exit_code, "compute_score" in absent.stderr) == (2, True)


@pytest.mark.parametrize(
    "name", ["gsm8k", "gsm8k_flexible", "math", "math_verify", "math_dapo", "search_r1"]
)
def test_our_own_functions_are_ready(name: str) -> None:
    result = CliRunner().invoke(command, [f"builtin:{name}", "--json", "--timeout-s", "60"])

    assert "failed" not in statuses(result).values(), result.output
    assert statuses(result)["full"] == "passed"


def test_limits_of_the_settings_are_taken_without_any_redis_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first try on a laptop: the settings name a limit, and nothing listens at the default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("REWARDPOOL_CONFIG", str(tmp_path / "rewardpool.toml"))
    (tmp_path / "rewardpool.toml").write_text("[limits.judge]\nmax_concurrent = 2\n")
    (tmp_path / "limited.py").write_text(
        "async def compute_score(solution_str, ground_truth, *, limits, **rest):\n"
        '    async with limits["judge"].lease():\n'
        "        return float(solution_str.split()[-1:] == [ground_truth])\n"
    )

    result = CliRunner().invoke(command, ["limited.py"])

    assert result.exit_code == 0, result.output
    assert "a right response earns 1.0" in result.stdout
