"""The base: embedding, positions, blocks. What is transferred."""

from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.kernels.kv_cache import Cache
from headstart.kernels.layers import Dropout, TokenEmbedding
from headstart.kernels.unpadding import Varlen, repad, unpad, unpadding_pays
from headstart.model.attention import Mask, build_mask
from headstart.model.blocks import Record, Stack, make_norm
from headstart.model.positions import ADDED_POSITIONS, token_positions


class Embedding(nn.Module):
    """Tokens to vectors: the token's, its position's, its segment's; scaled, normed, dropped out as configured."""

    def __init__(self, config: ModelConfig, vocab: int) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(vocab, config.width)
        self.scale = config.width**0.5 if config.scale_embedding else 1.0
        is_rotary = config.positions == "rotary"  # which attention adds, not the embedding
        self.positions = None if is_rotary else ADDED_POSITIONS[config.positions](config)
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, positions: Tensor, longest: int, segments: Tensor | None = None) -> Tensor:
        x = self.tokens(tokens) * self.scale
        if self.positions is not None:
            x = self.positions(x, positions, longest)
        if self.segments is not None:
            is_one = segments is None or len(self.segments.weight) == 1  # RoBERTa has one for both texts
            x = x + (self.segments.weight[0] if is_one else self.segments(segments))
        return self.dropout(self.norm(x))


def _positions_and_mask(
    tokens: Tensor, present: Tensor | None, cache: Cache | None, causal: bool, documents: Tensor | None = None
) -> tuple[Tensor, Mask, int]:
    """The positions of tokens that continue where the cache ended, the mask over all, and how many all are."""
    batch, length = tokens.shape
    before = cache.length if cache is not None else 0
    if cache is not None:
        present = cache.extend(tokens, present)
    total = before + length
    positions = token_positions(batch, total, tokens.device, present, documents)[:, before:]
    mask = build_mask(length, total, present, documents, causal=causal, device=tokens.device)
    return positions, mask, total


class Base(nn.Module):
    """A single stack, causal or bidirectional: tokens (batch, length) to vectors (batch, length, width)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.causal = config, config.direction == "causal"
        self.embedding = Embedding(config, config.vocab)
        self.stack = Stack(config, config.depth)

    @property
    def output_embedding(self) -> Embedding:
        """The embedding of the tokens that are written, whose matrix a tied head shares."""
        return self.embedding

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
        varlen: Varlen | None = None,
    ) -> Tensor:
        """Read tokens. `present` is False on padding; `documents` numbers those packed into one row.

        With a cache the tokens continue where it ended. `record` receives the attention weights. With `varlen` the
        tokens are one row of texts without padding; on a CPU what has padding or documents is read so.
        """
        if varlen is not None:
            return self._read_row(tokens, varlen, segments)
        if cache is None and record is None and unpadding_pays(tokens, present, documents):
            row = unpad(tokens, present, documents, segments)
            return repad(self._read_row(row.tokens, row.varlen, row.segments), row, tokens.shape)
        assert documents is None or cache is None, "documents side by side are for training, not for decoding"
        positions, mask, total = _positions_and_mask(tokens, present, cache, self.causal, documents)
        x = self.embedding(tokens, positions, total, segments)
        layers = cache.layers if cache is not None else None
        return self.stack(x, mask, positions, cache=layers, record=record)

    def _read_row(self, tokens: Tensor, varlen: Varlen, segments: Tensor | None) -> Tensor:
        """Read a row of texts, each by itself."""
        positions = varlen.positions()
        x = self.embedding(tokens, positions, varlen.max_seqlen, segments)
        return self.stack(x, Mask(causal_square=self.causal, varlen=varlen), positions)


class EncoderDecoderBase(nn.Module):
    """The Transformer of 2017: an encoder reads x, a decoder writes y and looks at what the encoder made of x."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab)
        self.target_embedding = Embedding(config, config.target_vocab) if config.target_vocab else None
        self.encoder = Stack(config, config.depth)
        self.decoder = Stack(config, config.decoder_depth, cross=True)

    @property
    def output_embedding(self) -> Embedding:
        """The embedding of the tokens that are written."""
        return self.target_embedding or self.embedding

    def new_cache(self) -> Cache:
        return Cache(self.config.decoder_depth)

    def encode(self, source: Tensor, present: Tensor | None = None, record: Record | None = None) -> Tensor:
        """The memory, (batch, source length, width)."""
        positions, mask, length = _positions_and_mask(source, present, None, causal=False)
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
        positions, mask, total = _positions_and_mask(target, present, cache, causal=True)
        seen = build_mask(target.shape[1], memory.shape[1], memory_present, causal=False)
        x = self.output_embedding(target, positions, total)
        layers = cache.layers if cache is not None else None
        return self.decoder(x, mask, positions, memory=memory, memory_mask=seen, cache=layers, record=record)

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
