"""What a translator must be able to learn: to copy, to reverse, and the embedded pairs."""

import pytest
import torch

from headstart.config.generation import GenerationConfig
from headstart.config.training import LoopConfig
from headstart.demo import corpus as demo
from headstart.inference.translate import texts_of, translate
from headstart.machine import Machine
from headstart.randomness import stream
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.tasks.finetune import train_translator

LETTERS = "abcdefghij"
MACHINE = Machine(torch.device("cpu"), "fp32", 1)
# What learns fastest on so little.
MODERN = {"depth": 2, "decoder_depth": 2, "heads": 4, "norm_place": "pre", "positions": "rotary"}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
TASKS = {"copy": lambda word: word, "reverse": lambda word: word[::-1]}


def words(count, seed):
    draws = stream(seed, "words of letters")
    return ["".join(draws.choice(list(LETTERS), size=int(draws.integers(1, 11)))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_copying_and_reversing_are_learned_exactly(tmp_path, task):
    """Less than a minute on one core."""
    train = words(20_000, seed=1)
    test = sorted(set(words(1_500, seed=2)) - set(train))
    for name, part in (("train", train), ("valid", test[:50])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{word}\t{TASKS[task](word)}\n" for word in part))
    train_translator(
        tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", out=tmp_path / "run",
        tokenizer=train_tokenizer(lambda: iter([LETTERS]), vocab=20, kind="char").tokenizer,
        model={**NO_DROPOUT, **MODERN, "width": 64, "ffn": 128, "context": 32},
        batch_tokens=1_536, label_smoothing=0.0, steps=600, learning_rate=3e-3,
        loop=LoopConfig(schedule="linear", warmup=0.1), machine=MACHINE,
    )  # fmt: skip
    assert len(test) > 500
    for beams in (1, 4):
        search = GenerationConfig(beam=beams)
        found = texts_of(translate(load(tmp_path / "run"), test, MACHINE, search))
        right = sum(text == TASKS[task](word) for text, word in zip(found, test, strict=True))
        assert right > 0.99 * len(test)


@pytest.mark.slow
def test_the_embedded_pairs_give_a_bleu_over_60(tmp_path):
    """A minute or two on one core."""
    demo.write_demo(tmp_path / "demo")
    files = {name: tmp_path / f"demo/pairs.{name}.tsv" for name in ("train", "valid", "test")}
    result = train_translator(
        files["train"], valid=files["valid"], test=files["test"], out=tmp_path / "run", vocab=2_000,
        model={**NO_DROPOUT, **MODERN, "width": 128, "ffn": 256}, learning_rate=4e-3, steps=600,
        loop=LoopConfig(schedule="linear", warmup=0.1), machine=MACHINE,
    )  # fmt: skip
    assert result["test"]["bleu"] > 60
    translated = texts_of(translate(load(tmp_path / "run"), ["I found the denouement tiresome."], MACHINE))
    assert translated[0].startswith("J'ai trouvé")
