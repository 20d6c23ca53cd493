"""What a function may return, and what becomes of it."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest

from worker.scoring.results import BadScore, plain, verdict


class Grade(IntEnum):
    GOOD = 1


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), np.array(1.0), np.array([1.0]),
     Decimal(1), Fraction(1), Grade.GOOD, (1.0, "more"), {"score": 1}, OrderedDict(score=True)],
    ids=repr,
)  # fmt: skip
def test_every_kind_of_number_becomes_a_plain_float(value):
    found = verdict(value)

    assert found.reward == 1.0
    assert type(found.reward) is float


def test_a_torch_scalar_becomes_a_plain_float():
    torch = pytest.importorskip("torch")

    assert verdict(torch.tensor(0.5)).reward == 0.5
    assert verdict(torch.tensor([0.5], requires_grad=True)).reward == 0.5
    assert verdict({"score": torch.tensor(1), "all": torch.ones(2)}).extra["all"] == [1.0, 1.0]


def test_none_means_skipped_and_is_no_zero():
    assert verdict(None).reward is None
    assert verdict({"score": None, "why": "no answer"}).extra == {
        "score": None,
        "why": "no answer",
    }


def test_a_dict_keeps_all_its_keys_and_a_number_is_reported_as_acc():
    assert verdict({"score": 0.5, "acc": True}).extra == {"score": 0.5, "acc": True}
    assert verdict(0.5).extra == {"acc": 0.5}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (float("nan"), "not finite"),
        (np.inf, "not finite"),
        ({"score": float("-inf")}, "score"),
        ({"score": 1, "loss": float("nan")}, "loss"),
        ({"scores": 1}, "scores"),
        ("1.0", "str"),
        ((), "empty"),
        ([1.0], "list"),
        (1 + 2j, "complex"),
        (np.ones(3), "not one number"),
        (object(), "object"),
        ({"score": 1, "model": object()}, "model"),
        (10**400, "not a number"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_what_is_no_finite_number_is_a_bad_score_that_says_why(value, names):
    with pytest.raises(BadScore, match=names):
        verdict(value)


def test_a_structure_that_contains_itself_is_a_bad_score():
    endless: dict[str, object] = {"score": 1.0}
    endless["again"] = endless

    with pytest.raises(BadScore, match="nested"):
        verdict(endless)


def test_usage_is_read_from_a_number_and_from_a_judges_reply():
    assert verdict({"score": 1, "usage": 120}).usage == 120
    assert verdict({"score": 1, "usage": {"prompt_tokens": 1, "total_tokens": 7}}).usage == 7
    assert verdict({"score": 1}).usage is None
    with pytest.raises(BadScore, match="below zero"):
        verdict({"score": 1, "usage": -1})


def test_extra_fields_leave_as_plain_data_that_json_can_write():
    @dataclass
    class Reply:
        text: str

        def model_dump(self):
            return {"text": self.text}

    given = {
        "score": np.float32(0.5),
        "ids": np.arange(3),
        "kind": Grade.GOOD,
        "pair": (1, 2),
        "set": {3},
        "raw": b"abc",
        "reply": Reply("yes"),
        5: np.str_("five"),
    }

    extra = verdict(given).extra

    assert json.loads(json.dumps(extra)) == extra
    assert extra["ids"] == [0, 1, 2]
    assert extra["reply"] == {"text": "yes"}
    assert type(extra["5"]) is str


def test_a_flag_stays_a_flag():
    assert plain(True) is True
    assert plain(np.bool_(False)) is False
