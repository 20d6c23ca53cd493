"""Rollout files are read a line at a time, and every line comes back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from queue_client.rollouts import MAX_LINE_BYTES, Rollout, parse_rollout, read_rollouts


def read(*lines: bytes | dict[str, Any]) -> list[Rollout]:
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(read_rollouts(io.BytesIO(b"\n".join(encoded) + b"\n")))


def test_every_line_comes_back_in_order_with_its_number() -> None:
    rows = read({"id": "a", "response": "x"}, b"", b'{"id": "b", "resp', {"response": "y"})

    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.id for row in rows] == ["a", "line-2", "line-3", "line-4"]
    assert [row.trajectory is None for row in rows] == [False, True, True, False]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"", "line 1: the line is empty"),
        (b"[]", "object is needed, not list"),
        (b'{"response": 3}', "response must be str, got int 3"),
        (b'{"response": "x", "turns": []}', "found response and turns"),
        (b'{"id": "a"}', "found none"),
        (b'{"outputs": [{"text": "a", "reward": 1}]}', "outputs[0] has unknown fields ['reward']"),
        (b'{"outputs": [{"response_ids": ["a"]}]}', "outputs[0].response_ids[0] must be int"),
        (b'{"outputs": [{}]}', "outputs[0] needs text or response_ids"),
        (b'{"outputs": ["a"]}', "outputs[0] must be an object"),
        (b'{"turns": [{"role": "assistant"}]}', "turns[0] needs role and content"),
        (b'{"turns": [{"role": "cat", "content": ""}]}', "turns[0].role must be a chat role"),
        (b'{"response": "x", "messages": ["hello"]}', "messages[0] must be an object"),
        (b'{"response": "x", "messages": [], "prompt": "p"}', "messages or prompt, not both"),
        (b'{"response": "x", "num_turns": true}', "num_turns must be int, got bool True"),
        (b'{"response": "x", "data_source": 5}', "data_source must be str, got int 5"),
        (b'{"response": "a\\ud800"}', "'response' has a lone surrogate U+D800"),
        (b'{"response": "x", "deep": {"a": ["\\udc01"]}}', "'deep' has a lone surrogate U+DC01"),
        (b'{"response": NaN}', "NaN is not JSON"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_a_bad_line_says_which_field_and_value_is_at_fault(line: bytes, names: str) -> None:
    row = parse_rollout(line, 1)

    assert row.trajectory is None
    assert row.error is not None
    assert row.error.startswith("line 1: ")
    assert names in row.error


def test_pairs_of_surrogates_are_ordinary_text() -> None:
    row = parse_rollout(b'{"response": "\\ud83d\\ude00"}', 1)

    assert row.trajectory is not None
    assert row.trajectory.outputs[0].text == "\U0001f600"


def test_an_overlong_line_is_skipped_whole_and_the_next_one_is_read() -> None:
    big = io.BytesIO(b"x" * (MAX_LINE_BYTES + 10) + b"\n" + b'{"response": "x"}\n')
    first, second = read_rollouts(big)
    assert first.error is not None
    assert "longer than" in first.error
    assert second.number == 2
    assert second.error is None


def test_fields_without_a_meaning_of_their_own_arrive_in_extra_info() -> None:
    row = read({"response": "x", "difficulty": 3, "extra_info": {"index": 7}})[0]

    assert row.trajectory is not None
    assert row.trajectory.extra_info == {"difficulty": 3, "index": 7}


def test_verls_ground_truth_and_a_text_prompt_are_read() -> None:
    row = read({"prompt": "2+2?", "response": "4", "reward_model": {"ground_truth": "4"}})[0]

    assert row.trajectory is not None
    assert row.trajectory.ground_truth == "4"
    assert row.trajectory.messages == [{"role": "user", "content": "2+2?"}]


def test_each_assistant_turn_is_an_output_and_tool_text_is_masked() -> None:
    turns = [
        {"role": "assistant", "content": "call"},
        {"role": "tool", "content": "result"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "done"},
    ]
    row = read({"turns": turns})[0]

    assert row.trajectory is not None
    first, last = row.trajectory.outputs
    assert first.text == "callresult"
    assert first.response_mask == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert (last.text, last.response_mask) == ("done", [1, 1, 1, 1])
    assert row.trajectory.extra_info["turns"] == turns


def test_the_real_tool_trajectories_are_read_whole(data: Path) -> None:
    with (data / "tool_trajectories.jsonl").open("rb") as stream:
        rows = list(read_rollouts(stream))

    records = [
        json.loads(line) for line in (data / "tool_trajectories.jsonl").read_bytes().splitlines()
    ]
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert row.trajectory is not None
        spoken = [turn["content"] for turn in record["turns"] if turn["role"] == "assistant"]
        assert len(row.trajectory.outputs) == len(spoken)
        for output, content in zip(row.trajectory.outputs, spoken, strict=True):
            assert output.text is not None
            assert output.response_mask is not None
            own = "".join(c for c, m in zip(output.text, output.response_mask, strict=True) if m)
            assert own == content
