"""verl's own reward managers, named by path, run in our engine unchanged."""

from __future__ import annotations

import pytest

from queue_client import Output, Trajectory
from worker.scoring import ScoreRequest, ScoringEngine
from worker.settings import settings_from

pytestmark = pytest.mark.verl

LOOP = "verl.experimental.reward_loop.reward_manager"


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny byte-level tokenizer in a folder."""
    pytest.importorskip(LOOP)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["so the answer is #### 42"], trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>"
    ).save_pretrained(folder)
    return str(folder)


async def scored(reward, *texts):
    """One trajectory whose outputs are these texts, as ids; prompts of differing lengths."""
    from transformers import AutoTokenizer

    encode = AutoTokenizer.from_pretrained(reward["tokenizer"]).encode
    outputs = [
        Output(prompt_ids=[5] * (3 + 40 * at), response_ids=encode(text, add_special_tokens=False))
        for at, text in enumerate(texts)
    ]
    row = Trajectory(
        outputs=outputs,
        data_source="openai/gsm8k",
        ground_truth="42",
        extra_info={"index": 1},
        messages=[{"role": "user", "content": "6 x 7?"}],
        num_turns=2,
    )
    engine = ScoringEngine(settings_from({"reward": reward}))
    await engine.start()
    try:
        return await engine.score(ScoreRequest(row))
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("manager", "kwargs"),
    [
        ("naive:NaiveRewardManager", {}),
        ("gdpo:GDPORewardManager", {}),
        ("limited:RateLimitedRewardManager", {"max_concurrent": 2, "max_rpm": 6000}),
        (
            "dapo:DAPORewardManager",
            {
                "max_resp_len": 1000,
                "overlong_buffer_cfg": {
                    "enable": True, "len": 100, "penalty_factor": 1.0, "log": True,
                },
            },
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("texts", "reward"),
    [(["so #### 42"], 1.0), (["no, #### 41"], 0.0), (["a long try " * 30, "so #### 42"], 1.0)],
)
async def test_verls_managers_score_as_they_do_in_verl(
    tokenizer_folder, manager, kwargs, texts, reward
):
    outcome = await scored(
        {"manager": f"{LOOP}.{manager}", "tokenizer": tokenizer_folder, "kwargs": kwargs}, *texts
    )

    assert outcome.ok, outcome.message
    assert outcome.reward == reward


async def test_verls_default_function_may_be_the_reward_function(tokenizer_folder):
    outcome = await scored(
        {
            "function": "verl.utils.reward_score:default_compute_score",
            "tokenizer": tokenizer_folder,
        },
        "so #### 42",
    )

    assert outcome.ok, outcome.message
    assert outcome.reward == 1.0
