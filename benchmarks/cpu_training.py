"""Training the course's model on a CPU: Headstart beside the course's own loop and Hugging Face's Trainer.

    HEADSTART_DATA=… python benchmarks/cpu_training.py                  # the whole table
    python benchmarks/cpu_training.py --work "pretrain 8000" --rounds 3

The same shape (4 layers, 200 wide, 2 heads), the same texts as ids, the same batch size and the same number of
updates. Each system works in a process of its own, taking turns; the best of the rounds counts. What is timed are the
steps: reading and tokenising is done before. Headstart is timed with products in fp32 and in bf16; `--precision auto`,
which a user gets, takes bf16 where the CPU has instructions for it. The Trainer needs transformers and accelerate, and
is left out without them. Prints seconds or tokens a second, ratios, whether a peer reaches the figure that is known
of it, the accuracy on cls-books valid after the epoch (the mean over rounds, each with a seed of its own), and a JSON
line.
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
EPOCH_STEPS = 200
RATE = 5e-4
PRETRAINING = {50_001: (16, 64, 12), 8_000: (16, 256, 12)}  # vocabulary: blocks, tokens in each, steps
OURS = ("fp32", "bf16")
PEERS = {
    "finetune": ("course", "trainer"),
    "pretrain 50001": ("course",),
    "pretrain 8000": ("course",),
}
# What is known of the peers on two cores: the most seconds of an epoch, the fewest tokens a second. Within 30 % of
# it, or better, a peer counts.
KNOWN = {
    ("finetune", "course"): 114.0,
    ("finetune", "trainer"): 95.0,
    ("pretrain 50001", "course"): 705.0,
    ("pretrain 8000", "course"): 2800.0,
}
TOLERANCE = 1.3


def reviews(split: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The texts of cls-books in the course's own vocabulary, and their labels."""
    from headstart.tokenizers.tokenizer import Tokenizer

    folder = Path(os.environ["HEADSTART_DATA"]) / "cls-books"
    words = Tokenizer.load(folder / "original" / "sentencepiece.french.model")
    with gzip.open(folder / f"{split}.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    texts = [ids[: LONGEST - 2] for ids in words.encode_many([row["text"] for row in rows])]
    return texts, np.array([int(row["label"]) for row in rows])


def random_blocks(vocab: int) -> np.ndarray:
    """Blocks of random tokens, with the one that follows each, (steps, blocks, length + 1)."""
    blocks, length, steps = PRETRAINING[vocab]
    return np.random.default_rng(0).integers(4, vocab, (steps + 2, blocks, length + 1))


# ---- Headstart ----------------------------------------------------------------------------------------------


def headstart_finetune(precision: Any, threads: int, steps: int, seed: int) -> dict[str, float]:
    from headstart.config.model import HeadConfig
    from headstart.config.presets import preset
    from headstart.config.training import LoopConfig, OptimizerConfig
    from headstart.inference.evaluate import evaluate
    from headstart.machine import Machine
    from headstart.model.model import build
    from headstart.objectives.classification import Classification
    from headstart.tokenizers.templates import Template
    from headstart.training.loop import Training, train

    head = HeadConfig(kind="classification", classes=2)

    def objective(split: str) -> Classification:
        texts, labels = reviews(split)
        return Classification([Template(1, 2).one(ids, LONGEST) for ids in texts], labels, head, BATCH, 0)

    model = build(preset("lab", vocab=50_001), head, seed=seed)
    learned, machine = objective("train"), Machine(torch.device("cpu"), precision, threads)
    machine.prepare()
    ended = 0.0

    def note(progress: object) -> None:
        nonlocal ended
        ended = time.perf_counter()

    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        train(
            Training(
                directory=Path(place), model=model, objective=learned, valid=None,
                optimizer=OptimizerConfig(learning_rate=RATE),
                loop=LoopConfig(steps=steps, save_every_seconds=1e9, seed=seed), machine=machine,
                log=lambda line: None, on_step=note,
            )
        )  # fmt: skip
    accuracy = evaluate(model, objective("valid"), machine).values["accuracy"]
    return {"seconds": ended - started, "accuracy": accuracy}


class _Blocks:
    """The causal objective over blocks that are there already."""

    def __init__(self, vocab: int) -> None:
        from headstart.config.model import HeadConfig

        self.blocks, self.head = random_blocks(vocab), HeadConfig(kind="lm")
        self.fixed_batch_tokens = 0

    def batch_at(self, seed: int, step: int) -> dict[str, np.ndarray]:
        return {"tokens": self.blocks[step, :, :-1], "targets": self.blocks[step, :, 1:]}

    def loss(self, model: Any, batch: dict[str, torch.Tensor]) -> Any:
        from headstart.objectives.pretraining import Causal

        return Causal.loss(self, model, batch)  # type: ignore[arg-type]


def headstart_pretrain(precision: Any, vocab: int, threads: int) -> dict[str, float]:
    from headstart.config.model import HeadConfig
    from headstart.config.presets import preset
    from headstart.config.training import LoopConfig, OptimizerConfig
    from headstart.machine import Machine
    from headstart.model.model import build
    from headstart.training.calibration.rehearsal import one_update
    from headstart.training.loop import Training

    objective: Any = _Blocks(vocab)
    machine = Machine(torch.device("cpu"), precision, threads)
    machine.prepare()
    with tempfile.TemporaryDirectory() as place:
        update = one_update(
            Training(
                directory=Path(place), model=build(preset("lab", vocab=vocab), HeadConfig(kind="lm")),
                objective=objective, valid=None, optimizer=OptimizerConfig(learning_rate=1e-3), loop=LoopConfig(),
                machine=machine,
            )
        )  # fmt: skip
        return _timed(iter(range(len(objective.blocks))), update)


# ---- the peers ----------------------------------------------------------------------------------------------


def course_finetune(steps: int) -> dict[str, float]:
    texts, labels = reviews("train")
    model = CourseModel(50_001, 2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    order = torch.randperm(len(texts)).numpy()

    def outputs(texts: list[np.ndarray]) -> torch.Tensor:
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor([1, *ids.tolist(), 2]) for ids in texts])
        last = torch.tensor([len(ids) + 1 for ids in texts])
        found: torch.Tensor = model(tokens)[last, torch.arange(len(texts))]
        return found

    started = time.perf_counter()
    for step in range(steps):
        rows = order[step * BATCH : (step + 1) * BATCH]
        loss = F.cross_entropy(outputs([texts[row] for row in rows]), torch.from_numpy(labels[rows]))
        _update(model, optimizer, loss)
    seconds = time.perf_counter() - started
    model.eval()
    texts, labels = reviews("valid")
    with torch.no_grad():
        right = [int(outputs([ids]).argmax()) == label for ids, label in zip(texts, labels, strict=True)]
    return {"seconds": seconds, "accuracy": float(np.mean(right))}


def course_pretrain(vocab: int) -> dict[str, float]:
    blocks = torch.from_numpy(random_blocks(vocab))
    model = CourseModel(vocab, vocab).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def update(step: int) -> None:
        tokens = blocks[step].T
        outputs = model(tokens[:-1]).flatten(0, 1)
        _update(model, optimizer, F.cross_entropy(outputs, tokens[1:].flatten()))

    return _timed(iter(range(len(blocks))), update)


def trainer_finetune(steps: int, seed: int) -> dict[str, float]:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    config = BertConfig(
        vocab_size=50_001, hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        intermediate_size=FFN, max_position_embeddings=LONGEST, hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2, num_labels=2,
    )  # fmt: skip

    def rows(split: str) -> list[dict[str, Any]]:
        return [{"ids": [1, *ids.tolist(), 2], "label": int(label)} for ids, label in zip(*reviews(split), strict=True)]

    def collate(some: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["ids"]) for row in some], batch_first=True)
        return {
            "input_ids": padded, "attention_mask": (padded != 0).long(),
            "labels": torch.tensor([row["label"] for row in some]),
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place, per_device_train_batch_size=BATCH, max_steps=steps, learning_rate=RATE,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
            remove_unused_columns=False, seed=seed,
        )  # fmt: skip
        trainer = Trainer(BertForSequenceClassification(config), arguments, collate, rows("train"))
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
        found = trainer.predict(rows("valid"))
        accuracy = float((found.predictions.argmax(-1) == found.label_ids).mean())
        return {"seconds": seconds, "accuracy": accuracy}


def _update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _timed(steps: Iterator[int], update: Any) -> dict[str, float]:
    """Seconds of all steps but the first two, which warm up."""
    for step in (next(steps), next(steps)):
        update(step)
    started = time.perf_counter()
    for step in steps:
        update(step)
    return {"seconds": time.perf_counter() - started}


# ---- side by side -------------------------------------------------------------------------------------------


def child(work: str, system: str, threads: int, steps: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    kind, _, vocab = work.partition(" ")
    if kind == "pretrain" and system in OURS:
        found = headstart_pretrain(system, int(vocab), threads)
    elif kind == "pretrain":
        found = course_pretrain(int(vocab))
    elif system in OURS:
        found = headstart_finetune(system, threads, steps, seed)
    else:
        found = course_finetune(steps) if system == "course" else trainer_finetune(steps, seed)
    children.report(**found)


def measured(work: str, options: argparse.Namespace) -> dict[str, Any]:
    """All systems at a piece of work, taking turns: the best time of each, and its mean accuracy."""
    systems = [*OURS, *PEERS[work]]
    if "trainer" in systems and not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        print("without the Trainer: pip install transformers accelerate", file=sys.stderr)
        systems.remove("trainer")
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    for seed in range(options.rounds):
        for system in systems:
            numbers = (str(options.threads), str(options.steps), str(seed))
            runs[system].append(children.run_child(__file__, work, system, *numbers))
    found: dict[str, Any] = {"work": work, "threads": options.threads, "steps": options.steps}
    for system, its_runs in runs.items():
        seconds = min(run["seconds"] for run in its_runs)
        found[system] = {"seconds": seconds}
        if work != "finetune":
            blocks, length, steps = PRETRAINING[int(work.split()[1])]
            found[system]["tokens_a_second"] = blocks * length * steps / seconds
        else:
            found[system]["accuracies"] = [run["accuracy"] for run in its_runs]
    return found


def show(found: dict[str, Any]) -> None:
    """A line for each system: its figure, how many times longer it takes than each of ours, and whether it counts."""
    work = found["work"]
    print(f"\n{work}, {found['threads']} threads")
    for system in [*OURS, *PEERS[work]]:
        if system not in found:
            continue
        its = found[system]
        figure = its.get("tokens_a_second", its["seconds"])
        said = f"{figure:9,.0f} tokens/s" if work != "finetune" else f"{figure:9.1f} s"
        ratios = "  ".join(f"{its['seconds'] / found[ours]['seconds']:5.2f}× {ours}" for ours in OURS)
        accuracy = f"  accuracy {np.mean(its['accuracies']):.3f}" if "accuracies" in its else ""
        known = KNOWN.get((work, system))
        if known is not None and (work != "finetune" or found["steps"] == EPOCH_STEPS):
            off = known / figure if work != "finetune" else figure / known
            its["counts"] = off <= TOLERANCE
            accuracy += f"  known figure {known:g}: {'counts' if its['counts'] else 'does not count'}"
        name = f"Headstart {system}" if system in OURS else system
        print(f"{name:15} {said}  {ratios}{accuracy}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=list(PEERS), action="append", help="one of them (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=EPOCH_STEPS, help="of fine-tuning; 200 are an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for work in options.work or list(PEERS):
        if work == "finetune" and "HEADSTART_DATA" not in os.environ:
            print("fine-tuning skipped: HEADSTART_DATA is not set", file=sys.stderr)
            continue
        found = measured(work, options)
        show(found)
        print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        work, system, *numbers = sys.argv[2:]
        child(work, system, *map(int, numbers))
    else:
        main()
