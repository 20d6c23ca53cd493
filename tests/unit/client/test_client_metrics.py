"""Numbers for a trainer's log."""

from __future__ import annotations

import statistics

import pytest

from queue_client import Kind, Outcome
from queue_client.metrics import MAX_NAMES, Meter, metrics_of


def test_rewards_are_under_the_names_of_both_trainers():
    rewards = [1.0, 0.0, 0.5, 0.25]
    found = metrics_of([Outcome.scored(reward) for reward in rewards])
    mean = statistics.mean(rewards)
    assert found["reward"] == pytest.approx(mean)
    assert found["reward_std"] == pytest.approx(statistics.stdev(rewards))
    for name in ("critic/score", "critic/rewards"):
        assert found[f"{name}/mean"] == pytest.approx(mean)
        assert (found[f"{name}/max"], found[f"{name}/min"]) == (1.0, 0.0)
    assert found["failed_frac"] == 0


def test_failures_are_fractions_by_kind_and_count_in_no_mean():
    found = metrics_of(
        [
            Outcome.scored(1.0),
            Outcome.failed(Kind.TIMEOUT, ""),
            Outcome.failed(Kind.TIMEOUT, ""),
            Outcome.failed(Kind.BAD_SCORE, ""),
        ]
    )
    assert found["reward"] == 1.0
    assert found["failed_frac"] == 0.75
    assert found["error/timeout"] == 0.5
    assert found["error/bad_score"] == 0.25


def test_extra_numbers_have_means_and_texts_have_none():
    found = metrics_of(
        [
            Outcome.scored(1.0, {"acc": True, "pred": "x", "length": 4}),
            Outcome.scored(0.0, {"acc": False, "nan": float("nan")}),
        ]
    )
    assert found["rewards/acc/mean"] == found["reward_extra/acc/mean"] == 0.5
    assert found["rewards/length/mean"] == 4
    assert not any("pred" in name or "nan" in name for name in found)


def test_groups_without_spread_are_counted():
    outcomes = [
        Outcome.scored(reward, uid=uid)
        for uid, reward in [("a", 1), ("a", 1), ("b", 0), ("b", 1), ("alone", 1)]
    ]
    assert metrics_of(outcomes)["frac_reward_zero_std"] == 0.5


def test_nothing_counted_is_nothing_said():
    assert metrics_of([]) == {}


def test_only_failures_have_no_reward():
    assert "reward" not in metrics_of([Outcome.failed(Kind.TIMEOUT, "")])


def test_waiting_and_running_are_told_apart():
    found = metrics_of([Outcome.scored(1.0, wait_s=1.0, run_s=3.0), Outcome.scored(1.0)])
    assert (found["timing_s/reward_wait/mean"], found["timing_s/reward_wait/max"]) == (0.5, 1.0)
    assert (found["timing_s/reward_run/mean"], found["timing_s/reward_run/max"]) == (1.5, 3.0)


def test_a_flood_of_names_is_bounded():
    found = metrics_of([Outcome.scored(1.0, {f"name{n}": n}) for n in range(10 * MAX_NAMES)])
    assert sum(name.startswith("reward_extra/") for name in found) == MAX_NAMES


def test_a_meter_begins_anew_at_each_collection():
    meter = Meter()
    meter.began(2)
    meter.told(Outcome.scored(1.0))
    meter.told(Outcome.scored(0.0))
    first = meter.collect()
    assert first["reward"] == 0.5
    assert first["timing_s/reward"] >= 0
    meter.began(1)
    meter.told(Outcome.scored(4.0))
    assert meter.collect()["reward"] == 4.0
    assert meter.collect() == {}
    assert (meter.submitted, meter.done, meter.failed) == (3, 3, 0)
