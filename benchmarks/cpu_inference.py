"""Using a small model on a CPU: Headstart beside Hugging Face, text in and answer out, the very same weights.

    HEADSTART_DATA=… python benchmarks/cpu_inference.py generate --threads 2                # greedy, 128 tokens
    HEADSTART_DATA=… python benchmarks/cpu_inference.py generate --threads 2 --vocab 8000
    HEADSTART_DATA=… python benchmarks/cpu_inference.py classify --threads 2                # the test set of cls-books

`generate`: `gpt2` with 4 layers, 200 wide, 2 heads; 1 text and 32 at once; against `generate` of the exported model.
`classify`: `lab` (causal) and `bert-base` of its size; against a `pipeline` of the second, exported, one text and 16 at
a time. The tokenizer is trained on fr-reviews. Weights are random: they cost what trained ones cost. All systems take
turns in one process, in fp32; medians of the rounds count. Texts, and labels, have to be the same. Prints rates, ratios
in wall time and in the process's own time, and a JSON line; the peer's own figure of before stands beside its rate.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.inference.generate import generate
from headstart.inference.predict import predict
from headstart.interop.huggingface import export_huggingface
from headstart.machine import Machine
from headstart.model.model import build
from headstart.runs.checkpoint import weights_digest
from headstart.runs.load import LoadedRun
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train

SHAPE = {"width": 200, "depth": 4, "heads": 2}
TOKENS, BATCHES, LONGEST = 128, (1, 32), 512
PROMPT = "J'ai lu ce livre en une nuit, et je"
# What the peers reached where they were measured first, by the same names as below.
ANCHORS = {"hf batch 1": 190.0, "hf batch 32": 2326.0, "pipeline batch 1": 84.0, "pipeline batch 16": 61.0}
System = Callable[[], list[str]]


def random_run(words: Tokenizer, name: str, objective: str, **overrides: Any) -> LoadedRun:
    """A run with random weights, in memory: as far apart as after some training, so that no two tokens tie."""
    config = preset(name, vocab=words.size, tokenizer=words.fingerprint, **SHAPE, **overrides)
    head = HeadConfig(kind="lm" if objective == "causal" else "classification")
    model = build(config, head)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor_name, parameter in model.named_parameters():
            spread = 0.1 if "norm" not in tensor_name else 0.02
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
    described = RunConfig(
        objective=objective, frame="causal" if config.direction == "causal" else "masked", length=LONGEST, batch=8,
        labels=["no", "yes"] if objective == "classification" else [], data=DataConfig(), model=config, head=head,
        optimizer=OptimizerConfig(), loop=LoopConfig(), masking=Masking(),
    )  # fmt: skip
    digest = weights_digest(dict(model.named_parameters()))
    return LoadedRun(Path("random"), described, words, model.eval(), digest, 0, True)


def trained_tokenizer(vocab: int) -> Tokenizer:
    """Of the reviews."""
    path = Path(os.environ["HEADSTART_DATA"]) / "fr-reviews" / "train.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return train(lambda: iter(lines), vocab=vocab).tokenizer


# ---- generation ---------------------------------------------------------------------------------------------


def generators(vocab: int, machine: Machine, place: Path) -> dict[str, tuple[float, System]]:
    """Tokens that each system writes, and the texts that it wrote."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = random_run(trained_tokenizer(vocab), "gpt2", "causal", ffn=800)
    exported = export_huggingface(run, place / "gpt2").directory
    theirs, words = (
        AutoModelForCausalLM.from_pretrained(exported).eval(),
        AutoTokenizer.from_pretrained(exported),
    )
    end = run.tokenizer.id_of("end")
    never = sorted(run.tokenizer.special_ids - {end})

    def ours(batch: int) -> list[str]:
        found = generate(run, PROMPT, machine, GenerationConfig(max_tokens=TOKENS, count=batch))
        assert all(one.token_count == TOKENS for one in found), "the random model ended its text"
        return [one.text for one in found]

    def hugging_face(batch: int) -> list[str]:
        ids = [run.tokenizer.id_of("begin"), *words(PROMPT, add_special_tokens=False)["input_ids"]]
        given = torch.tensor([ids] * batch)
        with torch.inference_mode():
            written = theirs.generate(
                input_ids=given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=TOKENS,
                suppress_tokens=never, eos_token_id=end, pad_token_id=run.tokenizer.id_of("pad"),
            )  # fmt: skip
        before = len(words.decode(ids, skip_special_tokens=True))
        return [text[before:] for text in words.batch_decode(written, skip_special_tokens=True)]

    systems: dict[str, tuple[float, System]] = {}
    for batch in BATCHES:
        systems[f"headstart batch {batch}"] = batch * TOKENS, lambda batch=batch: ours(batch)
        systems[f"hf batch {batch}"] = batch * TOKENS, lambda batch=batch: hugging_face(batch)
    return systems


# ---- classification -----------------------------------------------------------------------------------------


def classifiers(vocab: int, machine: Machine, place: Path, count: int) -> dict[str, tuple[float, System]]:
    """Texts that each system reads, and the labels that it gave."""
    from transformers import pipeline

    path = Path(os.environ["HEADSTART_DATA"]) / "cls-books" / "test.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file][:count]
    words = trained_tokenizer(vocab)
    lab = random_run(words, "lab", "classification")
    bert = random_run(words, "bert-base", "classification", ffn=200)
    exported = export_huggingface(bert, place / "bert").directory
    asked = pipeline("text-classification", model=str(exported), device="cpu", framework="pt")

    def ours(run: LoadedRun) -> list[str]:
        return [one.answer["label"] for one in predict(run, texts, machine)]

    def hugging_face(batch: int) -> list[str]:
        found = asked(texts, batch_size=batch, truncation=True, max_length=LONGEST)
        return [one["label"] for one in found]

    return {
        "headstart lab": (len(texts), lambda: ours(lab)),
        "headstart bert": (len(texts), lambda: ours(bert)),
        "pipeline batch 1": (len(texts), lambda: hugging_face(1)),
        "pipeline batch 16": (len(texts), lambda: hugging_face(16)),
    }


# ---- side by side -------------------------------------------------------------------------------------------


def measured(systems: dict[str, tuple[float, System]], rounds: int) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The rates of each system, by the clock and by the process's own time, and what it answered."""
    found = {name: system() for name, (_, system) in systems.items()}  # and warm up
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, (_, system) in systems.items():
            clock, own = time.perf_counter(), time.process_time()
            system()
            seconds[name].append((time.perf_counter() - clock, time.process_time() - own))
    rates = {
        name: [amount / statistics.median(column) for column in zip(*seconds[name], strict=True)]
        for name, (amount, _) in systems.items()
    }
    return {name: {"clock": clock, "own": own} for name, (clock, own) in rates.items()}, found


def compared(work: str, rates: dict[str, Any], found: dict[str, list[str]]) -> dict[str, Any]:
    """Each of ours by each peer that does the same: the ratios, and the share of the answers that are the same."""
    pairs = [(f"headstart batch {n}", f"hf batch {n}") for n in BATCHES]
    if work == "classify":
        peers = ("pipeline batch 1", "pipeline batch 16")
        pairs = [(own, peer) for own in ("headstart lab", "headstart bert") for peer in peers]
    ratios = {}
    for own, peer in pairs:
        same = sum(a == b for a, b in zip(found[own], found[peer], strict=True)) / len(found[own])
        ratios[f"{own} / {peer}"] = {
            "clock": rates[own]["clock"] / rates[peer]["clock"], "own": rates[own]["own"] / rates[peer]["own"],
            "same": None if own == "headstart lab" else same,  # other weights: no family expresses it
        }  # fmt: skip
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("generate", "classify"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocab", type=int, help="default: 50,257 to generate, 50,001 to classify")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="of our classification; the rest is fp32",
    )
    parser.add_argument("--texts", type=int, default=2_000, help="of the test set")
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    try:
        from transformers.utils import logging
    except ImportError as error:
        sys.exit(f"skipped: {error} (pip install 'headstart[hf]')")
    logging.set_verbosity_error()
    vocab = options.vocab or (50_257 if options.work == "generate" else 50_001)
    machine = Machine(torch.device("cpu"), options.precision, options.threads)
    machine.prepare()
    with tempfile.TemporaryDirectory() as place:
        if options.work == "generate":
            systems, unit = generators(vocab, machine, Path(place)), "tokens"
        else:
            systems, unit = classifiers(vocab, machine, Path(place), options.texts), "reviews"
        rates, found = measured(systems, options.rounds)
    print(f"{options.work}, {vocab:,} tokens in the vocabulary, {options.threads} threads, ours in {options.precision}")
    for name, rate in rates.items():
        before = f"   ({ANCHORS[name]:,.0f} measured before)" if name in ANCHORS else ""
        print(f"{name:20} {rate['clock']:9,.1f} {unit} a second, {rate['own']:9,.1f} a processor's{before}")
    ratios = compared(options.work, rates, found)
    for pair, ratio in ratios.items():
        same = "other weights" if ratio["same"] is None else f"{ratio['same']:.1%} of the answers are the same"
        print(f"{pair:38} {ratio['clock']:6.2f} by the clock, {ratio['own']:6.2f} by processor time; {same}")
    print(
        json.dumps(
            {
                "work": options.work,
                "vocab": vocab,
                "threads": options.threads,
                "precision": options.precision,
                "rates": rates,
                "ratios": ratios,
            }
        )
    )


if __name__ == "__main__":
    main()
