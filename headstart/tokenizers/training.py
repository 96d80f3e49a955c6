"""Training a tokenizer on one's own text: byte-level BPE, Unigram, WordPiece or characters.

The `tokenizers` library learns; here it is fed in bounded memory and made exact. The same text gives the
same `tokenizer.json` to the byte, with any number of threads. Every special token of every objective
has its id from the start (ids 0 to 6), so one tokenizer serves causal, masked and translation.

* `bpe` and `unigram` work on bytes: nothing is normalised, nothing is unknown, and decoding gives back the text
  exactly, with its line ends, its composed or decomposed letters and its runs of spaces.
* `wordpiece` is BERT's: it keeps neither white space nor characters that are rare in the training text.
* `char` has a token for each character; those not in the training text are unknown.

With `normalise` the text is put in lower case, or given straight apostrophes, before all that, here and whenever the
tokenizer is used: decoding then gives back the text so made.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from headstart.config.training import Normalisation, TokenizerKind
from headstart.errors import UserError
from headstart.randomness import stream
from headstart.tokenizers.huggingface import BYTE_OF, in_order, normalised, normaliser
from headstart.tokenizers.special_tokens import SPECIALS
from headstart.tokenizers.tokenizer import Tokenizer

Texts = Callable[[], Iterable[str]]  # called twice: to measure, and to learn
SAMPLE_BYTES = 256 << 20

# The trainers hold every distinct word, at 100 bytes a byte or more. Text without spaces is one long word
# after another, none like the last: of those stretches no more than this is taken.
UNSPACED_BYTES = {"bpe": 2 << 20, "unigram": 1 << 19, "wordpiece": 2 << 20, "char": 0}

# BERT's limit for the alphabet of a WordPiece vocabulary, and the share of the text that it should cover.
ALPHABET_LIMIT, ALPHABET_COVERAGE = 1_000, 0.9999
WORDPIECE_CHARACTERS = 100  # a longer word would be unknown as a whole


@dataclass(frozen=True)
class CorpusStats:
    """The size of the text, and the share of it that is used."""

    text_bytes: int
    unspaced_bytes: int
    characters: Counter[str]  # empty where the kind does not need it
    share: float  # of the pieces of text: 1.0, or less in a huge corpus
    unspaced_share: float  # of the stretches without white space


@dataclass(frozen=True)
class TrainedTokenizer:
    """A trained tokenizer, and what it was trained on."""

    tokenizer: Tokenizer
    kind: TokenizerKind
    vocab_asked: int
    stats: CorpusStats

    @property
    def notes(self) -> list[str]:
        """What the user should know: a vocabulary that was not reached, a sample that was taken."""
        notes: list[str] = []
        if self.kind == "char":  # it counts all there is, and a smaller vocabulary is what was wanted
            return notes
        if self.tokenizer.size < self.vocab_asked:
            reached = f"asked for {self.vocab_asked:,} tokens, reached {self.tokenizer.size:,}"
            notes.append(f"{reached}: the text repeats no more pieces; give more text or a smaller --vocab")
        total, unspaced = self.stats.text_bytes / 1e6, self.stats.unspaced_bytes / 1e6
        taken = self.stats.unspaced_share * unspaced
        if self.stats.share < 1:
            sampled = self.stats.share * (total - unspaced + taken)
            notes.append(f"learned from a sample of {sampled:,.0f} MB, taken evenly from {total:,.0f} MB")
        if self.stats.unspaced_share < 1:
            taken *= self.stats.share
            notes.append(f"learned from {taken:,.1f} MB of the {unspaced:,.1f} MB that have no white space")
        return notes


def train(
    texts: Texts,
    *,
    vocab: int = 8_000,
    kind: TokenizerKind = "bpe",
    normalise: Sequence[Normalisation] = (),
    sample_bytes: int = SAMPLE_BYTES,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> TrainedTokenizer:
    """Learn a vocabulary of at most `vocab` tokens, special ones included, from what `texts()` gives."""
    _refuse_small(vocab, kind, len(BYTE_OF) if kind in ("bpe", "unigram") else 0)
    ways = in_order(normalise)
    on_stage("measuring")
    stats = measure(texts(), kind, sample_bytes, ways)
    if not stats.text_bytes:
        raise UserError("there is no text to train a tokenizer on", fix="give files that are not empty", code="too-few")
    on_stage("learning")
    spec = _LEARNERS[kind](lambda: (normalised(text, ways) for text in sampled(texts(), stats)), vocab, stats)
    spec["normalizer"] = normaliser(ways)
    return TrainedTokenizer(Tokenizer(spec), kind, vocab, stats)


def measure(
    texts: Iterable[str], kind: TokenizerKind, sample_bytes: int = SAMPLE_BYTES, normalise: Sequence[Normalisation] = ()
) -> CorpusStats:
    """Read everything once: how much it is, and how much of it has no white space."""
    text_bytes = unspaced_bytes = 0
    characters: Counter[str] = Counter()
    for text in texts:
        text_bytes += len(text.encode("utf-8", "replace"))
        unspaced_bytes += sum(len(word[0].encode("utf-8", "replace")) for word in _unspaced(text)[0])
        if kind in ("wordpiece", "char"):
            characters.update(normalised(text, normalise))
    return CorpusStats(
        text_bytes, unspaced_bytes, characters,
        share=min(1.0, sample_bytes / max(1, text_bytes)),
        unspaced_share=min(1.0, UNSPACED_BYTES[kind] / max(1, unspaced_bytes)),
    )  # fmt: skip


# What counts as a stretch without white space, and the windows that it is cut into. In scripts that are
# written without spaces, most of which take three bytes a character, the stretches are shorter.
_LONG, _DENSE = (re.compile(r"\S{65,}"), 64), (re.compile(r"\S{17,}"), 16)


def _unspaced(text: str) -> tuple[Iterator[re.Match[str]], int]:
    """The stretches of a text without white space, and the size of their windows."""
    stretches, window = _DENSE if len(text.encode("utf-8", "replace")) > 2 * len(text) else _LONG
    return stretches.finditer(text), window


def sampled(texts: Iterable[str], stats: CorpusStats) -> Iterator[str]:
    """The text to learn from: a fixed random share of it, stretches without white space cut into windows."""
    draws = stream(0, "tokenizer sample")
    for text in texts:
        if stats.share < 1 and draws.random() >= stats.share:
            continue
        done, (stretches, window) = 0, _unspaced(text)
        for word in stretches:
            yield text[done : word.start()]
            done = word.end()
            for start in range(word.start(), done, window):
                if stats.unspaced_share == 1 or draws.random() < stats.unspaced_share:
                    yield text[start : min(start + window, done)]
        yield text[done:] if done else text


def _refuse_small(vocab: int, kind: TokenizerKind, alphabet: int) -> None:
    # With no room for a piece besides the alphabet, the Unigram trainer stops at none at all.
    needs = {"special tokens": len(SPECIALS), "for the alphabet": alphabet, "for a piece": kind != "bpe"}
    least = sum(needs.values())
    if vocab < least:
        parts = " + ".join(f"{count:d} {what}" for what, count in needs.items() if count)
        what = f"a vocabulary of {vocab:,} is too small: {kind} needs at least {least:,} ({parts})"
        raise UserError(what, fix=f"--vocab {max(least, 1_000)}")


def _learned(library: Library, texts: Texts, trainer: Any) -> dict[str, Any]:
    library.train_from_iterator(texts(), trainer)
    return json.loads(library.to_str())


def _byte_level(model: Any) -> Library:
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _learn_bpe(texts: Texts, vocab: int, stats: CorpusStats) -> dict[str, Any]:
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, special_tokens=list(SPECIALS), initial_alphabet=sorted(BYTE_OF),
        show_progress=False,
    )  # fmt: skip
    return _learned(_byte_level(models.BPE()), texts, trainer)


def _learn_unigram(texts: Texts, vocab: int, stats: CorpusStats) -> dict[str, Any]:
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=list(SPECIALS), initial_alphabet=sorted(BYTE_OF), unk_token=SPECIALS[1],
        show_progress=False,
    )  # fmt: skip
    spec = _learned(_byte_level(models.Unigram()), texts, trainer)
    spec["model"]["vocab"] = _rounded(spec["model"]["vocab"])
    return spec


def _rounded(vocab: list[list[Any]]) -> list[list[Any]]:
    """The same pieces with scores and order that do not depend on how the sums were added up.

    The library adds in the order of a hash table, which differs from run to run (by 1e-10 at most), and
    scatters the scores of bytes that it did not see above the least score by up to 256 steps of 0.0001.
    """
    specials, learned = vocab[: len(SPECIALS)], vocab[len(SPECIALS) :]
    least = min(score for _, score in learned)
    unseen = {piece for piece, score in learned if len(piece) == 1 and score < least + 0.02565}
    rounded = [[piece, round(least if piece in unseen else score, 3)] for piece, score in learned]
    return specials + sorted(rounded, key=lambda pair: (-pair[1], pair[0]))


def _learn_wordpiece(texts: Texts, vocab: int, stats: CorpusStats) -> dict[str, Any]:
    alphabet = _covering(stats.characters)
    _refuse_small(vocab, "wordpiece", 2 * len(alphabet))
    # The library numbers the continuing characters in the order of a hash table, unless they have numbers
    # already: so they are given as special tokens, and are made ordinary again.
    continuing = [f"##{character}" for character in alphabet]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab, min_frequency=2, special_tokens=[*SPECIALS, *continuing],
        initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False,
    )  # fmt: skip
    library = Library(models.WordPiece(unk_token=SPECIALS[1], max_input_chars_per_word=WORDPIECE_CHARACTERS))
    lengths = pre_tokenizers.Split(Regex(f"[\\s\\S]{{{WORDPIECE_CHARACTERS}}}"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), lengths])
    library.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    spec = _learned(library, texts, trainer)
    spec["added_tokens"] = spec["added_tokens"][: len(SPECIALS)]
    return spec


def _covering(characters: Counter[str]) -> list[str]:
    """The characters to keep: the most frequent ones that together make up nearly all of the text."""
    visible = Counter({sign: count for sign, count in characters.items() if not sign.isspace()})
    missing = (1 - ALPHABET_COVERAGE) * visible.total()
    kept = _by_frequency(visible)
    while kept and (len(kept) > ALPHABET_LIMIT or visible[kept[-1]] <= missing):
        missing -= visible[kept.pop()]
    return sorted(kept)


def _by_frequency(characters: Counter[str]) -> list[str]:
    return sorted(characters, key=lambda character: (-characters[character], character))


def _learn_char(texts: Texts, vocab: int, stats: CorpusStats) -> dict[str, Any]:
    """Nothing to learn but which characters there are; a BPE without merges leaves them apart."""
    pieces = [*SPECIALS, *_by_frequency(stats.characters)[: vocab - len(SPECIALS)]]
    vocabulary = {piece: identity for identity, piece in enumerate(pieces)}
    library = Library(models.BPE(vocabulary, [], unk_token=SPECIALS[1]))
    library.decoder = decoders.Fuse()
    library.add_special_tokens(list(SPECIALS))
    return json.loads(library.to_str())


_LEARNERS: dict[TokenizerKind, Callable[[Texts, int, CorpusStats], dict[str, Any]]] = {
    "bpe": _learn_bpe, "unigram": _learn_unigram, "wordpiece": _learn_wordpiece, "char": _learn_char,
}  # fmt: skip
