"""`headstart pretrain`: train a base on unlabelled text."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headstart.cli.options import (
    Common,
    CommonFlags,
    CorpusReading,
    CorpusReadingFlags,
    ModelFlags,
    ModelOverrides,
    PresetName,
    Switch,
    Words,
)
from headstart.cli.running import TrainingFlags, TrainingOptions, machine_of, run_console

Files = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)]


def pretrain(
    *,
    corpus: Files,
    valid: str | None = None,
    objective: Literal["causal", "masked", "masked-nsp"] = "causal",
    preset: PresetName = "tiny",
    tokenizer: Path | None = None,
    normalise: Words | None = None,
    start: Path | None = None,
    length: int | None = None,
    batch_tokens: int | None = None,
    mask_share: float = 0.15,
    mask_random: float = 0.1,
    mask_kept: float = 0.1,
    whole_words: Switch = False,
    out: Path | None = None,
    reading: CorpusReadingFlags = CorpusReading(),
    training: TrainingFlags = TrainingOptions(),
    overrides: ModelFlags = ModelOverrides(),
    common: CommonFlags = Common(),
) -> None:
    """Train a base on unlabelled text. The same command again goes on where it was, or finds it finished.

    For example:

        headstart pretrain --corpus reviews.txt --objective masked --minutes 30 --out runs/base

        headstart pretrain --corpus a.txt.gz b.txt.gz --preset lab --epochs 3 --out runs/lab

        headstart pretrain --corpus trade.txt=4 novels.txt --epochs 2 --out runs/mixed

        headstart pretrain --corpus trade.txt --start runs/base --objective masked --steps 2000 --out runs/second

    Parameters
    ----------
    corpus
        Unlabelled text: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; or the folder of a dataset. FILE=2 lets each
        block of that file (or pair of sentences) come twice an epoch, FILE=0.5 half of its blocks, and in the next
        epoch the other half.
    valid
        Text to measure by (default: a tenth of the documents, by the hash of their text).
    objective
        What is predicted: the next token, hidden tokens, or hidden tokens and the next sentence.
    preset
        The shape of the base.
    tokenizer
        A tokenizer's directory (default: one is trained on the corpus and kept in the run).
    normalise
        What that one makes alike in every text: lower-case, apostrophes (all made straight), or both with a comma.
    start
        A run to take the base and the tokenizer from.
    length
        Tokens of a block (default: the context).
    batch_tokens
        Tokens in a step (default: 1,024 on a CPU, 65,536 on a GPU).
    mask_share
        Share of the tokens that are hidden.
    mask_random
        Share of those that become another token and not the mask token.
    mask_kept
        Share of those that stay as they are.
    whole_words
        Hide whole words.
    out
        The run's directory (default: runs/pretrain- and a hash of the settings).
    """
    from headstart.objectives.masked import Corruption
    from headstart.text.durable import unsafe_file_system
    from headstart.text.normalising import in_order
    from headstart.training.budget import Budget
    from headstart.training.optimizer import OptimizerConfig
    from headstart.training.pretrain import pretrain as run
    from headstart.training.tokenizing import DEFAULT_VOCAB

    machine = machine_of(common, fast=training.fast, shard=training.shard)
    optimizer = OptimizerConfig(
        optimizer=training.optimizer,
        matrix_rate=training.matrix_rate, weight_decay=training.weight_decay, layer_decay=training.layer_decay,
    )  # fmt: skip
    overridden = dataclasses.asdict(overrides)
    vocab = overridden.pop("vocab") or DEFAULT_VOCAB  # of a tokenizer that is trained now
    out = out or default_out(
        "pretrain", corpus, objective, preset, start, training, overridden, common.seed, *(normalise or ())
    )
    with (
        run_console(machine, training.track) as console,
        unsafe_file_system(training.unsafe_fs, console.tell),
    ):
        result = run(
            corpus, out=out, objective=objective, valid=valid, preset_name=preset, overrides=overridden,
            tokenizer=tokenizer, vocab=vocab, normalise=in_order(normalise or ()), start=start,
            budget=Budget(steps=training.steps, epochs=training.epochs, minutes=training.minutes),
            length=length, batch_tokens=batch_tokens, optimizer=optimizer, learning_rate=training.learning_rate,
            loop=training.loop(common.seed, "cosine", 0.05),
            corruption=Corruption.of(mask_share, mask_random, mask_kept, whole_words), machine=machine,
            override_resume=training.override_resume, console=console, **reading.given(),
        )  # fmt: skip
    if not machine.ranks.is_first:
        return
    print_result(out, result, common)


def default_out(verb: str, *settings: Any) -> Path:
    """runs/VERB-HASH: the same settings find the same run."""
    return Path("runs") / f"{verb}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:10]}"


def print_result(out: Path, result: dict[str, Any], common: Common) -> None:
    """The result as JSON, or a few lines."""
    if common.json:
        print(json.dumps({"run": str(out), **result}))
        return
    print(f"run         {out}")
    print(f"steps       {result['step']:,}" + (" (stopped early)" if result["stopped_early"] else ""))
    print(f"parameters  {result['parameters']:,}")
    for name in ("valid", "test"):
        for key, value in (result.get(name) or {}).items():
            print(f"{name:<6} {key:<20} {'not finite' if value is None else format(value, '.4f')}")
