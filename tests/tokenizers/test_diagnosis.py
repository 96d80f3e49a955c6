"""The numbers of a diagnosis, counted by hand."""

import french_sentences
import pytest
from expected_errors import refused

from headstart.tokenizers.diagnosis import PROBES, diagnose, probed
from headstart.tokenizers.training import train

LINES = french_sentences.lines(400)


def test_figures_of_a_text_counted_by_hand():
    tokenizer = train(lambda: ["aab", "éa b"], vocab=10, kind="char").tokenizer
    found = diagnose(tokenizer, ["ab é", "aaa"])
    assert (found.vocabulary, found.texts) == (10, 2)
    assert (found.tokens, found.words, found.text_bytes) == (7, 3, 8)
    assert (found.bytes_per_token, found.tokens_per_word) == (8 / 7, 7 / 3)
    assert found.unknown == 1  # é was left out of ten tokens
    assert found.texts_changed == 1
    assert found.unused == 0
    assert found.most_frequent[0] == ("a", 4)
    assert found.single_byte_share == 6 / 7
    assert found.is_of_characters


def test_the_share_of_the_embedding_in_the_labs_model():
    tokenizer = train(lambda: LINES, vocab=300).tokenizer
    found = diagnose(tokenizer, LINES)
    # 4 layers of 242,000 parameters; the embedding and the output have 300 × 200, the output a bias of 300 too.
    assert found.embedding_share == 60_000 / (4 * 242_000 + 60_000 + 60_300)


def test_the_longest_and_the_unused_tokens():
    tokenizer = train(lambda: ["chat chat chat", "zz zz"], vocab=300).tokenizer
    found = diagnose(tokenizer, ["un chat"])
    assert found.longest[0] == (" chat", 1)
    used = set(tokenizer.encode("un chat").tolist())
    assert found.unused == tokenizer.size - 7 - len(used)
    assert not found.is_of_characters


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_bytes_survive_every_probe(kind):
    tokenizer = train(lambda: LINES, vocab=400, kind=kind).tokenizer
    assert probed(tokenizer) == dict.fromkeys(PROBES, "")
    assert diagnose(tokenizer, LINES).texts_changed == 0


def test_what_a_probe_loses_is_shown():
    found = probed(train(lambda: LINES, vocab=400, kind="wordpiece").tokenizer)
    assert found["tabs and runs of spaces"] == "a b c d"
    assert found["straight apostrophe"].startswith("L ' auteur n ' a pas")


def test_a_large_text_is_sampled_evenly_and_a_text_of_unknown_size_from_its_start():
    tokenizer = train(lambda: LINES, vocab=300).tokenizer
    size = sum(len(line.encode()) for line in LINES)
    even = diagnose(tokenizer, LINES, text_bytes=size, sample_bytes=size // 4)
    assert 0.15 < even.texts / len(LINES) < 0.35
    start = diagnose(tokenizer, LINES, sample_bytes=1_000)
    assert 1_000 <= start.text_bytes < 1_200


def test_no_text_is_refused():
    with refused("too-few"):
        diagnose(train(lambda: LINES, vocab=300).tokenizer, [])
