"""Nonsense is refused where the client is made, by name and value."""

from __future__ import annotations

import pickle

import pytest

from queue_client import RewardClient

URL = "redis://localhost:1/0"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue", ""),
        ("queue", " rewards"),
        ("queue", "two\nlines"),
        ("queue", 7),
        ("rows_per_job", 0),
        ("rows_per_job", 1e9),
        ("rows_per_job", True),
        ("max_in_flight", 0),
        ("max_in_flight", 1.5),
        ("when_full", "drop"),
        ("no_worker", "ignore"),
        ("gather_s", -1),
        ("gather_s", "soon"),
        ("connect_timeout_s", 0),
        ("connect_timeout_s", float("nan")),
        ("outage_s", None),
    ],
)
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}: ") as caught:
        RewardClient(URL, **{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:6379", "", None, "http//x"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match=r"^url: "):
        RewardClient(url)


def test_a_url_of_an_unknown_scheme_is_refused():
    with pytest.raises(
        ValueError, match=r"url: redis://… or rediss://… or unix://… expected \(got http://…\)"
    ):
        RewardClient("http://localhost:6379")


@pytest.mark.parametrize("timeout_s", [0, -1, "5", True, float("nan")])
def test_a_wrong_timeout_is_named(timeout_s):
    with pytest.raises(ValueError, match=r"^timeout_s: "):
        RewardClient(URL).score([], timeout_s=timeout_s)


def test_the_password_is_in_no_repr():
    assert "secret" not in repr(RewardClient("redis://:secret@localhost:1/0").options)


def test_a_copy_in_another_process_has_the_same_options():
    made = RewardClient("redis://:secret@localhost:1/0", queue="later", rows_per_job=7)
    again = pickle.loads(pickle.dumps(made))
    assert again.options == made.options
    assert again.in_flight == 0
