"""The base: embedding, positions, blocks. What is transferred."""

import torch
from torch import Tensor, nn

from headstart.model.attention import LayerCache
from headstart.model.blocks import Stack, make_norm
from headstart.model.dropout import Dropout
from headstart.model.masks import Cuts, Mask, build_mask, token_positions
from headstart.model.packed import pack, pays, unpack
from headstart.model.positions import Learned, Sinusoidal
from headstart.model.presets import ModelConfig, Pooling
from headstart.model.token_table import TokenTable

Record = dict[str, list[Tensor]]


class Cache:
    """What a stack has read so far: keys and values of every layer, and which of the tokens were real."""

    def __init__(self, depth: int) -> None:
        self.layers = [(LayerCache(), LayerCache()) for _ in range(depth)]
        self.present: Tensor | None = None  # (batch, length); None while no padding has been seen
        self.length = 0

    def extend(self, tokens: Tensor, present: Tensor | None) -> Tensor | None:
        """Take note of new tokens, and return which of all are real (None: all)."""
        batch, new = tokens.shape
        if self.present is not None or present is not None:
            ones = tokens.new_ones(batch, 1, dtype=torch.bool)
            before = ones.expand(-1, self.length) if self.present is None else self.present
            self.present = torch.cat([before, ones.expand(-1, new) if present is None else present], dim=1)
        self.length += new
        return self.present

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.present = None if self.present is None else self.present[rows]
        for own, cross in self.layers:
            own.select(rows)
            cross.select(rows)


class Embedding(nn.Module):
    """Tokens to vectors: the table, the position, the segment; scaled, normalised and dropped out as configured."""

    def __init__(self, config: ModelConfig, vocab: int) -> None:
        super().__init__()
        self.tokens = TokenTable(vocab, config.width)
        self.scale = config.width**0.5 if config.scale_embedding else 1.0
        if config.positions == "learned":
            self.positions: nn.Module | None = Learned(config)
        else:
            self.positions = Sinusoidal(config) if config.positions == "sinusoidal" else None
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(
        self, tokens: Tensor, positions: Tensor, longest: int, segments: Tensor | None = None
    ) -> Tensor:
        x = self.tokens(tokens) * self.scale
        if self.positions is not None:
            x = self.positions(x, positions, longest)
        if self.segments is not None:
            is_one = segments is None or len(self.segments.weight) == 1  # RoBERTa has one for both texts
            x = x + (self.segments.weight[0] if is_one else self.segments(segments))
        return self.dropout(self.norm(x))


class Base(nn.Module):
    """A single stack, causal or bidirectional: tokens (batch, length) to vectors (batch, length, width)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab)
        self.stack = Stack(config, config.depth)

    def new_cache(self) -> Cache:
        return Cache(self.config.depth)

    def forward(
        self,
        tokens: Tensor,
        *,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        segments: Tensor | None = None,
        cache: Cache | None = None,
        record: Record | None = None,
        cuts: Cuts | None = None,
    ) -> Tensor:
        """Read tokens. `present` is False on padding; `documents` numbers those packed into one row.

        With a cache the tokens go on where it ended. `record` receives the attention weights. With `cuts` the
        tokens are one row of texts without padding; on a CPU what has padding or documents is read so.
        """
        if cuts is not None:
            return self._within(tokens, cuts, segments)
        on_cpu = tokens.device.type == "cpu"
        if on_cpu and cache is None and record is None and pays(tokens, present, documents):
            packed = pack(tokens, present, documents, segments)
            return unpack(self._within(packed.tokens, packed.cuts, packed.segments), packed, tokens.shape)
        batch, length = tokens.shape
        before = cache.length if cache is not None else 0
        assert documents is None or cache is None, "documents side by side are for training, not for decoding"
        all_present = present if cache is None else cache.extend(tokens, present)
        total = before + length
        positions = token_positions(batch, total, tokens.device, all_present, documents)[:, before:]
        mask = build_mask(
            length,
            total,
            causal=self.config.direction == "causal",
            device=tokens.device,
            keys_present=all_present,
            query_documents=documents,
            key_documents=documents,
        )
        x = self.embedding(tokens, positions, total, segments)
        layers = cache.layers if cache is not None else None
        return self.stack(x, mask, positions, cache=layers, record=record)

    def _within(
        self, tokens: Tensor, cuts: Cuts, segments: Tensor | None, at: Tensor | None = None
    ) -> Tensor:
        """Read a row of texts, each by itself; with `at`, vectors at those places alone."""
        positions = cuts.positions()
        mask = Mask(causal_square=self.config.direction == "causal", cuts=cuts)
        x = self.embedding(tokens, positions, cuts.longest, segments)
        return self.stack(x, mask, positions, at=at)

    def pooled(
        self, tokens: Tensor, pooling: Pooling, present: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor | None:
        """The vector of each text's first or last token, (batch, width), without what no such vector needs.

        That is the last block at all other tokens. None where it cannot be done so.
        """
        sees_all = pooling == "last" if self.config.direction == "causal" else pooling != "mean"
        if tokens.device.type != "cpu" or not sees_all or self.config.positions == "rotary":
            return None
        if present is not None and not bool(present.any(dim=1).all()):  # a GPU would have to be waited for
            return None
        packed = pack(tokens, present, None, segments)
        ends = packed.cuts.offsets[: packed.texts + 1].long()
        at = ends[:-1] if pooling == "first" else ends[1:] - 1
        return self._within(packed.tokens, packed.cuts, packed.segments, at)[0]


class EncoderDecoderBase(nn.Module):
    """The Transformer of 2017: an encoder reads x, a decoder writes y and looks at what the encoder made of x."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab)
        self.target_embedding = Embedding(config, config.target_vocab) if config.target_vocab else None
        self.encoder = Stack(config, config.depth)
        self.decoder = Stack(config, config.decoder_depth, cross=True)

    def new_cache(self) -> Cache:
        return Cache(self.config.decoder_depth)

    def encode(self, source: Tensor, present: Tensor | None = None, record: Record | None = None) -> Tensor:
        """The memory, (batch, source length, width)."""
        batch, length = source.shape
        positions = token_positions(batch, length, source.device, present)
        mask = build_mask(length, length, causal=False, device=source.device, keys_present=present)
        return self.encoder(self.embedding(source, positions, length), mask, positions, record=record)

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        *,
        memory_present: Tensor | None = None,
        present: Tensor | None = None,
        cache: Cache | None = None,
        record: Record | None = None,
    ) -> Tensor:
        """Vectors for the target's tokens, each from those before it and from the memory."""
        batch, length = target.shape
        before = cache.length if cache is not None else 0
        all_present = present if cache is None else cache.extend(target, present)
        total = before + length
        positions = token_positions(batch, total, target.device, all_present)[:, before:]
        mask = build_mask(length, total, causal=True, device=target.device, keys_present=all_present)
        memory_mask = build_mask(length, memory.shape[1], causal=False, keys_present=memory_present)
        embedding = self.target_embedding or self.embedding
        return self.decoder(
            embedding(target, positions, total),
            mask,
            positions,
            memory=memory,
            memory_mask=memory_mask,
            cache=cache.layers if cache is not None else None,
            record=record,
        )

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_present: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(source, source_present)
        return self.decode(target, memory, memory_present=source_present, present=present)
