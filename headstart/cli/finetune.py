"""`headstart finetune`: a base under a head for labelled texts, or an encoder-decoder for pairs."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from headstart.cli.options import (
    Common,
    CommonFlags,
    LabelledReading,
    LabelledReadingFlags,
    ModelFlags,
    ModelOverrides,
    PresetName,
)
from headstart.cli.pretrain import default_out, print_result
from headstart.cli.running import TrainingFlags, TrainingOptions, machine_of, run_console
from headstart.cli.translation_flags import (
    AS_USUAL,
    TranslationFlags,
    defaults,
    refuse_given,
    train_translator,
)


def finetune(
    *,
    train: str,
    valid: str | None = None,
    test: str | None = None,
    task: Literal["classification", "multilabel", "regression", "translation"] = "classification",
    start: str = "scratch",
    labels: int | None = None,
    preset: PresetName | None = None,
    tokenizer: Path | None = None,
    pooling: Literal["last", "mean", "first"] | None = None,
    freeze: Literal["nothing", "base"] = "nothing",
    length: int | None = None,
    batch: int | None = None,
    r_drop: float = 0.0,
    out: Path | None = None,
    reading: LabelledReadingFlags = LabelledReading(),
    training: TrainingFlags = TrainingOptions(),
    translation: TranslationFlags = AS_USUAL,
    overrides: ModelFlags = ModelOverrides(),
    common: CommonFlags = Common(),
) -> None:
    """Train a head, and the base under it, on labelled texts; or a translator on pairs.

    The same command again goes on where it was. A translator is scored by sacreBLEU on valid and test.

    For example:

        headstart finetune --train train.jsonl --test test.jsonl --start runs/base --out runs/tuned

        headstart finetune --train train.jsonl --test test.jsonl --start scratch --labels 200 --out runs/scratch

        headstart finetune --train stars.csv --task regression --text-column review --label-column stars

        headstart finetune --task translation --train train.tsv --valid valid.tsv --test test.tsv --out runs/fr

    Parameters
    ----------
    train
        Labelled rows: .jsonl, .csv, .tsv, .parquet, lines with a .label file beside them, or the folder of a dataset
        (parquet, or what Dataset.save_to_disk wrote), whose splits are taken by their names. For translation pairs: a
        .tsv of two columns without header or quoting, or a table with source and target.
    valid
        Labelled rows to choose by (default: a tenth of train, by the hash of the text).
    test
        Labelled rows to score at the end.
    task
        What the labels are, or translation.
    start
        scratch, or a run to take the base and the tokenizer from.
    labels
        How many labelled rows, or pairs, to use: a nested, stratified subset (default: all).
    preset
        The shape of the base, from scratch (default: tiny; transformer-tiny for translation).
    tokenizer
        A tokenizer's directory, from scratch (default: one is trained on the texts and kept in the run).
    pooling
        How one vector is made of a text (default: last if causal, first with BERT's pooler, else mean).
    freeze
        What does not learn.
    length
        Tokens of the longest text; a longer one is cut (default: the context).
    batch
        Texts in a step (default: 16; translation has --batch-tokens).
    r_drop
        Classes and translation: read each text twice with different dropout, and add their disagreement so many
        times to the loss. Costs twice the time, and wants --dropout.
    out
        The run's directory (default: runs/finetune- and a hash of the settings).
    """
    from headstart.text.durable import unsafe_file_system
    from headstart.training.budget import Budget
    from headstart.training.finetune import DEFAULT_BATCH
    from headstart.training.finetune import finetune as run
    from headstart.training.optimizer import OptimizerConfig
    from headstart.training.tokenizing import DEFAULT_VOCAB

    if task != "translation":
        refuse_given(translation, task)
    machine = machine_of(common, fast=training.fast, shard=training.shard)
    optimizer = OptimizerConfig(
        optimizer=training.optimizer, matrix_rate=training.matrix_rate,
        weight_decay=training.weight_decay, layer_decay=training.layer_decay,
    )  # fmt: skip
    overridden = dataclasses.asdict(overrides)
    vocab = overridden.pop("vocab") or DEFAULT_VOCAB  # of a tokenizer that is trained now
    schedule, warmup, usual_preset = defaults(task)
    preset = preset or usual_preset
    out = out or default_out(
        "finetune", train, start, task, labels, preset, training, overridden, common.seed,
        *([r_drop] if r_drop else []),
    )  # fmt: skip
    with (
        run_console(machine, training.track) as console,
        unsafe_file_system(training.unsafe_fs, console.tell),
    ):
        shared: dict[str, Any] = {
            "train": train, "out": out, "valid": valid, "test": test,
            "start": None if start == "scratch" else start, "preset_name": preset, "overrides": overridden,
            "tokenizer": tokenizer, "vocab": vocab, "length": length, "optimizer": optimizer,
            "budget": Budget(steps=training.steps, epochs=training.epochs, minutes=training.minutes),
            "learning_rate": training.learning_rate, "loop": training.loop(common.seed, schedule, warmup),
            "machine": machine, "override_resume": training.override_resume, "console": console,
        }  # fmt: skip
        if task == "translation":
            for_labels: dict[str, Any] = {
                "--pooling": pooling, "--freeze": freeze, "--batch": batch,
            }  # fmt: skip
            result = train_translator(
                translation, reading.given(), for_labels, pairs=labels, r_drop=r_drop, **shared
            )
        else:
            result = run(
                **shared,
                task=task,
                labels=labels,
                pooling=pooling,
                freeze=freeze,
                batch=DEFAULT_BATCH if batch is None else batch,
                r_drop=r_drop,
                **reading.given(),
            )
    if not machine.ranks.is_first:
        return
    print_result(out, result, common)
    if not common.json:
        for name, signature in result.get("signatures", {}).items():
            print(f"{name:<6} {signature}")
