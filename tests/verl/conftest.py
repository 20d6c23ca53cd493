"""verl's own parts, real workers in the main environment, and a tiny real tokenizer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import redis
from client_consumer import until
from verl_rows import verl_config, write_function

from worker.ops.embedded import EmbeddedServer, find_server

ROOT = Path(__file__).parent.parent.parent
#: The pool's workers have an environment of their own: verl's asks for another transformers.
POOL_PYTHON = Path(os.environ.get("REWARDPOOL_PYTHON", ROOT / ".venv" / "bin" / "python"))
SETTINGS = """
[redis]
url = "{url}"

[reward]
tokenizer = "{tokenizer}"

[reward.sources.exact]
function = "{function}:compute_score"
executor = "process"
timeout_s = 4

[reward.sources.all]
function = "{function}:all_outputs"

[reward.sources.model]
manager = "reward_model"

[reward.reward_model]
path = "{model}"
"""


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A byte-level tokenizer in which id 0 is an ordinary token, "!", as in Qwen's."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>"
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: str):
    """The same, loaded as verl does."""
    from verl.utils import hf_tokenizer

    return hf_tokenizer(tokenizer_folder)


@pytest.fixture(scope="session")
def reward_model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: str) -> str:
    """A real, tiny classification model, weights seeded, with a chat template."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, num_labels=1, max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    folder = tmp_path_factory.mktemp("reward_model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@dataclass
class Pool:
    """A server with two `rq worker` processes; rows are routed by `data_source`."""

    url: str
    processes: list[subprocess.Popen[bytes]]
    model: str

    def descendants(self) -> set[int]:
        """Pids of the workers and of what they started."""
        found: set[int] = set()
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                one = psutil.Process(process.pid)
                found |= {one.pid, *(child.pid for child in one.children(recursive=True))}
        return found


_pools: list[Pool] = []


@pytest.fixture(scope="session")
def pool(
    tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: str, reward_model_folder: str
) -> Iterator[Pool]:
    """One pool for all tests: starting workers takes longer than most of them."""
    folder = tmp_path_factory.mktemp("pool")
    function = write_function(folder)
    with EmbeddedServer(binary=find_server(prefer_embedded=True)) as server:
        (folder / "rewardpool.toml").write_text(
            SETTINGS.format(
                url=server.url, function=function, tokenizer=tokenizer_folder,
                model=reward_model_folder,
            )
        )  # fmt: skip
        pool = Pool(server.url, [], reward_model_folder)
        _pools.append(pool)
        try:
            _start(pool, folder)
            yield pool
        finally:
            _stop(pool)


def _start(pool: Pool, folder: Path) -> None:
    command = [str(POOL_PYTHON), "-m", "rq.cli", "worker", "-u", pool.url]
    command += ["-w", "worker.PoolWorker", "-j", "worker.PoolJob"]
    command += ["-S", "queue_client.wire.Serializer", "rewards"]
    env = {**os.environ, "REWARDPOOL_CONFIG": str(folder / "rewardpool.toml")}
    with (folder / "workers.log").open("ab") as log:
        for _ in range(2):
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=ROOT)
            pool.processes.append(process)

    def settled() -> bool:
        ended = any(process.poll() is not None for process in pool.processes)
        return ended or connection.scard("rq:workers") == len(pool.processes)

    with redis.Redis.from_url(pool.url) as connection:
        until(settled, timeout_s=120)
    ended = [process for process in pool.processes if process.poll() is not None]
    assert not ended, (folder / "workers.log").read_text()


def _stop(pool: Pool) -> None:
    for process in pool.processes:
        process.terminate()
    for process in pool.processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def _no_leftover_process() -> Iterator[None]:
    """As everywhere, but the pool's workers stay and start helpers as they need them."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    known = before.union(*(pool.descendants() for pool in _pools))
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in known]
    _, left = psutil.wait_procs(left, timeout=3)
    left = [one for one in left if not {one.pid, one.ppid()} & set().union(
        *(pool.descendants() for pool in _pools))]  # fmt: skip
    assert not left, f"processes left running: {left}"


@pytest.fixture(autouse=True)
def _own_clients() -> Iterator[None]:
    """Each test has clients of its own."""
    yield
    from queue_client.shared import close_shared_clients

    close_shared_clients()


@pytest.fixture
def make_loop(tokenizer_folder: str, pool: Pool) -> Callable[..., object]:
    """Returns verl's real RewardLoopWorker, configured as the documentation says."""

    def make(**reward_kwargs: object) -> object:
        from omegaconf import OmegaConf
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

        return RewardLoopWorker(
            OmegaConf.create(verl_config(tokenizer_folder, {"redis_url": pool.url} | reward_kwargs))
        )

    return make
