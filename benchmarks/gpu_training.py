"""Training on one GPU: Headstart beside its peers, on the same work in one run.

    python benchmarks/gpu_training.py --row gpt2                     # GPT-2 124M, 32 × 1024 and 64 × 1024
    python benchmarks/gpu_training.py --row small                    # 4 layers, 200 wide, two vocabularies
    python benchmarks/gpu_training.py --row shakespeare              # 6 layers, 384 wide, characters
    HEADSTART_DATA=… python benchmarks/gpu_training.py --row bert    # BERT-base on reviews of uneven length
    python benchmarks/gpu_training.py --row memory                   # the peak of a GPT-2 step
    HEADSTART_DATA=… python benchmarks/gpu_training.py --row gpt2 small bert --at-once 8 --json table.json

Each system lives in a process of its own and is compiled and warmed up before the clock starts (--at-once says how
many side by side: their memory has to fit, and padded documents may need most of it); then they take turns,
round by round, the order turned about each time. The median of the rounds counts, and the spread stands beside it.
Headstart's step is the package's own, with batches made on the host from a token store as in a run; the peers' tokens
are on the GPU before (peers.py), as they were when the peers' own figures were taken (gpu_cases.py). A peer counts
where it comes within 5 % of its figure.

MFU are 6N + 12·L·d·T operations a useful token (in a masked model too, though it needs fewer) against a bf16 product
of 8192³ measured in the same run. Memory is the allocator's peak from the first step on, in GB of 10⁹ bytes; what a
CUDA graph keeps for itself shows in the reserved memory, which is in the JSON.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import numpy as np
import peers
import reviews
import torch
import turns
from gpu_cases import ANCHORS, CASES, GOALS, HEADSTART, Case, tiny
from peers import Shape, Work

MATRIX_SIDE = 8192
DOCUMENT_BATCHES = 16  # of a peer, each 256 documents
TURN_SECONDS, PREPARE_SECONDS = 1.5, 400.0
NEAR = 0.95


# ---- Headstart's side -----------------------------------------------------------------------------------------


def headstart_update(training: Any) -> Callable[[int], None]:
    """The package's own step: update(step) makes the step's batch and changes the weights."""
    from headstart.training.calibration.rehearsal import one_update
    from headstart.training.compiling import should_compile

    training.machine.prepare()
    training.is_compiled = should_compile(
        training.objective, training.model.config, training.loop.steps, training.machine
    )
    return one_update(training)


def headstart_work(shape: Shape, device: torch.device, documents: reviews.Reviews | None) -> Work:
    """Causal over a stream of random tokens, or masked over packed documents; the batch made in every step."""
    from headstart.config.training import LoopConfig, OptimizerConfig
    from headstart.machine import choose
    from headstart.model.model import build
    from headstart.training.loop import Training

    objective, blocks = causal_work(shape) if documents is None else masked_work(shape, documents)
    training = Training(
        directory=Path(),  # nothing is written
        model=build(headstart_config(shape, documents), objective.head),
        objective=objective, valid=None,
        optimizer=OptimizerConfig(learning_rate=6e-4, weight_decay=0.1, betas=(0.9, 0.95)),
        loop=LoopConfig(steps=1_000_000, warmup=0.0),
        machine=choose(device.type, threads=torch.get_num_threads(), fast=True),  # type: ignore[arg-type]
    )  # fmt: skip
    return Work(headstart_update(training), lambda step: blocks * shape.length, warmup=15)


def headstart_config(shape: Shape, documents: reviews.Reviews | None = None) -> Any:
    """The peers' shape: nanoGPT's GPT-2 without biases, or BERT."""
    from headstart.config.presets import preset

    same: dict[str, Any] = {
        "depth": shape.depth, "width": shape.width, "heads": shape.heads, "ffn": shape.ffn, "vocab": shape.vocab,
        "context": shape.length, "dropout": shape.dropout, "attention_dropout": shape.dropout,
    }  # fmt: skip
    if documents is not None:
        return preset("bert-base", **same)
    return preset("gpt2", **same, bias=False, activation="gelu")


def causal_work(shape: Shape) -> tuple[Any, int]:
    """One long document: every token looks at all before it in its block, as the peers' do."""
    from headstart.data.packing import PackedBlocks
    from headstart.data.token_store import Header, TokenStore
    from headstart.objectives.pretraining import Causal
    from headstart.randomness import stream
    from headstart.tokenizers.templates import Template

    count = max(1 << 22, 4 * shape.tokens)
    tokens = stream(0, "Headstart's tokens").integers(2, shape.vocab, count).astype(np.uint16)
    ends = np.array([0, count])
    store = TokenStore(tokens, ends, ends, Header("uint16", count, 1, 1), None)
    return Causal(PackedBlocks(store, shape.length, Template(0, 1), shift=True), shape.rows), shape.rows


def masked_work(shape: Shape, documents: reviews.Reviews) -> tuple[Any, int]:
    """The same documents end to end in blocks: as many tokens a step as 256 of them have on average."""
    from headstart.config.training import Masking
    from headstart.data.packing import PackedBlocks
    from headstart.data.token_store import Header, TokenStore
    from headstart.objectives.pretraining import Corruptor, Masked
    from headstart.tokenizers.templates import template_of

    starts = np.cumsum([0, *map(len, documents.ids)])  # each document is one segment
    header = Header("uint32", int(starts[-1]), len(starts) - 1, len(starts) - 1)
    store = TokenStore(np.concatenate(documents.ids), starts, starts, header, None)
    packed = PackedBlocks(store, shape.length, template_of(documents.tokenizer, "masked"), shift=True)
    blocks = max(1, round(shape.rows * float(documents.lengths.mean()) / shape.length))
    return Masked(packed, blocks, Corruptor(documents.tokenizer, Masking())), blocks


# ---- a child: one system --------------------------------------------------------------------------------------


class System:
    """A system in its process: built and warmed up once, then measured whenever it is its turn."""

    def __init__(self, case: Case, name: str, device: torch.device, is_tiny: bool, material: Path) -> None:
        self.case, self.name, self.device = case, name, device
        self.documents = reviews.read(material) if case.of_documents else None
        self.shape = tiny(case.shape, case.of_documents) if is_tiny else case.shape
        if self.documents is not None:
            self.shape = dataclasses.replace(self.shape, vocab=self.documents.tokenizer.size)
        self.step = 0

    def build(self) -> Work:
        if self.name == HEADSTART:
            return headstart_work(self.shape, self.device, self.documents)
        kind, _, how = self.name.partition(" ")
        given: dict[str, Any] = {}
        if self.documents is not None:
            words = self.documents.tokenizer
            given["batches"] = peers.padded_batches(
                self.documents.framed, self.shape.rows, self.documents.longest, words.id_of("pad"),
                words.id_of("mask"), words.size, DOCUMENT_BATCHES,
            )  # fmt: skip
        return peers.PEERS[kind](self.shape, self.device, how == "compiled", **given)

    def prepare(self) -> dict[str, Any]:
        """Build, compile, warm up; how much memory that took, and how long a step takes."""
        self.work = self.build()
        self._run(self.work.warmup)
        peak = memory_gb(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.step_seconds = turns.seconds_of(lambda: self._run(5), self._wait) / 5
        steady = memory_gb(self.device)
        self._free()
        attended = self.documents.attended if self.documents is not None else None
        return {
            "operations": self.shape.operations(attended), "memory_gb": peak["allocated"],
            "reserved_gb": peak["reserved"], "steady_gb": steady["allocated"],
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
        }  # fmt: skip

    def measure(self, seconds: float) -> dict[str, Any]:
        """About so many seconds of steps, after two that find their memory again."""
        self._run(2)
        count = min(2000, max(2, round(seconds / self.step_seconds)))
        tokens = sum(self.work.tokens(self.step + number) for number in range(count))
        taken = turns.seconds_of(lambda: self._run(count), self._wait)
        self.step_seconds = taken / count
        self._free()
        return {"tokens_a_second": tokens / taken, "steps": count, "notes": self.work.notes}

    def _run(self, count: int) -> None:
        for _ in range(count):
            self.work.update(self.step)
            self.step += 1

    def _free(self) -> None:
        """Leave the others the memory that is not in use between turns."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def memory_gb(device: torch.device) -> dict[str, float]:
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return {"allocated": allocated / 1e9, "reserved": reserved / 1e9}
    return dict.fromkeys(("allocated", "reserved"), children.peak_mb() / 1e3)


def matrix_rate(device: torch.device, side: int) -> float:
    """Operations a second of a bf16 product of random square matrices: ten at a time, the median of seven times."""
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))

    def ten() -> None:
        for _ in range(10):
            torch.mm(a, b)

    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    taken = [turns.seconds_of(ten, wait) for _ in range(9)][2:]
    return 10 * 2 * side**3 / statistics.median(taken)


def child(row: str, number: str, name: str, device: str, is_tiny: str, material: str) -> None:
    where = torch.device(device)
    if is_tiny == "True":
        torch.set_num_threads(1)
    if row == "matrix":
        side = 64 if is_tiny == "True" else MATRIX_SIDE
        turns.answer_questions({"rate": lambda: {"rate": matrix_rate(where, side)}})
        return
    system = System(CASES[row][int(number)], name, where, is_tiny == "True", Path(material))
    turns.answer_questions({"prepare": system.prepare, "measure": system.measure})


# ---- the parent: taking turns, and the table --------------------------------------------------------------------


@dataclass
class Seat:
    """A system at the table: who, where, and what was found."""

    row: str
    number: int
    name: str
    child: turns.Child
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    rates: list[float] = dataclasses.field(default_factory=list)
    failure: str = ""

    @property
    def case(self) -> Case:
        return CASES[self.row][self.number]

    def ask(self, question: str, limit_seconds: float, **given: Any) -> dict[str, Any]:
        """The answer, or nothing from one that failed: the others go on."""
        if self.failure:
            return {}
        try:
            return self.child.ask(question, limit_seconds, **given)
        except turns.Failed as error:
            self.failure = str(error)
            self.child.close()
            return {}


def measure_rows(rows: list[str], options: argparse.Namespace, material: Path) -> list[dict[str, Any]]:
    """All systems of these rows: prepared side by side, then measured in turns; what was found of each."""
    cases = [(row, number) for row in rows for number in range(len(CASES[row]))]
    seats = [seat for row, number in cases for seat in _seats(row, number, options, material)]
    try:
        with ThreadPoolExecutor(options.at_once) as pool:
            prepared = pool.map(lambda seat: seat.ask("prepare", PREPARE_SECONDS), seats)
            for seat, facts in zip(seats, prepared, strict=True):
                seat.facts |= facts
        for number in range(options.rounds):
            for seat in seats[:: -1 if number % 2 else 1]:
                found = seat.ask("measure", 60 + 20 * options.seconds, seconds=options.seconds)
                if found:
                    seat.rates.append(found["tokens_a_second"])
                    seat.facts |= {"steps": found["steps"], "notes": found["notes"]}
    finally:
        for seat in seats:
            seat.child.close()
    return [_found(seat) for seat in seats]


def _seats(row: str, number: int, options: argparse.Namespace, material: Path) -> list[Seat]:
    case, seats = CASES[row][number], []
    if options.cases and not any(part in case.name for part in options.cases):
        return []
    for name in case.systems:
        if not peers.is_installed(name):
            print(f"{case.name}: without {name.split()[0]}, which is not installed")
            continue
        if options.systems and not {name, name.split()[0]} & set(options.systems):
            continue
        log = material / f"{row}-{number}-{name.replace(' ', '-')}.log"
        seats.append(Seat(row, number, name, _child(log, row, number, name, options, material)))
    return seats


def _child(log: Path, row: str, number: int, name: str, options: argparse.Namespace, material: Path) -> turns.Child:
    return turns.Child(__file__, row, str(number), name, options.device, str(options.tiny), material, log=log)


def _found(seat: Seat) -> dict[str, Any]:
    middle = statistics.median(seat.rates) if seat.rates else None
    return {
        "row": seat.row, "case": seat.case.name, "system": seat.name, "tokens_a_second": middle,
        "spread": (max(seat.rates) - min(seat.rates)) / middle if middle else None, "rates": seat.rates,
        "anchor": ANCHORS.get((seat.case.name, seat.name)), "goal": GOALS.get((seat.case.name, seat.name)),
        "failure": seat.failure, **seat.facts,
    }  # fmt: skip


def table(found: list[dict[str, Any]], rate: float, is_comparable: bool) -> list[str]:
    """Lines for each case: what each system reached, and how Headstart stands to it."""
    lines: list[str] = []
    for case in dict.fromkeys(one["case"] for one in found):
        here = [one for one in found if one["case"] == case]
        own = next((one for one in here if one["system"] == HEADSTART and one["rates"]), None)
        title = f"{'tokens/s':>11} {'spread':>6} {'MFU':>6} {'peak GB':>8}  Headstart is"
        lines += ["", case, f"  {'':24} {title}"]
        for one in here:
            if one["tokens_a_second"] is None:
                lines.append(f"  {one['system']:24} failed: {one['failure']}")
                continue
            one["mfu"] = one["tokens_a_second"] * one["operations"] / rate
            one["ratio"] = own["tokens_a_second"] / one["tokens_a_second"] if own else None
            one["memory_ratio"] = own["memory_gb"] / one["memory_gb"] if own else None
            lines.append(f"  {one['system']:24} {_figures(one)}  {_standing(one, is_comparable)}".rstrip())
    return lines


def _figures(one: dict[str, Any]) -> str:
    return f"{one['tokens_a_second']:11,.0f} {one['spread']:6.1%} {one['mfu']:6.3f} {one['memory_gb']:8.2f}"


def _standing(one: dict[str, Any], is_comparable: bool) -> str:
    """The ratio, what is asked for, and whether the peer is as fast as it has been measured elsewhere."""
    said = []
    if one["ratio"] is not None and one["system"] != HEADSTART:
        asked = f" (asked: {one['goal']:.2f} ×)" if one["goal"] else ""
        said.append(f"{one['ratio']:5.2f} × as fast{asked} in {one['memory_ratio']:.2f} of its memory")
    if one["anchor"]:
        share = one["tokens_a_second"] / one["anchor"]
        verdict = ("PASS" if share >= NEAR else "too slow") if is_comparable else "another machine"
        said.append(f"anchor {one['anchor']:,.0f}, {share:.2f} of it: {verdict}")
    return "; ".join([*said, *one.get("notes", [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=[*CASES, "all"], nargs="+", default=["all"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=TURN_SECONDS, help="of a turn")
    parser.add_argument("--systems", nargs="*", help='some alone, by name or first word: headstart "plain compiled" …')
    parser.add_argument("--cases", nargs="*", help='some alone, by a part of their name: "32 × 1024" …')
    parser.add_argument("--at-once", type=int, default=2, help="systems that are compiled side by side")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: whether all of it works")
    parser.add_argument("--json", type=Path, help="a file for everything that was found")
    parser.add_argument("--logs", type=Path, help="a directory for what the systems printed")
    options = parser.parse_args()
    rows = list(CASES) if "all" in options.row else list(dict.fromkeys(options.row))
    with tempfile.TemporaryDirectory() as place:
        material = options.logs or Path(place)
        material.mkdir(parents=True, exist_ok=True)
        found, rate = measure(rows, options, material)
    report(found, rate, options)


def measure(rows: list[str], options: argparse.Namespace, material: Path) -> tuple[list[dict[str, Any]], float]:
    """The matrix rate, then the rows; one that cannot be had is left out with a word."""
    probe = _child(material / "matrix.log", "matrix", 0, "", options, material)
    try:
        rate = probe.ask("rate", PREPARE_SECONDS)["rate"]
    finally:
        probe.close()
    possible = []
    for row in rows:
        if any(case.of_documents for case in CASES[row]):
            if not options.tiny and "HEADSTART_DATA" not in os.environ:
                print(f"row {row} skipped: HEADSTART_DATA is not set")
                continue
            reviews.prepare(material, options.tiny)
        possible.append(row)
    return measure_rows(possible, options, material), rate


def report(found: list[dict[str, Any]], rate: float, options: argparse.Namespace) -> None:
    """Print the table; write the JSON."""
    facts = next((one for one in found if "device" in one), {"device": "none", "torch": ""})
    print(f"{facts['device']}, torch {facts['torch']}: bf16 product {rate / 1e12:,.1f} TFLOP/s")
    is_comparable = "H200" in facts["device"] and not options.tiny
    print("\n".join(table(found, rate, is_comparable)))
    if options.json is not None:
        whole = {"matrix_rate": rate, "rounds": options.rounds, "tiny": options.tiny, "found": found}
        options.json.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
