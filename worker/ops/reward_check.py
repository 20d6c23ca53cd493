"""Trying a reward function the way the pool would run it: what it must do before a large run.

Every row goes through the scoring engine, so a function that hangs, exits or eats memory is told
from one that answers, and what is measured is what a worker would see.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from queue_client.outcome import Kind, Outcome
from queue_client.trajectory import Output, Trajectory
from worker.scoring.engine import ScoreRequest, ScoringEngine
from worker.settings import Settings

Status = Literal["passed", "warned", "failed"]

FORMS = (
    "{}",
    "#### {}",
    "\\boxed{{{}}}",
    "Answer: {}",
    "The answer is {}",
    "<answer>{}</answer>",
    "<think>I worked it out.</think>\n<answer>{}</answer>",
    "<think>I worked it out.</think>\n\\boxed{{{}}}",
)
MALFORMED = {
    "empty": "",
    "blank": " \n\t ",
    "no answer": "I do not know.",
    "empty box": "\\boxed{}",
    "empty tag": "<answer></answer>",
    "unclosed box": "so it is \\boxed{\\frac{1}{",
    "unclosed tag": "<think>so <answer>",
    "NUL and lone surrogate": "\0 \ud800",
    "5,000 digits": "9" * 5_000,
    "10,000 braces": "{" * 10_000,
    "5,000 letters": "a" * 5_000 + "!",
    "50,000 spaces": " " * 50_000 + "!",
    "200,000 words": "word " * 200_000,
}
#: Failures by which a function says that a row is at fault; others are the function's own.
TYPED = frozenset({Kind.BAD_INPUT, Kind.UNPARSEABLE})
UPSTREAM = frozenset({
    Kind.UPSTREAM_ERROR, Kind.UPSTREAM_RATE_LIMITED, Kind.SANDBOX_ERROR, Kind.LIMIT_TIMEOUT,
    Kind.OVER_LIMIT,
})  # fmt: skip
SLOW_S = 1.0
REPEATS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One row that is tried: what it is called, and the trajectory."""

    name: str
    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class Check:
    """What one check came to, in one line."""

    name: str
    status: Status
    detail: str


@dataclass(slots=True)
class Examples:
    """What is tried: right and wrong responses to one task, and rows of the user's own."""

    ground_truth: Any = "42"
    data_source: str | None = None
    extra_info: dict[str, Any] = field(default_factory=dict)
    right: Sequence[str] = ()
    wrong: Sequence[str] = ()
    rows: Sequence[Trajectory] = ()

    def row(self, name: str, response: str, **facts: Any) -> Row:
        """One row of the task with this response."""
        trajectory = Trajectory(
            outputs=[Output(text=response)],
            data_source=self.data_source,
            ground_truth=self.ground_truth,
            extra_info=self.extra_info,
        )
        return Row(name, replace(trajectory, **facts))

    def right_rows(self) -> list[Row]:
        """The right responses: those given, or the usual ways of stating the ground truth."""
        texts = self.right or [form.format(self.ground_truth) for form in FORMS]
        return [self.row(f"right {at + 1}", text) for at, text in enumerate(texts)]

    def wrong_rows(self) -> list[Row]:
        """The wrong responses: those given, or the usual ways of stating another answer."""
        other = "41" if str(self.ground_truth) != "41" else "40"
        texts = self.wrong or [form.format(other) for form in FORMS]
        return [self.row(f"wrong {at + 1}", text) for at, text in enumerate(texts)]

    def hedged_rows(self) -> list[Row]:
        """Both answers at once, in both orders."""
        pairs = [("41", self.ground_truth), (self.ground_truth, "41")]
        texts = [form.format(f"{a} or {b}") for a, b in pairs for form in FORMS]
        return [self.row(f"hedged {at + 1}", text) for at, text in enumerate(texts)]


@dataclass(slots=True)
class Tried:
    """A row with its outcome."""

    row: Row
    outcome: Outcome

    @property
    def reward(self) -> float | None:
        """The reward, None where there is none."""
        return self.outcome.reward

    def described(self) -> str:
        """The row and what it came to, in one line."""
        found = self.outcome
        if found.ok:
            return f"{self.row.name}: {found.reward}"
        return f"{self.row.name}: {found.kind}: {found.message[:200]}"


async def check_function(settings: Settings, examples: Examples) -> list[Check]:
    """Run all checks. Raises SettingsError for a function that cannot be loaded."""
    engine = ScoringEngine(settings)
    await engine.start()
    try:
        return await _checks(engine, examples)
    finally:
        await engine.close()


async def _checks(engine: ScoringEngine, examples: Examples) -> list[Check]:
    right = await _try(engine, examples.right_rows())
    wrong = await _try(engine, examples.wrong_rows())
    own = await _try(engine, [Row(f"row {at + 1}", row) for at, row in enumerate(examples.rows)])
    malformed = await _try(engine, [examples.row(name, text) for name, text in MALFORMED.items()])
    hedged = [] if examples.right else await _try(engine, examples.hedged_rows())
    missing = await _try(
        engine, [examples.row("no ground truth", "42", ground_truth=None, extra_info={})]
    )
    usual = [*right, *wrong, *own]
    again = [await _try(engine, [each.row for each in usual]) for _ in range(REPEATS)]
    full = max((each.reward for each in right if each.reward is not None), default=None)
    return [
        _full(right, wrong, given=bool(examples.right)),
        _zero(wrong),
        *([_own(own)] if own else []),
        _malformed(malformed, full, _highest(wrong)),
        *([_hedged(hedged, full, _highest(wrong))] if hedged else []),
        _missing(missing[0]),
        _deterministic(usual, again),
        _types([*usual, *malformed]),
        _time([*usual, *malformed]),
    ]


async def _try(engine: ScoringEngine, rows: Sequence[Row]) -> list[Tried]:
    """One row at a time: what is measured is the function, not its neighbours."""
    return [Tried(row, await engine.score(ScoreRequest(row.trajectory))) for row in rows]


def _highest(rows: Sequence[Tried]) -> float:
    return max((each.reward for each in rows if each.reward is not None), default=float("-inf"))


def _full(right: Sequence[Tried], wrong: Sequence[Tried], *, given: bool) -> Check:
    best = _highest(right)
    if not any(each.outcome.ok for each in right):
        return Check("full", "failed", f"no right response is scored; {right[0].described()}")
    beaten = [each for each in right if not (each.reward or 0.0) > _highest(wrong)]
    if given and beaten:
        worst = _highest(wrong)
        return Check(
            "full", "failed", f"{beaten[0].described()}, no more than a wrong one: {worst}"
        )
    if best <= _highest(wrong):
        return Check(
            "full",
            "warned",
            f"no usual way of stating the answer earns more than a wrong one ({best}); "
            "say what is right with --right and --ground-truth",
        )
    return Check("full", "passed", f"a right response earns {best}")


def _zero(wrong: Sequence[Tried]) -> Check:
    failed = [each for each in wrong if not each.outcome.ok]
    if failed:
        return Check("zero", "failed", f"a wrong answer is a reward; {failed[0].described()}")
    return Check("zero", "passed", f"a wrong response earns {_highest(wrong)}")


def _own(own: Sequence[Tried]) -> Check:
    failed = [each for each in own if not each.outcome.ok]
    if failed:
        return Check("rows", "failed", f"{len(failed)} of {len(own)}; {failed[0].described()}")
    rewards = [each.reward for each in own if each.reward is not None]
    if not rewards:
        return Check("rows", "warned", f"all {len(own)} rows were skipped")
    mean = statistics.fmean(rewards)
    spread = f"{min(rewards):g} to {max(rewards):g}, mean {mean:.4g}"
    if len(rewards) > 1 and min(rewards) == max(rewards):
        return Check("rows", "warned", f"{len(rewards)} rows all earn {rewards[0]:g}")
    return Check("rows", "passed", f"{len(rewards)} rows earn {spread}")


def _malformed(rows: Sequence[Tried], full: float | None, wrong: float) -> Check:
    broken = [each for each in rows if not each.outcome.ok and each.outcome.kind not in TYPED]
    broken = [each for each in broken if each.outcome.kind not in UPSTREAM]
    if broken:
        return Check("malformed", "failed", f"{len(broken)} rows; {broken[0].described()}")
    if full is not None and full > wrong:
        passed = [each for each in rows if each.reward is not None and each.reward >= full]
        if passed:
            return Check("malformed", "failed", f"earns the full reward; {passed[0].described()}")
    return Check("malformed", "passed", f"{len(rows)} malformed responses are told from right ones")


def _hedged(rows: Sequence[Tried], full: float | None, wrong: float) -> Check:
    half = len(rows) // 2
    for first, second in zip(rows[:half], rows[half:], strict=True):
        both = (first.reward, second.reward)
        if full is not None and full > wrong and both == (full, full):
            said = first.row.trajectory.outputs[0].text
            return Check("hedging", "warned", f"naming two answers earns the full reward: {said!r}")
    return Check("hedging", "passed", "naming two answers earns less than the right one")


def _missing(row: Tried) -> Check:
    if row.outcome.ok or row.outcome.kind in TYPED:
        return Check("missing", "passed", row.described())
    return Check("missing", "warned", f"{row.described()} (raise BadInput to say so plainly)")


def _deterministic(rows: Sequence[Tried], again: Sequence[Sequence[Tried]]) -> Check:
    for repeat in again:
        for first, second in zip(rows, repeat, strict=True):
            before, after = first.outcome, second.outcome
            if (before.reward, before.extra, before.kind) != (
                after.reward,
                after.extra,
                after.kind,
            ):
                detail = f"{first.described()}, and the next time {second.described()}"
                return Check("deterministic", "failed", detail)
    return Check(
        "deterministic", "passed", f"{len(rows)} rows gave the same {len(again) + 1} times"
    )


def _types(rows: Sequence[Tried]) -> Check:
    bad = [each for each in rows if each.outcome.kind == Kind.BAD_SCORE]
    if bad:
        return Check("return types", "failed", bad[0].described())
    keys = {tuple(sorted(each.outcome.extra)) for each in rows if each.outcome.ok}
    if len(keys) > 1:
        shown = " and ".join("{" + ", ".join(each) + "}" for each in sorted(keys)[:2])
        return Check("return types", "warned", f"extra fields differ from row to row: {shown}")
    fields = ", ".join(next(iter(keys), ())) or "none"
    return Check("return types", "passed", f"finite numbers; extra fields: {fields}")


def _time(rows: Sequence[Tried]) -> Check:
    late = [each for each in rows if each.outcome.kind == Kind.TIMEOUT]
    if late:
        return Check("time", "failed", late[0].described())
    slowest = max(rows, key=lambda each: each.outcome.run_s)
    median_s = statistics.median(each.outcome.run_s for each in rows)
    detail = (
        f"median {median_s * 1000:.3g} ms, slowest {slowest.outcome.run_s * 1000:.3g} ms "
        f"({slowest.row.name})"
    )
    return Check("time", "warned" if slowest.outcome.run_s > SLOW_S else "passed", detail)
