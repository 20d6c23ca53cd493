"""Limits, names, options and replies, without Redis."""

from __future__ import annotations

import email.utils
import subprocess
import sys
import time

import pytest

import limiter
from limiter import BadLimits, Limiter, Limits, errors, retry_after_seconds
from limiter.keys import Keys, encode_name, name_of
from limiter.options import checked_options, checked_retry_ms
from limiter.replies import layer_names, read_acquire
from limiter.usage import _differences


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_concurrent", -1),
        ("rpm", -5),
        ("tpm", 0.5),
        ("rpm", "600"),
        ("rpm", True),
        ("rpm", float("nan")),
        ("tpm", 10**16),
        ("burst_s", 0),
        ("burst_s", -1),
        ("burst_s", float("inf")),
        ("oversize", "drop"),
        ("strict", 1),
        ("refund", None),
        ("name", ""),
        ("name", "x" * 201),
        ("name", 5),
    ],
)
def test_nonsense_is_refused_with_the_field_and_the_value(field: str, value: object) -> None:
    with pytest.raises(BadLimits, match=field):
        Limits(**({"name": "x"} | {field: value}))  # type: ignore[arg-type]


def test_sizes_that_lua_cannot_count_are_refused_by_name() -> None:
    assert Limits(name="x", tpm=10**12, burst_s=9).tpm == 10**12
    with pytest.raises(BadLimits, match="tpm"):
        Limits(name="x", tpm=10**12, burst_s=9.01)
    with pytest.raises(BadLimits, match="tpm"):
        Limits(name="x", tpm=10**12, strict=True)


def test_the_burst_is_a_minute_or_under_strict_a_second() -> None:
    assert Limits(name="x", rpm=600).capacity(600) == 600
    assert Limits(name="x", rpm=600, strict=True).capacity(600) == 10
    assert Limits(name="x", rpm=6, burst_s=1).capacity(6) == 1
    with pytest.raises(BadLimits, match="below 60"):
        Limits(name="x", strict=True, burst_s=60)


def test_whole_floats_are_numbers() -> None:
    assert Limits(name="x", rpm=600.0).rpm == 600  # type: ignore[arg-type]


def test_limits_survive_the_wire() -> None:
    limits = Limits("n", 5, None, 90, burst_s=0.5, strict=True, oversize="error", refund=False)
    names = ("max_concurrent", "rpm", "tpm", "burst_ms", "strict", "oversize", "refund")
    assert Limits.from_wire("n", dict(zip(names, limits.to_wire(), strict=True))) == limits


@pytest.mark.parametrize("name", ["judge", "a b", "{x}", "}", "ü", "a%b", "gpt-4o/prod:1"])
def test_names_come_back_from_their_keys(name: str) -> None:
    keys = Keys.of(name)
    assert name_of(keys.settings) == name
    assert keys.settings.count("{") == keys.settings.count("}") == 1
    assert keys.settings.isascii()
    assert " " not in keys.settings


def test_names_that_are_not_text_are_refused() -> None:
    with pytest.raises(BadLimits, match="name"):
        encode_name("\ud800")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 1), (2, 2), (0.3, 0.3), ("2", 2), (" 7 ", 7), (-3, 0), ("-3", 0), ("rubbish", 1)],
)
def test_retry_after_is_read(given: float | str | None, seconds: float) -> None:
    assert retry_after_seconds(given) == seconds


def test_retry_after_may_be_a_date() -> None:
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < retry_after_seconds(later) <= 100
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def test_a_long_pause_is_cut_and_rounded_up(caplog: pytest.LogCaptureFixture) -> None:
    assert checked_retry_ms("judge", 0.0001) == 1
    assert checked_retry_ms("judge", 301) == 300_000
    assert "pause cut limit=judge" in caplog.text


@pytest.mark.parametrize(
    "options", [(-1, 60, 0), (1, 0, 0), (1, 43_201, 0), (1, 60, -1), ("1", 60, 0), (True, 60, 0)]
)
def test_options_out_of_range_are_refused(options: tuple) -> None:
    with pytest.raises(BadLimits, match="_s: "):
        checked_options(*options)


async def test_costs_that_make_no_sense_are_refused() -> None:
    made = Limiter("redis://localhost:1/0", Limits(name="x"))
    for tokens in (-1, 1.5, True, "5"):
        with pytest.raises(BadLimits, match="tokens"):
            await made.acquire(tokens=tokens)  # type: ignore[arg-type]
    await made.close()


def test_every_error_is_a_limiter_error_and_drawn() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    for error in found:
        assert issubclass(error, errors.LimiterError)
        assert error.__name__ in (errors.__doc__ or "")
        assert error.__doc__


def test_exports_match() -> None:
    assert sorted(limiter.__all__) == limiter.__all__
    for name in limiter.__all__:
        assert hasattr(limiter, name)


def test_the_limiter_is_thin() -> None:
    code = "import limiter, sys; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    for heavy in ("'torch'", "'transformers'", "'tokenizers'", "'numpy'", "'worker'", "'rq'"):
        assert heavy not in modules


def test_replies_are_read_with_what_rides_in_them() -> None:
    assert read_acquire(17).fence == 17
    answer = read_acquire([0, 300, 5, 1, [b"a", 9, 50], b"b", 10])
    assert (answer.wait_ms, answer.place, layer_names(answer.layers)) == (
        300,
        1,
        "concurrency, tpm",
    )
    assert (answer.rides.grants[0].id, answer.rides.head) == ("a", "b")


def test_history_is_the_difference_of_running_totals() -> None:
    totals = {
        10: (1000_000, 5, 1, 0, 0, 0, 0),
        11: (1000_000, 9, 1, 0, 2, 500, 0),
        15: (2000_000, 3, 0, 1, 0, 0, 1),  # born again
    }
    minutes = list(_differences(totals))
    assert [(m.start_s, m.grants, m.refusals) for m in minutes] == [
        (600, 5, 1),
        (660, 4, 0),
        (900, 3, 0),
    ]
    assert minutes[1].wait_s_total == 0.5
