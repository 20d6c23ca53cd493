"""A real, tiny reward model: from a local folder, and behind both HTTP dialects."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from scoring_support import request

from queue_client import Kind, Output

TEXTS = ["42", "the answer is 42", "one plus one is two, " * 6, "", "?!"]
MESSAGES = [{"role": "user", "content": "6 x 7?"}]


def rows(texts=TEXTS):
    return [request(text, messages=MESSAGES) for text in texts]


async def test_a_local_model_scores_batches_as_it_scores_single_rows(make_engine, tiny_model):
    settings = {"manager": "reward_model", "reward_model": {"path": tiny_model, "device": "cpu"}}
    engine = await make_engine(reward=settings)

    together = await asyncio.gather(*map(engine.score, rows() * 8))
    single = [await engine.score(row) for row in rows()]
    again = [await engine.score(row) for row in rows()]

    assert all(outcome.ok for outcome in together), together[0]
    for at, outcome in enumerate(together):
        assert abs(outcome.reward - single[at % len(TEXTS)].reward) < 1e-5
    assert [outcome.reward for outcome in single] == [outcome.reward for outcome in again]
    assert len({outcome.reward for outcome in single}) == len(TEXTS), "texts are told apart"


async def test_a_local_model_sees_the_conversation_in_its_own_template(make_engine, tiny_model):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    engine = await make_engine(
        reward={"manager": "reward_model", "reward_model": {"path": tiny_model}}
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model).eval()
    ids = tokenizer("<|user|>6 x 7?<|assistant|>42", return_tensors="pt")
    with torch.inference_mode():
        expected = float(model(**ids).logits[0, -1])

    outcome = await engine.score(request("42", messages=MESSAGES))

    assert abs(outcome.reward - expected) < 1e-5
    assert outcome.extra == {"acc": outcome.reward}


async def test_a_text_longer_than_the_model_is_bad_input(make_engine, tiny_model):
    engine = await make_engine(
        reward={"manager": "reward_model", "reward_model": {"path": tiny_model}}
    )

    outcome = await engine.score(request("word " * 500))

    assert outcome.kind is Kind.BAD_INPUT
    assert "256" in outcome.message
    assert (await engine.score(request("short"))).ok


async def test_ids_are_decoded_by_the_policys_tokenizer_for_the_models(
    make_engine, tiny_model, real_tokenizer
):
    from transformers import AutoTokenizer

    engine = await make_engine(
        reward={
            "manager": "reward_model",
            "reward_model": {"path": tiny_model},
            "tokenizer": real_tokenizer,
        }
    )
    ids = AutoTokenizer.from_pretrained(real_tokenizer).encode("the answer is 42")

    by_ids = await engine.score(request(outputs=[Output(response_ids=ids)]))
    by_text = await engine.score(request("the answer is 42"))

    assert by_ids.reward == by_text.reward


class ModelServer(ThreadingHTTPServer):
    """Answers as vLLM or SGLang would; `replies` are (status, body) to give first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: list[tuple[int, object, dict[str, str]]] = []
        self.seen: list[tuple[str, dict[str, object]]] = []

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, body))
        status, reply, headers = 200, None, {}
        if self.server.replies:
            status, reply, headers = self.server.replies.pop(0)
        if reply is None:
            field = "probs" if self.path == "/classify" else "embedding"
            reply = {"data": [{field: [0.125, len(body["input"]) / 8]}]}
        sent = json.dumps(reply).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def model_server():
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("vllm", "/classify", {"model": "rm", "input": "6 x 7?\n42", "use_activation": False}),
        ("sglang", "/v1/embeddings", {"model": "rm", "input": "6 x 7?\n42"}),
    ],
)
async def test_a_served_model_is_asked_in_its_dialect(
    make_engine, model_server, dialect, path, body
):
    engine = await make_engine(
        reward={
            "manager": "reward_model",
            "reward_model": {"url": model_server.url, "path": "rm", "dialect": dialect},
        }
    )

    outcome = await engine.score(request("42", messages=MESSAGES))

    assert outcome.reward == len("6 x 7?\n42") / 8
    assert outcome.extra["acc"] == outcome.reward
    assert model_server.seen == [(path, body)]


@pytest.mark.parametrize(
    ("replies", "kind", "calls"),
    [
        ([(503, {}, {}), (500, {}, {})], None, 3),
        ([(429, {}, {"Retry-After": "0"})], None, 2),
        ([(400, {}, {})], Kind.UPSTREAM_ERROR, 1),
        ([(200, {"data": []}, {})] * 3, Kind.UPSTREAM_ERROR, 3),
        ([(503, {}, {})] * 9, Kind.UPSTREAM_ERROR, 3),
    ],
)
async def test_a_served_model_that_fails_is_tried_again_where_that_may_help(
    make_engine, model_server, replies, kind, calls
):
    engine = await make_engine(
        reward={
            "manager": "reward_model",
            "reward_model": {"url": model_server.url},
            "backoff_s": 0.01,
        }
    )
    model_server.replies = list(replies)

    outcome = await engine.score(request("42"))

    assert outcome.kind is kind
    assert len(model_server.seen) == calls
    assert outcome.attempts == calls


async def test_a_served_model_may_be_called_under_a_limit(make_engine, model_server, redis_url):
    engine = await make_engine(
        redis={"url": redis_url},
        limits={"rm": {"max_concurrent": 2, "tpm": 1000}},
        reward={
            "manager": "reward_model",
            "reward_model": {"url": model_server.url},
            "limit": "rm",
            "tokens": 10,
        },
    )

    outcomes = await asyncio.gather(*(engine.score(request("42")) for _ in range(6)))

    assert all(outcome.ok for outcome in outcomes)
    usage = await engine.limits["rm"].usage()
    assert (usage.grants, usage.in_flight) == (6, 0)


async def test_sources_share_one_loaded_model(make_engine, tiny_model):
    engine = await make_engine(
        reward={
            "manager": "reward_model",
            "reward_model": {"path": tiny_model},
            "sources": {"chat": {"timeout_s": 30}},
        }
    )

    one = await engine.score(request("42", data_source="chat"))
    other = await engine.score(request("42"))

    assert one.reward == other.reward
    threads = [each.name for each in threading.enumerate()]
    assert threads.count("rewardpool-reward-model") == 1


async def test_a_served_model_that_is_not_there_is_an_upstream_error(make_engine):
    engine = await make_engine(
        reward={
            "manager": "reward_model",
            "reward_model": {"url": "127.0.0.1:9"},
            "retries": {"upstream_error": 0},
        }
    )

    outcome = await engine.score(request("42"))

    assert outcome.kind is Kind.UPSTREAM_ERROR
    assert outcome.retryable
