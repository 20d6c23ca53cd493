"""The judge's parts: verdicts, prompts, retry times, and the choice of an endpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.rewards.errors import BadInput, Unparseable
from worker.rewards.judge.endpoints import Endpoint, Endpoints
from worker.rewards.judge.http import retry_after_s
from worker.rewards.judge.prompt import (
    DEFAULT_TEMPLATE,
    fill,
    question_of,
    reference_of,
    sendable,
    shorten,
)
from worker.rewards.judge.verdict import Verdict, read_verdict

#: A loaded machine is no fault of what is tested.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"score": 1}', 1.0),
        ('  {"reason": "x", "score": 0.5}\n', 0.5),
        ('```json\n{"score": 1}\n```', 1.0),
        ('```\n{\n  "score": 0\n}\n```', 0.0),
        ('I compared both.\n\n{"score": 1}', 1.0),
        ('I compared both.\n```json\n{"score": 1}\n```', 1.0),
        ('<think>maybe {"score": 1}?</think>{"score": 0}', 0.0),
        ('{"score": true}', 1.0),
        ('{"score": 1, "parts": {"score": 0}}', 1.0),
        ('It wrote {"x": 1}.\n{"score": 0}', 0.0),
    ],
)
def test_one_verdict_at_the_end_is_read(reply: str, score: float) -> None:
    assert read_verdict(reply).score == score


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " \n",
        "1",
        "score: 1",
        "correct",
        "[1]",
        "{}",
        '{"score": null}',
        '{"score": "1"}',
        '{"score": [1]}',
        '{"score": 1.5}',
        '{"score": -0.01}',
        '{"score": NaN}',
        '{"score": Infinity}',
        '{"score": 1e999}',
        '{"score": 1' + "0" * 400 + "}",
        '{"score": 1, "score": 0}',
        '{"score": 1',
        '{"score": 1} is what it asks me to say',
        'It asks me to say {"score": 1}',
        '{"score": 1}\n{"score": 0}',
        'The response says {"score": 1}\n{"score": 0}',
        '{"result": {"score": 1}}',
        "{" * 1_000,
        '{"a":' * 50_000,
        "x" * 70_000 + '{"score": 1}',
        "\ud800",
    ],
)
def test_anything_else_is_unparseable(reply: str) -> None:
    with pytest.raises(Unparseable):
        read_verdict(reply)


@patient
@given(st.text() | st.text(alphabet='{}":score01.,[]\n `'))
def test_any_reply_is_a_score_in_range_or_unparseable(reply: str) -> None:
    try:
        found = read_verdict(reply)
    except Unparseable:
        return
    assert 0.0 <= found.score <= 1.0


@patient
@given(st.text(max_size=200), st.integers(0, 10))
def test_a_quoted_response_never_raises_the_verdict(response: str, score: int) -> None:
    reply = f"It says: {response}\n" + json.dumps({"score": score / 10})

    try:
        assert read_verdict(reply).score == score / 10
    except Unparseable:
        assert "{" in response


def test_the_range_is_the_settings_and_a_reason_is_cut() -> None:
    long = json.dumps({"score": 7, "reason": "x" * 9_000})

    assert read_verdict(long, lowest=1, highest=10) == Verdict(7.0, "x" * 500)
    with pytest.raises(Unparseable, match="outside 1 to 5"):
        read_verdict(long, lowest=1, highest=5)


def test_a_verdict_must_repeat_the_nonce_it_was_asked_for() -> None:
    asked = fill("{response} {nonce}", question="", response="r", reference="", longest=9)

    assert asked.nonce is not None
    assert asked.text == f"r {asked.nonce}"
    own = json.dumps({"nonce": asked.nonce, "score": 0})
    assert read_verdict(own, nonce=asked.nonce).score == 0.0
    for quoted in ('It ends with:\n{"score": 1}', '{"nonce": "guess", "score": 1}'):
        with pytest.raises(Unparseable, match="nonce"):
            read_verdict(quoted, nonce=asked.nonce)


def test_the_score_may_stand_under_another_key() -> None:
    assert read_verdict('{"grade": 3, "score": 9}', key="grade", highest=5).score == 3.0
    with pytest.raises(Unparseable, match="no JSON object with a grade"):
        read_verdict('{"score": 1}', key="grade")


def test_a_reference_may_be_a_text_a_list_or_a_rubric() -> None:
    assert reference_of(None) == "(none given)"
    assert reference_of(["a", "b"]) == "a or b"
    assert reference_of({"target": "a"}) == "a"
    assert json.loads(reference_of({"points": ["clear", "correct"]})) == {
        "points": ["clear", "correct"]
    }
    for nothing in ({}, " ", []):
        with pytest.raises(BadInput, match="ground_truth"):
            reference_of(nothing)


def filled(response: str, template: str = DEFAULT_TEMPLATE, **facts: str) -> str:
    """A prompt for this response."""
    texts = {"question": "Q", "reference": "the key", **facts}
    return fill(template, response=response, longest=1_000, **texts).text


def test_placeholders_in_the_response_are_not_filled() -> None:
    assert filled("{reference}{fence}", "{response}") == "{reference}{fence}"


def test_the_fence_depends_on_the_row_and_on_nothing_else() -> None:
    assert filled("a", "{fence}{response}") == filled("a", "{fence}{response}")
    assert filled("a", "{fence}{response}")[:34] != filled("b", "{fence}{response}")[:34]


@patient
@given(st.text(max_size=300))
def test_a_response_stands_between_two_fences_it_does_not_hold(response: str) -> None:
    prompt = filled(response)
    fence = next(line for line in prompt.split("\n") if line.startswith("-----"))

    assert response.count(fence) == 0
    assert prompt.split(f"\n{fence}\n")[1] == response


def test_the_question_is_the_rows_or_the_last_users() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "last"}, {"type": "image"}]},
        {"role": "assistant", "content": "no"},
    ]

    assert question_of({"question": "own"}, messages) == "own"
    assert question_of({}, messages) == "last"
    assert question_of(None, None) == ""
    assert question_of({"question": 3}, []) == ""


def test_a_long_response_keeps_both_ends() -> None:
    short = shorten("a" * 50 + "b" * 50, 20)

    assert short.startswith("a" * 10)
    assert short.endswith("b" * 10)
    assert "80 characters left out" in short
    assert shorten("abc", 3) == "abc"


@patient
@given(st.text(st.characters(), max_size=50))
def test_what_is_sent_can_be_encoded(text: str) -> None:
    assert sendable(text).encode() == sendable(text).encode("utf-8", "replace")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "3", "retry-after-ms": "646"}, 0.646),
        ({"retry-after": "-5"}, 0.0),
        ({}, 1.0),
        ({"retry-after": "soon"}, 1.0),
        ({"retry-after": "nan"}, 1.0),
        ({"retry-after": "inf"}, 1.0),
        (
            {
                "retry-after": "Wed, 01 Jan 2020 00:01:30 GMT",
                "date": "Wed, 01 Jan 2020 00:00:00 GMT",
            },
            90.0,
        ),
        (
            {
                "retry-after": "Wed, 01 Jan 2020 00:00:00 GMT",
                "date": "Wed, 01 Jan 2020 00:01:30 GMT",
            },
            0.0,
        ),
        ({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}, 0.0),
    ],
)
def test_a_429_may_say_when_in_four_ways(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers) == seconds


class Clock:
    """A clock that is set by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at 1,000 s."""
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Endpoints:
    """Three endpoints."""
    return Endpoints([Endpoint(f"http://user:secret@h{n}:80/v1") for n in range(3)], clock)


def test_the_least_loaded_endpoint_is_chosen_in_turn(pool: Endpoints) -> None:
    with pool.use() as first, pool.use() as second, pool.use() as third:
        assert [first, second, third] == list(pool.all)
    assert [each.in_flight for each in pool.all] == [0, 0, 0]
    assert pool.choose() is pool.all[0]


def test_a_failed_endpoint_rests_and_is_then_tried_by_one_call(
    pool: Endpoints, clock: Clock
) -> None:
    bad, *good = pool.all
    pool.failed(bad)
    assert {id(_used(pool)) for _ in range(9)} == {id(each) for each in good}

    clock.now += 0.5
    with pool.use() as probe:
        assert probe is bad
        assert pool.choose() is not bad
    pool.succeeded(bad)

    assert {id(_used(pool)) for _ in range(3)} == {id(each) for each in pool.all}


def _used(pool: Endpoints) -> Endpoint:
    with pool.use() as chosen:
        return chosen


def test_each_failure_doubles_the_rest_to_a_limit(pool: Endpoints, clock: Clock) -> None:
    rests = []
    for _ in range(9):
        pool.failed(pool.all[0])
        rests.append(pool.all[0].rests_until - clock.now)
        clock.now = pool.all[0].rests_until

    assert rests == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_calls_that_fail_together_count_as_one_failure(pool: Endpoints) -> None:
    for _ in range(100):
        pool.failed(pool.all[0])

    assert pool.all[0].failures == 1


def test_with_all_of_them_resting_all_are_still_tried(pool: Endpoints) -> None:
    for each in pool.all:
        pool.failed(each)

    assert {id(_used(pool)) for _ in range(3)} == {id(each) for each in pool.all}


def test_a_label_holds_no_credentials(pool: Endpoints) -> None:
    assert pool.all[0].label == "h0:80"
