"""What is to be computed, as memory and time see it: plain data, without torch."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from headstart.config.defaults import MASK_PROB
from headstart.config.model import HeadConfig, HeadKind, ModelConfig, check_head
from headstart.config.training import OptimizerName
from headstart.kernels.constants import KERNEL_MULTIPLE

DeviceKind = Literal["cpu", "cuda"]
ComputePrecision = Literal["fp32", "bf16"]
Freeze = Literal["base"]
BYTES_A_TOKEN = 4.0  # of text in a tokenizer of some thousand tokens, where none has counted it

# How texts stand in a batch: documents side by side in a block, padded to the longest, or one document throughout.
TextLayout = Literal["packed", "padded", "whole"]


def reading_of(kind: HeadKind) -> TextLayout:
    """How the objective of this head reads: pretraining packs, all others pad."""
    return "packed" if kind in ("lm", "masked") else "padded"


@dataclass(frozen=True)
class Lengths:
    """Tokens of a text; `target` matters in an encoder-decoder alone."""

    source: int
    target: int = 0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is computed between two updates of the weights, and with what numbers."""

    config: ModelConfig
    head: HeadConfig
    batch: int  # texts in a step, all micro-batches together
    lengths: Lengths
    masked_share: float = MASK_PROB  # of the tokens, where some are hidden
    device: DeviceKind = "cpu"
    precision: ComputePrecision = "fp32"
    reading: TextLayout = "packed"
    document: int = 0  # tokens of a document in a packed block (0: as long as the block)
    optimizer: OptimizerName = "adamw"
    accumulate: int = 1
    average: bool = False  # whether an average of the weights is kept beside them
    freeze: Freeze | None = None
    seen_shapes: int = 0  # different lengths of text, in translation shapes of batches, where they were counted
    counts_vectors: bool = False  # whether the first vectors of tokens are counted in the corpus

    def __post_init__(self) -> None:
        check_head(self.config, self.head)

    @property
    def micro_batch(self) -> int:
        """Texts that are in memory at once."""
        return math.ceil(self.batch / max(1, self.accumulate))

    @property
    def shapes(self) -> int:
        """How many different lengths texts have, or batches of a translation: as counted, or up to twice the mean."""
        n = self.lengths.source
        if self.seen_shapes or self.reading == "whole":
            return self.seen_shapes or 1
        if self.reading == "packed":
            return min(n, 2 * self.document) if self.document else 1
        return min(2 * n, self.config.context)

    @property
    def has_scikit_learn(self) -> bool:
        """Whether the process imports scikit-learn, for metrics or for vectors of tokens."""
        return self.counts_vectors or self.head.kind in ("classification", "multilabel", "regression")

    @property
    def has_muon(self) -> bool:
        """Whether Muon updates the blocks' matrices, or would if they were not frozen."""
        return self.optimizer != "adamw"

    @property
    def orthogonal_matrices(self) -> list[Counter[tuple[int, int]]]:
        """How many matrices of which rows and columns Muon has, by group: split parts have their own."""
        config, is_split = self.config, self.optimizer == "muon-split"
        d, k, f = config.width, config.kv_width, config.ffn
        inner = [f, f] if config.activation == "swiglu" else [f]
        attentions, blocks = config.depth + 2 * config.decoder_depth, config.depth + config.decoder_depth
        whole = Counter({(d, d): attentions}) + Counter({(d, f): blocks})  # what each of the two ends with
        groups = [whole]
        for stacked, count in (([d, k, k], attentions), (inner, blocks)):
            if is_split and len(stacked) > 1:
                groups.append(Counter())
                for rows in stacked:
                    groups[-1][rows, d] += count
            else:
                whole[sum(stacked), d] += count
        return groups

    @property
    def number_bytes(self) -> int:
        """Bytes of a number in a product; sums, norms and weights have four."""
        return 2 if self.precision == "bf16" else 4

    @property
    def keeps_attention(self) -> bool:
        """Whether the weights of attention are kept: on a CPU no fused kernel has dropout."""
        return self.device == "cpu" and self.config.attention_dropout > 0

    @property
    def is_aligned(self) -> bool:
        """Whether a GPU's fused kernels take heads of this width as they are: 16 bytes at a time."""
        return self.head_width * self.number_bytes % 16 == 0

    @property
    def head_width(self) -> int:
        """Numbers of a head."""
        return self.config.width // self.config.heads

    @property
    def is_widened(self) -> bool:
        """Whether a GPU computes a text's attention over itself in wider heads (kernels/wider_heads.py)."""
        is_odd = self.head_width % KERNEL_MULTIPLE != 0
        return self.device == "cuda" and is_odd and self.config.positions != "rotary"

    def widened(self, width: int) -> int:
        """The numbers that heads of so many in all have there."""
        if not self.is_widened:
            return width
        return width // self.head_width * math.ceil(self.head_width / KERNEL_MULTIPLE) * KERNEL_MULTIPLE

    @property
    def is_refused(self) -> bool:
        """Whether no fused kernel of a GPU takes such heads as they are: with a mask, or in fp32."""
        has_mask = self.reading != "whole"
        return self.device == "cuda" and not self.is_aligned and (has_mask or self.precision == "fp32")

    @property
    def is_unfused(self) -> bool:
        """Whether a GPU computes a text's attention over itself without a fused kernel."""
        return self.is_refused and not self.is_widened

    @property
    def reads_by_offsets(self) -> bool:
        """Whether a GPU reads documents as one row, without a mask (`with_cu_seqlens`): in recorded steps."""
        is_plain = self.precision == "bf16" and not self.config.attention_dropout and self.accumulate == 1
        return self.device == "cuda" and self.reading == "packed" and is_plain

    @property
    def predicted(self) -> int:
        """Tokens of a micro-batch that the head predicts (texts, where it predicts one thing of each)."""
        n = self.micro_batch
        if self.head.kind in ("masked", "masked-nsp"):
            return n * max(1, round(self.masked_share * self.lengths.source))
        if self.head.kind in ("lm", "translation"):
            return n * (self.lengths.target or self.lengths.source)
        return n
