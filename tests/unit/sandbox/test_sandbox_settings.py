"""The settings of the sandbox."""

from __future__ import annotations

import pytest

from worker.settings import SettingsError, settings_from


def test_a_limit_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"sandbox\.limit.*'sandbx'.*did you mean 'sandbox'"):
        settings_from({"sandbox": {"limit": "sandbx"}, "limits": {"sandbox": {"rpm": 1}}})
    assert settings_from({"sandbox": {"url": "http://a"}}).sandbox.limit == "sandbox"
    named = {"sandbox": {"limit": "mine"}, "limits": {"mine": {"max_concurrent": 3}}}
    assert settings_from(named).sandbox.limit == "mine"


def test_a_refusal_shows_no_secret() -> None:
    tree = {"redis": {"url": "redis://:s3cret@h/0"}, "sandbox": {"limit": "x"}}
    with pytest.raises(SettingsError) as caught:
        settings_from(tree)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value) == "settings: sandbox.limit: there is no limit 'x'"


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_timeout_s", 0), ("memory_limit_mb", 1), ("retries", 0), ("http_timeout_s", -1)],
)
def test_nonsense_is_refused_by_name(key: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"sandbox.{key}"):
        settings_from({"sandbox": {key: value}})
