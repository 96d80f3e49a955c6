"""Which tokenizer a run has: its start's, a given one, its own from before, or one trained on its text."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headstart.errors import UserError
from headstart.text.normalising import Normalisation, in_order
from headstart.text.roles import Role
from headstart.text.tokenizer import Tokenizer
from headstart.text.tokenizer_training import train
from headstart.training.loading import LoadedRun
from headstart.training.ranks import ALONE, Ranks
from headstart.training.run_directory import RunDirectory

DEFAULT_VOCAB = 8_000
# The roles that a frame, and the batches framed by it, need.
FRAME_ROLES: dict[str, tuple[Role, ...]] = {
    "causal": ("begin", "end", "pad"),
    "masked": ("cls", "sep", "pad"),
    "roberta": ("cls", "sep", "pad"),
    "marian": ("end", "pad"),
}


def tokenizer_for(
    run: RunDirectory,
    given: str | Path | Tokenizer | None,
    vocab: int,
    begun: LoadedRun | None,
    texts: Callable[[], Iterator[str]],
    roles: Sequence[Role],
    tell: Callable[[str], None],
    ranks: Ranks = ALONE,
    normalise: Sequence[Normalisation] = (),
) -> Tokenizer:
    """A tokenizer that has these roles; one that is missing is appended with a word about it, but never to a start.

    One that is trained now normalises as is asked for; one that is there already has to do so.
    """
    ways = in_order(normalise)
    words = _chosen(run, given, vocab, begun, texts, tell, ranks, ways)
    if ways and words.normalise != ways:
        raise UserError(
            f"the tokenizer normalises {' and '.join(words.normalise) or 'nothing'}, "
            f"where {' and '.join(ways)} is asked for",
            fix="leave --normalise out, or train another: headstart tokenizer F… --normalise … --out DIR",
        )
    for role in roles:
        words, note = words.with_role(role)
        if note and begun is not None:
            raise UserError(
                f"the start's tokenizer has no {role} token",
                where=str(begun.path),
                fix="choose another start",
            )
        if note:
            tell(note)
    return words


def _chosen(
    run: RunDirectory,
    given: str | Path | Tokenizer | None,
    vocab: int,
    begun: LoadedRun | None,
    texts: Callable[[], Iterator[str]],
    tell: Callable[[str], None],
    ranks: Ranks,
    normalise: Sequence[Normalisation],
) -> Tokenizer:
    if begun is not None and given is not None:
        raise UserError(
            "--tokenizer with --start", fix="a start brings its own tokenizer: leave --tokenizer out"
        )
    if begun is not None:
        return begun.tokenizer
    if isinstance(given, Tokenizer):
        return given
    if given is not None:
        return Tokenizer.load(given)
    if run.tokenizer_file.exists() and run.config_file.exists():
        return Tokenizer.load(run.tokenizer_file)
    if ranks.world > 1:
        return Tokenizer(ranks.first(lambda: _trained(texts, vocab, tell, normalise).spec))
    return _trained(texts, vocab, tell, normalise)


def _trained(
    texts: Callable[[], Iterator[str]],
    vocab: int,
    tell: Callable[[str], None],
    normalise: Sequence[Normalisation],
) -> Tokenizer:
    tell(f"training a tokenizer of {vocab:,} tokens on the text")
    training = train(texts, vocab=vocab, normalise=normalise)
    for note in training.notes:
        tell(note)
    return training.tokenizer
