"""A built-in that is named in the settings and does not exist ends the start."""

from __future__ import annotations

import pytest

from worker.scoring.engine import ScoringEngine
from worker.scoring.functions import load
from worker.settings import SettingsError, settings_from


def test_a_misspelled_builtin_is_a_settings_error_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean 'gsm8k'"):
        load("builtin:gms8k")


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({}, "endpoints: give at least one base URL"),
        ({"base_url": "localhost:80", "model": "m"}, "no http or https URL"),
        ({"base_url": "http://h", "model": "m", "template": "x"}, "template: does not contain"),
        ({"base_url": "http://h", "model": "m", "api_key_env": "NO_SUCH"}, "NO_SUCH is not set"),
        ({"base_url": "http://h", "modle": "m"}, "did you mean 'model'"),
    ],
)
async def test_a_judge_that_cannot_be_asked_ends_the_start(
    kwargs: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    sources = {"essay": {"function": "builtin:judge", "kwargs": kwargs}}
    engine = ScoringEngine(settings_from({"reward": {"sources": sources}}))

    with pytest.raises(SettingsError, match=words):
        await engine.start()

    await engine.close()
