"""Plain values cross between a program and its checks; behaviour does not."""

from __future__ import annotations

import collections
import datetime
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from worker.sandbox.harness.codec import decode, encode

VALUES: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, "ä\n", "", [1, [2]], (1, (2,)), {"a": 1, (1, 2): [3]},
    {1, 2}, frozenset({1}), b"\x00\xff", bytearray(b"a"), 1 + 2j, range(1, 9, 2),
    collections.deque([1, 2], 5), Decimal("1.10"), Fraction(1, 3), datetime.timedelta(1, 2, 3),
    datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4), datetime.time(3, 4),
    collections.Counter("aab"), collections.OrderedDict(a=1, b=2), 10**5000, math.inf,
]  # fmt: skip


def refuse(value: Any) -> Any:
    raise AssertionError(f"not plain: {value!r}")


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value, refuse))), refuse)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_plain_values_arrive_equal_and_of_the_same_kind(value: Any) -> None:
    found = there_and_back(value)
    assert type(found) is type(value)
    assert found == value


def test_what_is_special_arrives() -> None:
    assert math.isnan(there_and_back(math.nan))
    point = collections.namedtuple("Point", "x y")(1, 2)
    assert there_and_back(point) == (1, 2)
    assert there_and_back(point).y == 2
    array = np.array([[1.5, 2], [3, 4]])
    assert (there_and_back(array) == array).all()
    assert there_and_back(np.float32(0.5)) == 0.5
    assert there_and_back(collections.defaultdict(int, a=1)) == {"a": 1}


def test_a_value_cannot_bring_its_own_equality() -> None:
    class Always(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    class Same(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    for value in (Always("no"), Same(3), [Always("no")]):
        assert there_and_back(value) != "yes"
        assert there_and_back(value) != ["yes"]
    assert type(there_and_back(Always("no"))) is str
    assert type(there_and_back(Same(3))) is int


def test_what_is_not_plain_becomes_a_reference_even_when_it_contains_itself() -> None:
    def refer(value: Any) -> dict[str, Any]:
        return {"$": "ref", "type": type(value).__name__}

    loop: list[Any] = []
    loop.append(loop)
    assert "ref" in json.dumps(encode(loop, refer))
    assert encode([object()], refer) == [{"$": "ref", "type": "object"}]
    assert decode([{"$": "ref"}], lambda form: "resolved") == ["resolved"]
