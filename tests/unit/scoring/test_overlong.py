"""DAPO's overlong penalty: clamped, typed and checked."""

from __future__ import annotations

import pytest

from worker.scoring.managers.dapo import Overlong
from worker.settings import SettingsError


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (6, 0.0), (7, -0.25), (8, -0.5), (10, -1.0), (14, -1.0), (10_000, -1.0)],
)
def test_the_penalty_grows_to_its_factor_and_no_further(length, penalty):
    overlong = Overlong(longest=10, buffer=4, factor=1.0, log=True)

    assert overlong.penalty(length) == penalty
    assert type(overlong.penalty(length)) is float


def test_a_disabled_buffer_asks_for_nothing():
    assert Overlong.of({}) is None
    assert Overlong.of({"overlong_buffer_cfg": {"enable": False, "len": 0}}) is None


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"overlong_buffer_cfg": {"enable": True, "len": 4}}, "max_resp_len"),
        ({"max_resp_len": 4, "overlong_buffer_cfg": {"enable": True, "len": 8}}, "len"),
        ({"max_resp_len": 4, "overlong_buffer_cfg": {"enable": True, "len": 0}}, "len"),
        ({"max_resp_len": 4, "overlong_buffer_cfg": {"enable": "yes"}}, "enable"),
        ({"max_resp_len": 4, "overlong_buffer_cfg": {"enabled": True}}, "enabled"),
        (
            {"max_resp_len": 4, "overlong_buffer_cfg": {"enable": True, "len": 2,
                                                       "penalty_factor": -1}},
            "penalty_factor",
        ),
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_the_field(kwargs, names):
    with pytest.raises(SettingsError, match=names):
        Overlong.of(kwargs)
