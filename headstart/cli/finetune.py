"""`headstart finetune`: a base under a head for labelled texts."""

import dataclasses
from pathlib import Path
from typing import Literal

from headstart.cli.options import Common, CommonFlags, ModelFlags, ModelOverrides, PresetName, Switch
from headstart.cli.pretrain import default_out, print_result
from headstart.cli.running import TrainingFlags, TrainingOptions, machine_of, run_console


def finetune(
    *,
    train: str,
    valid: str | None = None,
    test: str | None = None,
    task: Literal["classification", "multilabel", "regression"] = "classification",
    start: str = "scratch",
    labels: int | None = None,
    preset: PresetName = "tiny",
    tokenizer: Path | None = None,
    pooling: Literal["last", "mean", "first"] | None = None,
    freeze: Literal["nothing", "base"] = "nothing",
    length: int | None = None,
    batch: int = 16,
    text_column: str = "text",
    label_column: str = "label",
    encoding: str = "utf-8",
    errors: Literal["strict", "replace", "ignore"] = "strict",
    skip_bad_rows: Switch = False,
    out: Path | None = None,
    training: TrainingFlags = TrainingOptions(),
    overrides: ModelFlags = ModelOverrides(),
    common: CommonFlags = Common(),
) -> None:
    """Train a head, and the base under it, on labelled texts. The same command again goes on where it was.

    For example:

        headstart finetune --train train.jsonl --test test.jsonl --start runs/base --out runs/tuned

        headstart finetune --train train.jsonl --test test.jsonl --start scratch --labels 200 --out runs/scratch

        headstart finetune --train stars.csv --task regression --text-column review --label-column stars

    Parameters
    ----------
    train
        Labelled rows: .jsonl, .csv, .tsv, .parquet, or lines with a .label file beside them.
    valid
        Labelled rows to choose by (default: a tenth of train, by the hash of the text).
    test
        Labelled rows to score at the end.
    task
        What the labels are.
    start
        scratch, or a run to take the base and the tokenizer from.
    labels
        How many labelled rows to use: a nested, stratified subset (default: all).
    preset
        The shape of the base, from scratch.
    tokenizer
        A tokenizer's directory, from scratch (default: one is trained on the texts and kept in the run).
    pooling
        How one vector is made of a text (default: last if causal, else first).
    freeze
        What does not learn.
    length
        Tokens of the longest text; a longer one is cut (default: the context).
    batch
        Texts in a step.
    text_column
        The column of the text.
    label_column
        The column of the label.
    encoding
        How the files are encoded.
    errors
        What to do with bytes that are not text.
    skip_bad_rows
        Count rows that cannot be used instead of stopping at the first.
    out
        The run's directory (default: runs/finetune- and a hash of the settings).
    """
    from headstart.training.budget import Budget
    from headstart.training.finetune import finetune as run
    from headstart.training.optimizer import OptimizerConfig

    machine = machine_of(common)
    optimizer = OptimizerConfig(
        optimizer=training.optimizer, matrix_rate=training.matrix_rate,
        weight_decay=training.weight_decay, layer_decay=training.layer_decay,
    )  # fmt: skip
    overridden = dataclasses.asdict(overrides)
    vocab = overridden.pop("vocab") or 8_000  # of a tokenizer that is trained now
    out = out or default_out(
        "finetune", train, start, task, labels, preset, training, overridden, common.seed
    )
    with run_console(machine) as console:
        result = run(
            train, out=out, task=task, valid=valid, test=test, labels=labels,
            start=None if start == "scratch" else start, preset_name=preset, overrides=overridden,
            tokenizer=tokenizer, vocab=vocab, pooling=pooling, freeze=freeze,
            budget=Budget(steps=training.steps, epochs=training.epochs, minutes=training.minutes),
            length=length, batch=batch, text_column=text_column, label_column=label_column,
            encoding=encoding, errors=errors, skip_bad_rows=skip_bad_rows, optimizer=optimizer,
            learning_rate=training.learning_rate, loop=training.loop(common.seed, "linear", 0.1),
            machine=machine, override_resume=training.override_resume, console=console,
        )  # fmt: skip
    print_result(out, result, common)
