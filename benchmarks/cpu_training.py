"""Training the course's model on a CPU: Headstart beside the course's own loop and Hugging Face's Trainer.

    HEADSTART_DATA=… python benchmarks/cpu_training.py finetune --threads 2   # an epoch over cls-books, batches of 8
    python benchmarks/cpu_training.py pretrain --vocab 50001 --threads 2      # tokens a second of causal pretraining
    python benchmarks/cpu_training.py pretrain --vocab 8000 --threads 2

The same shape (4 layers, 200 wide, 2 heads), the same texts as ids, the same number of updates. Each system works in
a process of its own, taking turns; the best of the rounds counts. What is timed are the steps: reading and
tokenising is done before. The Trainer needs transformers and accelerate, and is left out without them. Prints
seconds or tokens a second, ratios, and a JSON line.
"""

import argparse
import gzip
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children
import numpy as np
import torch
import torch.nn.functional as F
from course import DEPTH, FFN, HEADS, WIDTH, CourseModel

BATCH, LONGEST = 8, 512
PRETRAINING = {50_001: (16, 64, 12), 8_000: (16, 256, 12)}  # vocabulary: blocks, tokens in each, steps
SYSTEMS = {"finetune": ("headstart", "course", "trainer"), "pretrain": ("headstart", "course")}


def reviews() -> tuple[list[np.ndarray], np.ndarray]:
    """The texts of cls-books train in the course's own vocabulary, and their labels."""
    from headstart.text.tokenizer import Tokenizer

    folder = Path(os.environ["HEADSTART_DATA"]) / "cls-books"
    words = Tokenizer.load(folder / "original" / "sentencepiece.french.model")
    with gzip.open(folder / "train.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    texts = [ids[: LONGEST - 2] for ids in words.encode_many([row["text"] for row in rows])]
    return texts, np.array([int(row["label"]) for row in rows])


def random_blocks(vocab: int) -> np.ndarray:
    """Blocks of random tokens, with the one that follows each, (steps, blocks, length + 1)."""
    blocks, length, steps = PRETRAINING[vocab]
    return np.random.default_rng(0).integers(4, vocab, (steps + 2, blocks, length + 1))


# ---- Headstart ----------------------------------------------------------------------------------------------


def headstart_finetune(threads: int, steps: int) -> float:
    from headstart.model.model import build
    from headstart.model.presets import HeadConfig, preset
    from headstart.objectives.classification import Classification
    from headstart.text.frames import Frame
    from headstart.training.loop import LoopConfig, Training, train
    from headstart.training.machine import Machine
    from headstart.training.optimizer import OptimizerConfig

    texts, labels = reviews()
    examples = [Frame(1, 2).one(ids, LONGEST) for ids in texts]
    head = HeadConfig(kind="classification", classes=2)
    model = build(preset("lab", vocab=50_001), head, seed=0)
    objective = Classification(examples, labels, head, BATCH, 0)
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        train(
            Training(
                directory=Path(place), model=model, objective=objective, valid=None,
                optimizer=OptimizerConfig(learning_rate=1e-4),
                loop=LoopConfig(steps=steps, save_every_seconds=1e9),
                machine=Machine(torch.device("cpu"), "fp32", threads), tell=lambda line: None,
            )
        )  # fmt: skip
        return time.perf_counter() - started


class _Blocks:
    """The causal objective over blocks that are there already."""

    def __init__(self, vocab: int) -> None:
        from headstart.model.presets import HeadConfig

        self.blocks, self.head = random_blocks(vocab), HeadConfig(kind="lm")

    def batch_at(self, seed: int, step: int) -> dict[str, np.ndarray]:
        return {"tokens": self.blocks[step, :, :-1], "targets": self.blocks[step, :, 1:]}

    def loss(self, model: Any, batch: dict[str, torch.Tensor]) -> Any:
        from headstart.objectives.causal import Causal

        return Causal.loss(self, model, batch)  # type: ignore[arg-type]


def headstart_pretrain(vocab: int, threads: int) -> float:
    from headstart.model.model import build
    from headstart.model.presets import HeadConfig, preset
    from headstart.training.loop import LoopConfig, Training, one_update
    from headstart.training.machine import Machine
    from headstart.training.optimizer import OptimizerConfig

    objective: Any = _Blocks(vocab)
    with tempfile.TemporaryDirectory() as place:
        update = one_update(
            Training(
                directory=Path(place), model=build(preset("lab", vocab=vocab), HeadConfig(kind="lm")),
                objective=objective, valid=None, optimizer=OptimizerConfig(), loop=LoopConfig(),
                machine=Machine(torch.device("cpu"), "fp32", threads),
            )
        )  # fmt: skip
        return _timed(iter(range(len(objective.blocks))), update)


# ---- the peers ----------------------------------------------------------------------------------------------


def course_finetune(threads: int, steps: int) -> float:
    texts, labels = reviews()
    model = CourseModel(50_001, 2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    order = np.random.default_rng(0).permutation(len(texts))
    started = time.perf_counter()
    for step in range(steps):
        rows = order[step * BATCH : (step + 1) * BATCH]
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor([1, *texts[row].tolist(), 2]) for row in rows])
        last = torch.tensor([len(texts[row]) + 1 for row in rows])
        outputs = model(tokens)[last, torch.arange(len(rows))]
        _update(model, optimizer, F.cross_entropy(outputs, torch.from_numpy(labels[rows])))
    return time.perf_counter() - started


def course_pretrain(vocab: int, threads: int) -> float:
    blocks = torch.from_numpy(random_blocks(vocab))
    model = CourseModel(vocab, vocab).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def update(step: int) -> None:
        tokens = blocks[step].T
        outputs = model(tokens[:-1]).flatten(0, 1)
        _update(model, optimizer, F.cross_entropy(outputs, tokens[1:].flatten()))

    return _timed(iter(range(len(blocks))), update)


def trainer_finetune(threads: int, steps: int) -> float:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    texts, labels = reviews()
    config = BertConfig(
        vocab_size=50_001, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        intermediate_size=FFN, max_position_embeddings=LONGEST, hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2, num_labels=2,
    )  # fmt: skip
    rows = [
        {"ids": [1, *ids.tolist(), 2], "label": int(label)} for ids, label in zip(texts, labels, strict=True)
    ]

    def collate(some: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["ids"]) for row in some], batch_first=True)
        return {
            "input_ids": padded, "attention_mask": (padded != 0).long(),
            "labels": torch.tensor([row["label"] for row in some]),
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place, per_device_train_batch_size=BATCH, max_steps=steps, learning_rate=1e-4,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
            remove_unused_columns=False,
        )  # fmt: skip
        trainer = Trainer(BertForSequenceClassification(config), arguments, collate, rows)
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started


def _update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _timed(steps: Iterator[int], update: Any) -> float:
    """Seconds of all steps but the first two, which warm up."""
    for step in (next(steps), next(steps)):
        update(step)
    started = time.perf_counter()
    for step in steps:
        update(step)
    return time.perf_counter() - started


# ---- side by side -------------------------------------------------------------------------------------------


def child(work: str, system: str, threads: int, vocab: int, steps: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if work == "finetune":
        made = {"headstart": headstart_finetune, "course": course_finetune, "trainer": trainer_finetune}
        seconds = made[system](threads, steps)
    else:
        seconds = {"headstart": headstart_pretrain, "course": course_pretrain}[system](vocab, threads)
    children.report(seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", choices=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocab", type=int, choices=list(PRETRAINING), default=50_001)
    parser.add_argument("--steps", type=int, default=200, help="of fine-tuning; 200 are an epoch")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.work == "finetune" and "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    systems = [*SYSTEMS[options.work]]
    if "trainer" in systems and not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        print("without the Trainer: pip install transformers accelerate", file=sys.stderr)
        systems.remove("trainer")
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for system in systems:
            found = children.run_child(
                __file__, options.work, system, str(options.threads), str(options.vocab), str(options.steps)
            )
            best[system] = min(best.get(system, float("inf")), found["seconds"])
    blocks, length, steps = PRETRAINING[options.vocab]
    for system, seconds in best.items():
        said = f"{seconds:7.1f} s"
        if options.work == "pretrain":
            said = f"{blocks * length * steps / seconds:7,.0f} tokens/s"
        print(f"{system:10} {said}   {best[system] / best['headstart']:.2f} × Headstart's time")
    print(
        json.dumps(
            {"work": options.work, "vocab": options.vocab, "threads": options.threads, "seconds": best}
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        work, system, *numbers = sys.argv[2:]
        child(work, system, *map(int, numbers))
    else:
        main()
