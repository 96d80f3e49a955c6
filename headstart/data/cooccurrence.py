"""Vectors for tokens or n-grams from a corpus alone: what stands near the same things gets similar ones.

The text is cut into stretches. A table says how many times more often than by chance a symbol shares a stretch with
each of the most frequent symbols, as log(1 + 4 · ratio); its truncated SVD gives every symbol its vector (Levy and
Goldberg 2014, with a smooth logarithm). It takes seconds; what it is worth is in docs/recipes.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headstart.data.token_store import TokenStore

STRETCH = 64  # tokens
SHARPNESS = 4.0
MOST_CONTEXTS, MOST_CELLS = 4_096, 2**26  # columns of the table, and its cells
MOST_TOKENS, PIECE = 10_000_000, 1_000_000  # of a larger corpus, even parts are counted


def token_vectors(stores: Sequence[TokenStore], vocab: int, width: int, threads: int = 1) -> np.ndarray:
    """Vectors (vocab, width), of mean square 1; zeros for tokens without neighbours.

    All zeros where the text has so few different tokens that there are no vectors of this width.
    """
    found = vectors_of(lambda: (_counts(piece, vocab) for piece in _pieces(stores)), width, threads)
    return found if found.shape[1] == width else np.zeros((vocab, width), np.float32)


def vectors_of(pieces: Callable[[], Iterable[Any]], width: int, threads: int = 1) -> np.ndarray:
    """Vectors (symbols, width or less) from sparse counts (stretches, symbols) that come in pieces."""
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    table = _table(pieces)
    with threadpool_limits(threads):
        left, values, _ = randomized_svd(table, min(width, *table.shape), n_iter=3, random_state=0)
    vectors = left * np.sqrt(values)
    size = np.sqrt((vectors**2).mean(axis=1, keepdims=True))
    size[~table.any(axis=1)] = np.inf
    return (vectors / np.maximum(size, 1e-12)).astype(np.float32)


def _table(pieces: Callable[[], Iterable[Any]]) -> np.ndarray:
    """log(1 + 4 · ratio) of all symbols (rows) by the most frequent ones."""
    frequency = np.asarray(sum(counts.sum(axis=0) for counts in pieces())).ravel()
    most = min(MOST_CONTEXTS, MOST_CELLS // len(frequency), int((frequency > 0).sum()))
    contexts = np.argsort(-frequency, kind="stable")[:most]
    table = np.zeros((len(frequency), most), np.float32)
    for counts in pieces():
        table += (counts.T @ counts[:, contexts]).toarray()
    table[contexts, np.arange(most)] -= frequency[contexts]  # a symbol is not its own neighbour
    rows, columns = (table.sum(axis=axis, keepdims=True, dtype=np.float64) for axis in (1, 0))
    table *= (SHARPNESS * rows.sum() / np.where(rows > 0, rows, 1)).astype(np.float32)
    table /= np.where(columns > 0, columns, 1).astype(np.float32)
    return np.log1p(table, out=table)


def _counts(piece: TokenStore, vocab: int) -> Any:
    """How often each token occurs in each stretch; no stretch goes over the end of a document."""
    from scipy.sparse import csr_matrix

    lengths = np.diff(piece.documents)
    stretches = -(-lengths // STRETCH)
    inside = np.arange(len(piece)) - np.repeat(piece.documents[:-1], lengths)
    row = np.repeat(np.cumsum(stretches) - stretches, lengths) + inside // STRETCH
    ones = np.ones(len(piece), np.float32)
    return csr_matrix((ones, (row, piece.tokens)), shape=(int(stretches.sum()), vocab))


def _pieces(stores: Sequence[TokenStore]) -> Iterator[TokenStore]:
    """The corpus in pieces that fit into memory; of a large one every second, third … piece."""
    pieces = [(store, start) for store in stores for start in range(0, len(store), PIECE)]
    step = max(1, -(-sum(map(len, stores)) // MOST_TOKENS))
    for store, start in pieces[::step]:
        yield store.part(start, min(start + PIECE, len(store)))
