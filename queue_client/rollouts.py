"""Rollout files: JSON Lines, one trajectory a line, read one at a time.

Every line comes back, readable or not, so that there is one result for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from queue_client.errors import BadTrajectory
from queue_client.trajectory import Output, Trajectory

MAX_LINE_BYTES = 64 * 1024 * 1024
#: Fields with a meaning of their own; every other one arrives in `extra_info`, as `turns` does:
#: an output made of text has no other place for its prompt.
KNOWN = frozenset(
    "id response outputs messages prompt ground_truth reward_model data_source extra_info "
    "uid session_id num_turns tool_rewards turn_scores".split()
)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One line of a file: a trajectory, or why there is none.

    `id` is the line's own `id`, or `line-N` (counted from 1) where it has none.
    """

    number: int
    id: Any
    trajectory: Trajectory | None
    error: str | None = None
    size: int = 0


def read_rollouts(stream: BinaryIO) -> Iterator[Rollout]:
    """Yield one Rollout a line, in order; a malformed line carries its error and raises nothing."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(stream)
            yield _bad(number, f"the line is longer than {MAX_LINE_BYTES} bytes", len(line))
            continue
        yield parse_rollout(line, number)


def parse_rollout(line: bytes, number: int) -> Rollout:
    """Read one line."""
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        return _bad(number, f"not UTF-8 at byte {error.start}", len(line))
    except RecursionError:
        return _bad(number, "nested too deeply", len(line))
    except ValueError as error:
        shown = "the line is empty" if not line.strip() else f"not JSON: {error}"
        return _bad(number, shown, len(line))
    if not isinstance(record, dict):
        return _bad(number, f"a JSON object is needed, not {type(record).__name__}", len(line))
    own_id = record.get("id")
    if not isinstance(own_id, str | int | float) or isinstance(own_id, bool):
        own_id = f"line-{number}"
    try:
        _refuse_surrogates(record, line)
        return Rollout(number, own_id, trajectory_of(record), size=len(line))
    except BadTrajectory as error:
        return Rollout(number, own_id, None, f"line {number}: {error}", len(line))


def trajectory_of(record: dict[str, Any]) -> Trajectory:
    """Build a trajectory from one record.

    Raises BadTrajectory, which names the field and the value.
    """
    messages = _messages(record)
    extra = {name: value for name, value in record.items() if name not in KNOWN}
    extra.update(_typed(record, "extra_info", dict) or {})
    reward_model = _typed(record, "reward_model", dict) or {}
    truth = record.get("ground_truth", reward_model.get("ground_truth"))
    uid = record.get("uid", record.get("id"))
    return Trajectory(
        outputs=_outputs(record),
        data_source=_typed(record, "data_source", str),
        ground_truth=truth,
        extra_info=extra,
        uid=None if uid is None else str(uid),
        session_id=_typed(record, "session_id", int, str),
        messages=messages,
        num_turns=_typed(record, "num_turns", int),
        tool_rewards=_typed(record, "tool_rewards", list),
        turn_scores=_typed(record, "turn_scores", list),
    )


def _outputs(record: dict[str, Any]) -> list[Output]:
    given = [name for name in ("response", "outputs", "turns") if record.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise BadTrajectory(f"exactly one of response, outputs and turns is needed, found {found}")
    if given == ["response"]:
        return [Output(text=_typed(record, "response", str))]
    if given == ["turns"]:
        return outputs_of_turns(_typed(record, "turns", list))
    return [_output(item, place) for place, item in enumerate(_typed(record, "outputs", list))]


def _output(item: Any, place: int) -> Output:
    if not isinstance(item, dict):
        raise BadTrajectory(f"outputs[{place}] must be an object, got {_shown(item)}")
    unknown = set(item) - {"prompt_ids", "response_ids", "response_mask", "text"}
    if unknown:
        raise BadTrajectory(f"outputs[{place}] has unknown fields {sorted(unknown)}")
    where = f"outputs[{place}]."
    output = Output(
        prompt_ids=_ids(item, "prompt_ids", where),
        response_ids=_ids(item, "response_ids", where),
        response_mask=_ids(item, "response_mask", where),
        text=_typed(item, "text", str, where=where),
    )
    if output.text is None and output.response_ids is None:
        raise BadTrajectory(f"outputs[{place}] needs text or response_ids")
    return output


def outputs_of_turns(turns: list[Any]) -> list[Output]:
    """Return one output for each assistant turn, with the tool text that follows it masked.

    What stands before an assistant turn is its prompt. Without ids the mask is over characters.
    """
    outputs: list[Output] = []
    for place, turn in enumerate(turns):
        if not isinstance(turn, dict) or not isinstance(turn.get("content"), str):
            raise BadTrajectory(
                f"turns[{place}] needs role and content as text, got {_shown(turn)}"
            )
        role, content = turn.get("role"), turn["content"]
        if role == "assistant":
            outputs.append(Output(text=content, response_mask=[1] * len(content)))
        elif role == "tool" and outputs:
            last = outputs[-1]
            outputs[-1] = Output(
                text=(last.text or "") + content,
                response_mask=[*(last.response_mask or ()), *([0] * len(content))],
            )
        elif role not in ("user", "system", "tool"):
            raise BadTrajectory(f"turns[{place}].role must be a chat role, got {_shown(role)}")
    return outputs


def _messages(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    if record.get("messages") is not None and record.get("prompt") is not None:
        raise BadTrajectory("give messages or prompt, not both")
    prompt = record.get("prompt")
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    name = "messages" if prompt is None else "prompt"
    messages: list[dict[str, Any]] | None = _typed(record, name, list)
    for place, message in enumerate(messages or ()):
        if not isinstance(message, dict):
            raise BadTrajectory(f"messages[{place}] must be an object, got {_shown(message)}")
    return messages


def _typed(record: dict[str, Any], name: str, *kinds: type, where: str = "") -> Any:
    value = record.get(name)
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
        return value
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise BadTrajectory(f"{where}{name} must be {wanted}, got {_shown(value)}")


def _ids(item: dict[str, Any], name: str, where: str) -> list[int] | None:
    values = _typed(item, name, list, where=where)
    for place, value in enumerate(values or ()):
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadTrajectory(f"{where}{name}[{place}] must be int, got {_shown(value)}")
    ids: list[int] | None = values
    return ids


def _refuse_surrogates(record: dict[str, Any], line: bytes) -> None:
    """Half of a UTF-16 pair is no text: it cannot be encoded, so it is refused by field."""
    if b"\\ud" not in line and b"\\uD" not in line:
        return
    for name, value in record.items():
        dumped = json.dumps(value, ensure_ascii=False)
        try:
            dumped.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadTrajectory(
                f"{name!a} has a lone surrogate U+{ord(dumped[error.start]):04X}: it is not text"
            ) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _skip_line(stream: BinaryIO) -> None:
    while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _bad(number: int, error: str, size: int) -> Rollout:
    return Rollout(number, f"line-{number}", None, f"line {number}: {error}", size)


def _shown(value: Any) -> str:
    shown = ascii(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
