"""Sentences a second of `translate`, beside Hugging Face's `generate` with the very same weights.

    python benchmarks/translation_speed.py RUN test.tsv --threads 2
    python benchmarks/translation_speed.py random test.tsv --threads 2        # without a trained run

RUN is a translation run of the shape of 2017 (`--preset transformer-tiny`, one vocabulary for both sides); its
weights are copied into a Marian model. `random` is such a model with random weights and a vocabulary of the file, and
writes 20 tokens about every sentence. Both translate the sources of the file with the same beam, in fp32, sorted by
length (Marian in batches of 32, already tokenised), taking turns in one process; the medians of the rounds count.
Prints the two rates, their ratio by the clock and by the process's own time, the share of sentences that come out the
same, and a JSON line. Marian alone was measured before at 22 sentences a second (20 tokens, beam 5, batches of 32).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.data.labelled import read_pairs
from headstart.inference.translate import Translator
from headstart.machine import Machine
from headstart.model.model import build
from headstart.model.positions import sinusoids
from headstart.runs.load import LoadedRun, load
from headstart.tokenizers.templates import pad
from headstart.tokenizers.training import train

Translate = Callable[[list[str]], list[list[int]]]
VOCAB, RANDOM_TOKENS = 8_000, 20


def random_run(texts: list[str]) -> LoadedRun:
    """`transformer-tiny` with random weights, in memory, far enough apart that no two tokens tie."""
    words = train(lambda: iter(texts), vocab=VOCAB).tokenizer
    config = preset("transformer-tiny", vocab=words.size, tokenizer=words.fingerprint)
    head = HeadConfig(kind="translation")
    model = build(config, head)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)
    described = RunConfig(
        objective="translation", frame="causal", length=128, batch=8, data=DataConfig(), model=config, head=head,
        optimizer=OptimizerConfig(), loop=LoopConfig(), masking=Masking(),
    )  # fmt: skip
    return LoadedRun(Path("random"), described, words, model.eval(), "", 0, True)


def ours(run: LoadedRun, beams: int, threads: int, tokens: int | None) -> Translate:
    translator = Translator.of(run, Machine(torch.device("cpu"), "fp32", threads))
    search = GenerationConfig(beam=beams, min_tokens=tokens or 0, max_tokens=tokens)

    def translate(texts: list[str]) -> list[list[int]]:
        return [one.candidates[0].ids for one in translator.translate(texts, search)]

    return translate


def theirs(run: LoadedRun, beams: int, size: int, texts: list[str], tokens: int | None) -> Translate:
    words, model = run.tokenizer, marian_of(run)
    begin, end, padding = (words.id_of(role) for role in ("begin", "end", "pad"))
    never = sorted(words.special_ids - {end})
    sources = {text: [begin, *map(int, ids), end] for text, ids in zip(texts, words.encode_many(texts), strict=True)}

    def translate(texts: list[str]) -> list[list[int]]:
        order = sorted(range(len(texts)), key=lambda row: len(sources[texts[row]]))
        found: dict[int, list[int]] = {}
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            read, present = pad([np.array(sources[texts[row]]) for row in rows], padding)
            length = {"max_new_tokens": 2 * read.shape[1] + 16}
            if tokens:  # and the end, as ours
                length = {"min_new_tokens": tokens, "max_new_tokens": tokens + 1, "forced_eos_token_id": end}
            with torch.inference_mode():
                written = model.generate(
                    input_ids=torch.from_numpy(read), attention_mask=torch.from_numpy(present).long(),
                    num_beams=beams, do_sample=False, suppress_tokens=never, length_penalty=1.0, **length,
                ).tolist()  # fmt: skip
            for row, ids in zip(rows, written, strict=True):
                found[row] = [i for i in ids if i not in (begin, end, padding)]
        return [found[row] for row in range(len(texts))]

    return translate


def marian_of(run: LoadedRun) -> Any:
    """The run's weights in Hugging Face's model of the same shape."""
    from transformers import MarianConfig, MarianMTModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    config, words = run.config.model, run.tokenizer
    is_2017 = (config.norm_place, config.positions, config.activation) == ("post", "sinusoidal", "relu")
    if not is_2017 or config.target_vocab or not (config.tied and config.scale_embedding and config.bias):
        sys.exit("the run has not the shape of 2017: --preset transformer-tiny, one vocabulary")
    sizes = {}
    for side, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        sizes |= {
            f"{side}_layers": depth,
            f"{side}_attention_heads": config.heads,
            f"{side}_ffn_dim": config.ffn,
        }
    model = MarianMTModel(MarianConfig(
        vocab_size=config.vocab, d_model=config.width, activation_function="relu", scale_embedding=True,
        max_position_embeddings=config.context, pad_token_id=words.id_of("pad"), eos_token_id=words.id_of("end"),
        bos_token_id=words.id_of("begin"), decoder_start_token_id=words.id_of("begin"),
        forced_eos_token_id=None, **sizes,
    )).eval()  # fmt: skip
    ours = dict(run.model.named_parameters())
    tensors = {"model.shared.weight": ours["base.embedding.tokens.weight"]}
    for side, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        tensors[f"model.{side}.embed_positions.weight"] = sinusoids(torch.arange(config.context), config.width)
        tensors[f"model.{side}.embed_tokens.weight"] = ours["base.embedding.tokens.weight"]
        for layer in range(depth):
            tensors |= _block(ours, f"base.{side}.blocks.{layer}", f"model.{side}.layers.{layer}")
    tensors["lm_head.weight"] = ours["base.embedding.tokens.weight"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"final_logits_bias"}, missing
    assert not unexpected, unexpected
    return model


def _block(ours: dict[str, Any], mine: str, their: str) -> dict[str, Tensor]:
    """The tensors of one block under Marian's names."""
    found = {}
    names = {
        "attention.output": "self_attn.out_proj", "attention_norm": "self_attn_layer_norm",
        "cross_attention.output": "encoder_attn.out_proj", "cross_norm": "encoder_attn_layer_norm",
        "feed_forward.input": "fc1", "feed_forward.output": "fc2", "feed_forward_norm": "final_layer_norm",
    }  # fmt: skip
    for kind in ("weight", "bias"):
        for own, name in names.items():
            if f"{mine}.{own}.{kind}" in ours:
                found[f"{their}.{name}.{kind}"] = ours[f"{mine}.{own}.{kind}"]
        for own, name in (("attention", "self_attn"), ("cross_attention", "encoder_attn")):
            if f"{mine}.{own}.qkv.{kind}" in ours:
                parts = ours[f"{mine}.{own}.qkv.{kind}"].chunk(3)
                found |= {f"{their}.{name}.{p}_proj.{kind}": t for p, t in zip("qkv", parts, strict=True)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run's directory, or random")
    parser.add_argument("pairs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=256, help="of the beginning of the file")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="of Marian")
    options = parser.parse_args()
    machine = Machine(torch.device("cpu"), "fp32", options.threads)
    machine.prepare()
    pairs = read_pairs(options.pairs)
    texts, tokens = pairs.sources[: options.sentences], None
    if options.run == "random":
        run, tokens = random_run([*pairs.sources, *pairs.targets]), RANDOM_TOKENS
    else:
        run = load(options.run)
    try:
        translators = {
            "headstart": ours(run, options.beam, options.threads, tokens),
            "marian": theirs(run, options.beam, options.batch, texts, tokens),
        }
    except ImportError as error:
        sys.exit(f"skipped: {error} (pip install 'headstart[hf]')")
    found = {name: translate(texts) for name, translate in translators.items()}  # and warm up
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in translators}
    for _ in range(options.rounds):
        for name, translate in translators.items():
            clock, own = time.perf_counter(), time.process_time()
            translate(texts)
            seconds[name].append((time.perf_counter() - clock, time.process_time() - own))
    rates = {
        name: [len(texts) / statistics.median(column) for column in zip(*taken, strict=True)]
        for name, taken in seconds.items()
    }
    same = sum(a == b for a, b in zip(*found.values(), strict=True)) / len(texts)
    for name, (clock, own) in rates.items():
        length = sum(map(len, found[name])) / len(texts)
        print(f"{name:10} {clock:7.1f} sentences a second, {own:7.1f} a processor's, {length:.1f} tokens each")
    ratios = [ours / theirs for ours, theirs in zip(rates["headstart"], rates["marian"], strict=True)]
    said = f"{ratios[0]:.2f} by the clock, {ratios[1]:.2f} by processor time"
    print(f"ratio      {said}; {same:.1%} of the sentences are the same")
    names = ("clock", "own")
    print(
        json.dumps(
            {
                "sentences_a_second": {name: dict(zip(names, both, strict=True)) for name, both in rates.items()},
                "ratio": dict(zip(names, ratios, strict=True)), "same": same, "threads": options.threads,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
