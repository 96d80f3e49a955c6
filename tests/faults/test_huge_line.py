"""A line larger than memory should care about, and a text smaller than a block."""

import json
import subprocess
import sys
from pathlib import Path

import french_sentences
import pytest
from expected_errors import refused

from headstart.data.packing import PackedBlocks
from headstart.data.readers.documents import pieces
from headstart.data.store_building import build_stores
from headstart.tokenizers.templates import template_of
from headstart.tokenizers.training import train

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "huge_line.py"


@pytest.mark.slow
def test_a_line_of_64_mb_trains_and_is_stored_within_500_mb():
    done = subprocess.run([sys.executable, BENCHMARK, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert max(case["peak_mb"] for case in found["cases"].values()) < 500
    assert found["cases"]["without spaces"]["tokens"] > 5_000_000
    assert found["same_tokenizer"]


@pytest.mark.slow
def test_unigram_stays_within_500_mb_too():
    command = [sys.executable, BENCHMARK, "--kind", "unigram", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert max(case["peak_mb"] for case in found["cases"].values()) < 500
    assert found["same_tokenizer"]


def test_one_line_and_many_give_the_same_tokenizer(tmp_path):
    """The same thing in small: pieces are cut many times over."""
    words = " ".join(french_sentences.lines(6_000)).split(" ")
    line, lines = tmp_path / "line.txt", tmp_path / "lines.txt"
    line.write_text(" ".join(words), encoding="utf-8")
    lines.write_text("".join(w + ("\n " if not i % 50 else " ") for i, w in enumerate(words[:-1])) + words[-1])
    found = [
        train(lambda path=path: (piece.text for piece in pieces([path])), vocab=500).tokenizer for path in (line, lines)
    ]
    assert line.stat().st_size > 4 * 65_536
    assert found[0].fingerprint == found[1].fingerprint
    stores = [build_stores([path], found[0], tmp_path)[0] for path in (line, lines)]
    assert stores[0].tokens.tolist() == stores[1].tokens.tolist()
    assert (stores[0].document_count, stores[1].document_count > 100) == (1, True)


@pytest.mark.parametrize("content", ["un seul mot", "é"])
def test_a_text_of_less_than_a_block_says_what_is_needed(content, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text(content, encoding="utf-8")
    tokenizer = train(lambda: french_sentences.lines(99), vocab=400).tokenizer
    store = build_stores([path], tokenizer, tmp_path)[0]
    with refused("too-few", "257", f"{len(store) + 2} came", f"{len(store)} of text") as caught:
        PackedBlocks(store, 256, template_of(tokenizer, "causal"))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_a_text_without_text_is_refused_before_anything_is_written(content, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text(content)
    tokenizer = train(lambda: french_sentences.lines(9), vocab=300).tokenizer
    with refused("bad-text") as caught:
        build_stores([path], tokenizer, tmp_path / "stores")
    assert caught.value.where == str(path)
    assert list((tmp_path / "stores").iterdir()) == []
