"""The example of a user's own reward function does what its text says."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from scoring_support import request

from queue_client import Kind
from worker.scoring.functions import load

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_rewards.py"


class Judge(BaseHTTPRequestHandler):
    """Answers with the next of `replies`, in the form of OpenAI's chat completions."""

    replies: ClassVar[list[tuple[int, str]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, text = self.replies.pop(0)
        body = {"choices": [{"message": {"content": text}}], "usage": {"total_tokens": 7}}
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(sent)))
        self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
async def engine(make_engine, redis_url, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Judge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        spec = f"{EXAMPLE}:compute_score"
        module = sys.modules[load(spec).__module__]
        monkeypatch.setattr(module, "JUDGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield await make_engine(
            redis={"url": redis_url},
            limits={"judge": {"max_concurrent": 1, "tpm": 90_000}},
            reward={"function": spec, "backoff_s": 0.01},
        )
        server.shutdown()


@pytest.mark.parametrize(
    ("text", "replies", "reward", "kind", "attempts"),
    [
        ("it is 42", [], 1.0, None, 1),
        ("forty-two", [(200, "0.9")], 0.9, None, 1),
        ("forty-two", [(429, ""), (200, "1")], 1.0, None, 2),
        ("forty-two", [(503, ""), (200, "0")], 0.0, None, 2),
        ("forty-two", [(400, "")], None, Kind.UPSTREAM_ERROR, 1),
        ("forty-two", [(200, "looks fine to me")], None, Kind.UNPARSEABLE, 1),
    ],
)
async def test_the_example_scores_by_rule_and_by_judge(
    engine, text, replies, reward, kind, attempts
):
    Judge.replies = list(replies)

    outcome = await engine.score(request(text, ground_truth="42"))

    assert (outcome.reward, outcome.kind, outcome.attempts) == (reward, kind, attempts), outcome
    assert Judge.replies == []
    assert (await engine.limits["judge"].usage()).in_flight == 0


async def test_the_example_says_which_field_is_missing(engine):
    outcome = await engine.score(request("it is 42"))

    assert outcome.kind is Kind.BAD_INPUT
    assert outcome.message.startswith("ground_truth")


def test_the_example_is_importable_by_itself():
    assert importlib.util.spec_from_file_location("my_rewards", EXAMPLE) is not None
