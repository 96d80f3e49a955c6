"""What 8, 64 and 512 GPUs would do, on paper: the tables of docs/scale.md.

Parameters and operations are the plan's own; memory, communication and time are the formulas below. Nothing is run.

    python benchmarks/scale_paper.py
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.presets import preset
from headstart.planning.operations import per_text
from headstart.planning.parameters import count, symbols, tensors, total
from headstart.planning.workload import Lengths

HEAD = HeadConfig(kind="lm")
LENGTH = 2048
WORLDS = (8, 64, 512)
MORE_WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
TOKENS_A_PARAMETER = 20
BUCKET_BYTES = 25e6  # DDP sends gradients off in buckets of this size


# ---- what is assumed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """An H100 in a node of eight, from its data sheet; below, what is assumed to be reached of it."""

    peak: float = 989e12  # operations a second in bf16, dense
    memory: float = 80e9
    memory_rate: float = 3.35e12  # bytes a second
    in_node: int = 8
    nvlink: float = 450e9  # bytes a second, each way, a GPU
    network: float = 50e9  # bytes a second, each way, a GPU: 400 Gb/s

    reached_of_peak: float = 0.40  # of the device's own work, with nothing to wait for
    reached_of_link: float = 0.80
    hop_in_node: float = 2e-6  # seconds until a message begins to arrive
    hop_between: float = 8e-6
    held_back: float = 4e9  # bytes: CUDA, NCCL's buffers, what the allocator cannot use


@dataclass(frozen=True)
class Base:
    """A model and the tokens of a step, which stay the same for any number of devices."""

    name: str
    config: ModelConfig
    batch_tokens: int

    @property
    def parameters(self) -> int:
        return total(self.config, HEAD)

    @property
    def block(self) -> int:
        """Parameters of one block, which FSDP2 gathers together."""
        values = symbols(self.config, HEAD)
        return sum(count(t, values) for t in tensors(self.config, HEAD) if ".blocks.0." in t.name)

    @property
    def operations(self) -> float:
        """Of a token, forward and backward."""
        totals = per_text(self.config, HEAD, Lengths(LENGTH))
        return (totals.forward + totals.backward) / LENGTH


MACHINE = Machine()
BASES = (
    Base("1B", preset("modern-base", vocab=32_768, width=2048, depth=18, heads=16, ffn=5632, context=LENGTH), 2**20),
    Base("7B", preset("modern-base", vocab=32_768, width=4096, depth=32, heads=32, ffn=11_008, context=LENGTH), 2**22),
)  # fmt: skip


# ---- memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    weights: float
    gradients: float
    optimizer: float
    working: float

    @property
    def state(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.working


def memory(base: Base, strategy: str, world: int) -> Memory:
    """Weights and gradients in fp32, two moments in fp32; DDP holds bf16 copies of all, FSDP2 of two blocks."""
    size, parts = base.parameters, {"DDP": 1, "FSDP2": world, "hybrid": min(world, MACHINE.in_node)}[strategy]
    if strategy == "DDP":
        working = 2.0 * size
    else:  # the block that computes and the one that is fetched, in bf16; the gradients of one, in fp32
        output = base.config.vocab * base.config.width
        working = 2.0 * (2 * base.block + output) + 4.0 * max(base.block, output)
    return Memory(4 * size / parts, 4 * size / parts, 8 * size / parts, working)


def activations(base: Base, texts: int, checkpointing: bool) -> float:
    """Bytes kept for the backward pass: 24 d + 8 f a token and block, or its input alone and one block in full.

    For each block, in bytes a token: its two inputs in fp32 (8 d), the normed inputs in bf16 (4 d), queries, keys and
    values (6 d), queries and keys turned (4 d), what attention gives (2 d), gate, up, their activation and product
    (8 f). The scores are never held. The logits are, a chunk at a time: 6 bytes each.
    """
    d, f, tokens = base.config.width, base.config.ffn, texts * LENGTH
    block = tokens * (24 * d + 8 * f)
    blocks = base.config.depth * 4 * d * tokens + block if checkpointing else base.config.depth * block
    logits = 6.0 * min(2**28, tokens * base.config.vocab)
    return blocks + logits + 6 * d * tokens


# ---- communication ------------------------------------------------------------------------------------------


def link(between: bool) -> float:
    """Bytes a second through a device's part of a ring; between nodes all eight adapters of a node share it."""
    best = min(MACHINE.nvlink, MACHINE.in_node * MACHINE.network) if between else MACHINE.nvlink
    return best * MACHINE.reached_of_link


def gathering(size: float, ranks: int, between: bool) -> float:
    """Seconds of one all-gather or reduce-scatter of `size` bytes: a ring, through which every part goes once round."""
    crossings = ranks // MACHINE.in_node if between else 0
    hops = crossings * MACHINE.hop_between + (ranks - 1 - crossings) * MACHINE.hop_in_node
    return hops + (ranks - 1) / ranks * size / link(between)


def reducing(size: float, ranks: int, between: bool, rings: int = 1) -> float:
    """Seconds of one all-reduce of `size` bytes by each of `rings` at once: up a tree and down, twice the bytes."""
    hop = MACHINE.hop_between if between else MACHINE.hop_in_node
    return 2 * math.ceil(math.log2(ranks)) * hop + 2 * (ranks - 1) / ranks * size * rings / link(between)


@dataclass(frozen=True)
class Traffic:
    """What one device sends in a step, and the seconds that it takes by phase."""

    sent: float
    forward: float  # in each micro-batch
    backward: float  # in each micro-batch
    once: float  # in the last micro-batch, beside its backward pass


def traffic(base: Base, strategy: str, world: int, micro_batches: int) -> Traffic:
    """DDP: gradients in fp32, once. FSDP2: weights in bf16 twice and gradients in fp32, in every micro-batch."""
    size, between = base.parameters, world > MACHINE.in_node
    if strategy == "DDP":
        buckets = max(1, round(4 * size / BUCKET_BYTES))
        once = buckets * reducing(4 * size / buckets, world, between)
        return Traffic(8 * (world - 1) / world * size, 0.0, 0.0, once)
    ranks = world if strategy == "FSDP2" else min(world, MACHINE.in_node)
    over_nodes = between and strategy == "FSDP2"
    groups = base.config.depth + 1
    gather = groups * gathering(2 * size / groups, ranks, over_nodes)
    scatter = groups * gathering(4 * size / groups, ranks, over_nodes)
    sent, once = micro_batches * 8 * size * (ranks - 1) / ranks, 0.0
    nodes = world // ranks
    if nodes > 1:  # each device reduces its own shard with its fellows in the other nodes, all eight at once
        once = groups * reducing(4 * size / ranks / groups, nodes, True, rings=ranks)
        sent += 8 * size / ranks * (nodes - 1) / nodes
    return Traffic(sent, gather, gather + scatter, once)


# ---- a step -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One update, on paper."""

    base: Base
    strategy: str
    world: int
    texts: int
    micro_batches: int
    checkpointing: bool
    sent: float
    talking: float
    computing: float
    seconds: float

    @property
    def tokens_a_second(self) -> float:
        return self.base.batch_tokens / self.seconds

    @property
    def utilisation(self) -> float:
        return self.base.operations * self.tokens_a_second / (self.world * MACHINE.peak)

    @property
    def days(self) -> float:
        return TOKENS_A_PARAMETER * self.base.parameters / self.tokens_a_second / 86_400


def fits(base: Base, strategy: str, world: int, texts: int, checkpointing: bool) -> bool:
    needed = memory(base, strategy, world).state + activations(base, texts, checkpointing)
    return needed <= MACHINE.memory - MACHINE.held_back


def step(base: Base, strategy: str, world: int) -> Step | None:
    """The quickest way to take a step that fits: micro-batches of 1, 2, 4 … texts, with checkpointing or without."""
    texts_a_device = base.batch_tokens // LENGTH // world
    choices = [
        _step(base, strategy, world, 2**power, texts_a_device // 2**power, checkpointing)
        for power in range(texts_a_device.bit_length())
        for checkpointing in (False, True)
        if fits(base, strategy, world, 2**power, checkpointing)
    ]
    return min(choices, key=lambda choice: choice.seconds, default=None)


def _step(base: Base, strategy: str, world: int, texts: int, micro_batches: int, checkpointing: bool) -> Step:
    """What is sent while something is computed costs nothing, as long as it takes no longer than that."""
    rate = MACHINE.reached_of_peak * MACHINE.peak
    forward = base.operations / 3 * texts * LENGTH / rate
    backward = forward * (3 if checkpointing else 2)
    found = traffic(base, strategy, world, micro_batches)
    edge = (found.forward + found.backward) / (2 * (base.config.depth + 1))  # the first fetch, the last reduction
    passes = max(forward, found.forward) + max(backward, found.backward) + edge
    rest = max(0.0, found.once - max(0.0, backward - found.backward)) + found.once / (2 * base.config.depth)
    parts = {"DDP": 1, "FSDP2": world, "hybrid": min(world, MACHINE.in_node)}[strategy]
    update = 28 * base.parameters / parts / MACHINE.memory_rate  # read four numbers, write three
    computing = micro_batches * (forward + backward) + update
    return Step(
        base, strategy, world, texts, micro_batches, checkpointing, found.sent,
        micro_batches * (found.forward + found.backward) + found.once, computing,
        micro_batches * passes + rest + update,
    )  # fmt: skip


# ---- tables -------------------------------------------------------------------------------------------------


def _table(header: str, rows: Iterator[list[str]]) -> str:
    columns = header.split(" | ")
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _gb(number: float) -> str:
    return f"{number / 1e9:.1f}"


def _ways() -> Iterator[tuple[str, int]]:
    for strategy in ("DDP", "FSDP2", "hybrid"):
        for world in WORLDS:
            if strategy != "hybrid" or world > MACHINE.in_node:
                yield strategy, world


def shapes() -> str:
    """What the two bases are."""

    def rows() -> Iterator[list[str]]:
        for base in BASES:
            c = base.config
            yield [
                base.name, str(c.width), str(c.depth), str(c.heads), str(c.ffn), f"{base.parameters / 1e9:.2f}",
                f"{base.block / 1e6:.0f}", f"{base.operations / 1e9:.2f}", f"{base.batch_tokens / 1e6:.2f}",
                f"{TOKENS_A_PARAMETER * base.parameters / 1e9:.0f}",
                f"{TOKENS_A_PARAMETER * base.parameters * base.operations:.1e}".replace("+", ""),
                f"{12 * base.parameters / 1e9:.0f}",
            ]  # fmt: skip

    return _table(
        "base | width | depth | heads | feed-forward | parameters, 10⁹ | in a block, 10⁶ | operations a token, 10⁹ "
        "| tokens a step, 10⁶ | tokens to read, 10⁹ | operations in all | GB of a checkpoint",
        rows(),
    )


def memories() -> str:
    """Bytes a device."""

    def rows() -> Iterator[list[str]]:
        for base in BASES:
            for strategy, world in _ways():
                parts = memory(base, strategy, world)
                room = MACHINE.memory - MACHINE.held_back - parts.state
                plain, saved = activations(base, 1, False), activations(base, 1, True)
                most = [
                    max((n for n in range(1, 513) if activations(base, n, c) <= room), default=0) for c in (False, True)
                ]
                yield [
                    f"{base.name}, {strategy}, {world}", _gb(parts.weights), _gb(parts.gradients), _gb(parts.optimizer),
                    _gb(parts.working), _gb(parts.state), _gb(plain), _gb(saved),
                    *(str(number) if number else "does not fit" for number in most),
                ]  # fmt: skip

    return _table(
        "GB a device | weights | gradients | moments | copies | together | activations of a text | checkpointed "
        "| texts that fit | checkpointed ",
        rows(),
    ).replace("checkpointed  |", "checkpointed |")


def steps() -> str:
    """A step, and the whole training."""

    def rows() -> Iterator[list[str]]:
        for base in BASES:
            for strategy, world in _ways():
                found, name = step(base, strategy, world), f"{base.name}, {strategy}, {world}"
                if found is None:
                    yield [name, "does not fit", *["–"] * 9]
                    continue
                yield [
                    name, f"{found.micro_batches} × {found.texts}{' c' if found.checkpointing else ''}",
                    _gb(found.sent), f"{found.talking:.3f}", f"{found.computing:.3f}", f"{found.seconds:.3f}",
                    f"{1 - found.computing / found.seconds:.0%}", f"{found.utilisation:.0%}",
                    f"{found.utilisation * found.seconds / (found.computing + found.talking):.0%}",
                    f"{round(found.tokens_a_second, -3):,.0f}", f"{found.days:.2g}",
                ]  # fmt: skip

    return _table(
        "base, how, GPUs | micro-batches × texts | GB sent by a device | s of sending | s of computing | s a step "
        "| waiting | utilisation | without overlap | tokens/s | days",
        rows(),
    )


def limits() -> str:
    """Utilisation over the number of devices, at the same tokens a step."""

    def rows() -> Iterator[list[str]]:
        for base in BASES:
            for strategy in ("DDP", "FSDP2", "hybrid"):
                found = [step(base, strategy, world) for world in MORE_WORLDS]
                if any(found):
                    yield [f"{base.name}, {strategy}", *(f"{s.utilisation:.0%}" if s else "–" for s in found)]

    return _table(" | ".join(["utilisation on", *map(str, MORE_WORLDS)]), rows())


def tables() -> dict[str, str]:
    """All of them, by name."""
    return {"shapes": shapes(), "memory": memories(), "steps": steps(), "limits": limits()}


if __name__ == "__main__":
    print("\n\n".join(tables().values()))
