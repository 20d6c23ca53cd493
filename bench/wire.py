"""Bytes and time of the wire against pickle, on one batch of long trajectories.

Run `python bench/wire.py [--json] [--seed N] [--repeats N]`. Two batches of 64 trajectories with
ids from a vocabulary of 151,936: single outputs of 200 to 8,000 tokens, and 1 to 5 outputs whose
context grows by each response and a tool reply, at most 8,000 tokens in all.
Each variant encodes and decodes the same rows, the best of several runs counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from queue_client import Output, Trajectory, TrajectoryBatch
from queue_client.padding import TENSORS
from queue_client.wire import decode_batch, encode_batch

TRAJECTORIES, SHORTEST, LONGEST, VOCABULARY = 64, 200, 8_000, 151_936


def single_outputs(random: np.random.Generator) -> list[Trajectory]:
    """One output a trajectory, a fifth of the tokens prompt, no tool text."""
    trajectories = []
    for number in range(TRAJECTORIES):
        total = int(random.integers(SHORTEST, LONGEST + 1))
        ids = random.integers(0, VOCABULARY, total).astype(np.int32)
        cut = total // 5
        trajectories.append(_trajectory(number, [Output(ids[:cut], ids[cut:])]))
    return trajectories


def multi_outputs(random: np.random.Generator) -> list[Trajectory]:
    """1 to 5 outputs a trajectory; each prompt is all that came before, and a tool reply."""
    trajectories = []
    for number in range(TRAJECTORIES):
        count = int(random.integers(1, 6))
        total = int(random.integers(SHORTEST, LONGEST + 1))
        ids = random.integers(0, VOCABULARY, total).astype(np.int32)
        cuts = np.sort(random.choice(np.arange(1, total), 2 * count - 1, replace=False))
        borders = [*cuts.tolist(), total]
        outputs = [
            Output(ids[: borders[2 * turn]], ids[borders[2 * turn] : borders[2 * turn + 1]])
            for turn in range(count)
        ]
        trajectories.append(_trajectory(number, outputs))
    return trajectories


def text_rows(_random: np.random.Generator) -> list[Trajectory]:
    """Text alone, 1 kB a row."""
    return [_trajectory(number, [Output(text="x" * 1_000)]) for number in range(TRAJECTORIES)]


def _trajectory(number: int, outputs: list[Output]) -> Trajectory:
    return Trajectory(
        outputs,
        data_source="openai/gsm8k",
        ground_truth=str(number),
        extra_info={"index": number},
        uid=f"{number:032x}",
        session_id=number % 8,
    )


def best_ms(call: Callable[[], Any], repeats: int) -> float:
    """Return the shortest of several runs, milliseconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best * 1_000


def ours(batch: TrajectoryBatch, touch: Callable[[TrajectoryBatch], Any]) -> tuple[Any, Any]:
    """Return how the wire encodes a batch and decodes it, as far as somebody reads it."""

    def decode(data: bytes) -> None:
        touch(decode_batch(data))

    return lambda: encode_batch(batch), decode


def build_all(batch: TrajectoryBatch) -> None:
    """Build every padded tensor."""
    for name in TENSORS:
        batch.tensor(name)


def read_rows(batch: TrajectoryBatch) -> None:
    """Read texts, ids and lengths, as scoring does."""
    for output in batch.outputs:
        _ = output.text, output.prompt_ids, output.response_ids
    _ = batch.prompt_lens, batch.response_lens


def rivals(batch: TrajectoryBatch) -> dict[str, tuple[Any, Any]]:
    """Return how pickle sends the same rows with their padded tensors."""
    arrays = {name: batch.tensor(name) for name in TENSORS}
    fields = {
        "uid": np.array([one.uid for one in batch.trajectories], object),
        "ground_truth": np.array([one.ground_truth for one in batch.trajectories], object),
        "extra_info": np.array([one.extra_info for one in batch.trajectories], object),
    }
    found: dict[str, Any] = {"pickled numpy": arrays}
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        found["pickled torch"] = tensors
        if importlib.util.find_spec("tensordict"):
            from tensordict import TensorDict

            found["pickled TensorDict"] = TensorDict(tensors, batch_size=[len(batch)])
    return {
        name: (lambda value=value: pickle.dumps((value, fields), protocol=5), pickle.loads)
        for name, value in found.items()
    }


def measure(trajectories: list[Trajectory], repeats: int) -> list[dict[str, Any]]:
    """Return a row of figures for each variant; ratios are against pickled torch tensors."""
    batch = TrajectoryBatch.pad(trajectories)
    tokens = int((batch.prompt_lens + batch.response_lens).sum())
    variants = {
        "wire, every tensor built": ours(batch, build_all),
        "wire, lengths and texts read": ours(batch, read_rows),
    }
    if tokens:
        variants |= rivals(batch)
    rows = []
    for name, (encode, decode) in variants.items():
        data = encode()
        encode_ms, decode_ms = best_ms(encode, repeats), best_ms(partial(decode, data), repeats)
        rows.append(
            {
                "variant": name,
                "rows": len(batch),
                "bytes": len(data),
                "bytes_per_token": len(data) / tokens if tokens else None,
                "encode_ms": encode_ms,
                "decode_ms": decode_ms,
                "total_ms": encode_ms + decode_ms,
            }
        )
    rival = next((row for row in rows if row["variant"] == "pickled torch"), None)
    for row in rows:
        row["times_as_fast"] = rival["total_ms"] / row["total_ms"] if rival else None
    return rows


def shown(value: float | None) -> str:
    """Return a figure for the table."""
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    report = {
        make.__name__: measure(make(np.random.default_rng(options.seed)), options.repeats)
        for make in (single_outputs, multi_outputs, text_rows)
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, rows in report.items():
        print(f"\n{name.replace('_', ' ')}, {rows[0]['rows']} rows")
        print(f"{'variant':<30}{'bytes/token':>12}{'encode ms':>11}{'decode ms':>11}{'x torch':>9}")
        for row in rows:
            print(
                f"{row['variant']:<30}{shown(row['bytes_per_token']):>12}"
                f"{row['encode_ms']:>11.2f}{row['decode_ms']:>11.2f}"
                f"{shown(row['times_as_fast']):>9}"
            )


if __name__ == "__main__":
    main()
