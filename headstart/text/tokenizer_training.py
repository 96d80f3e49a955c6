"""Training a tokenizer on one's own text: byte-level BPE, Unigram, WordPiece or characters.

The `tokenizers` library learns; here it is fed in bounded memory and made exact. The same text gives the
same `tokenizer.json` to the byte, whatever the number of threads. Every special token of every objective
has its place from the start (ids 0 to 6), so one tokenizer serves causal, masked and translation.

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
from typing import Any, Literal

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from headstart.errors import UserError
from headstart.randomness import stream
from headstart.text.huggingface import BYTE_OF
from headstart.text.normalising import Normalisation, in_order, normalised, normaliser
from headstart.text.roles import SPECIALS
from headstart.text.tokenizer import Tokenizer

Kind = Literal["bpe", "unigram", "wordpiece", "char"]
Texts = Callable[[], Iterable[str]]  # called twice: to measure, and to learn

SAMPLE_BYTES = 256 << 20
# The trainers hold every distinct word, at 100 bytes a byte or more. Text without spaces is one long word
# after another, none like the last: of those stretches no more than this is taken.
UNSPACED_BYTES = {"bpe": 2 << 20, "unigram": 1 << 19, "wordpiece": 2 << 20, "char": 0}
# BERT's limit for the alphabet of a WordPiece vocabulary, and the share of the text that it should cover.
ALPHABET_LIMIT, ALPHABET_COVERAGE = 1_000, 0.9999
WORDPIECE_CHARACTERS = 100  # a longer word would be unknown as a whole


@dataclass(frozen=True)
class Matter:
    """What there is to learn from, and the part of it that is taken."""

    text_bytes: int
    unspaced_bytes: int
    characters: Counter[str]
    """Empty where the kind does not need it."""

    share: float
    """Of the pieces of text: 1.0, or less in a huge corpus."""

    unspaced_share: float
    """Of the stretches without white space."""

    @property
    def sampled_bytes(self) -> int:
        """About how much is learned from."""
        spaced = self.text_bytes - self.unspaced_bytes
        return round(self.share * (spaced + self.unspaced_share * self.unspaced_bytes))


@dataclass(frozen=True)
class Training:
    """A trained tokenizer, and what it was trained on."""

    tokenizer: Tokenizer
    kind: Kind
    vocab_asked: int
    matter: Matter

    @property
    def notes(self) -> list[str]:
        """What the user should know: a vocabulary that was not reached, a sample that was taken."""
        notes: list[str] = []
        if self.kind == "char":  # it counts all there is, and a smaller vocabulary is what was wanted
            return notes
        if self.tokenizer.size < self.vocab_asked:
            reached = f"asked for {self.vocab_asked:,} tokens, reached {self.tokenizer.size:,}"
            notes.append(f"{reached}: the text repeats no more pieces; give more text or a smaller --vocab")
        if self.matter.share < 1:
            sampled, total = self.matter.sampled_bytes / 1e6, self.matter.text_bytes / 1e6
            notes.append(f"learned from a sample of {sampled:,.0f} MB, taken evenly from {total:,.0f} MB")
        if self.matter.unspaced_share < 1:
            taken = self.matter.unspaced_share * self.matter.unspaced_bytes * self.matter.share / 1e6
            total = self.matter.unspaced_bytes / 1e6
            notes.append(f"learned from {taken:,.1f} MB of the {total:,.1f} MB that have no white space")
        return notes


def train(
    texts: Texts,
    *,
    vocab: int = 8_000,
    kind: Kind = "bpe",
    normalise: Sequence[Normalisation] = (),
    sample_bytes: int = SAMPLE_BYTES,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Training:
    """Learn a vocabulary of at most `vocab` tokens, special ones included, from what `texts()` gives."""
    _refuse_small(vocab, kind, len(BYTE_OF) if kind in ("bpe", "unigram") else 0)
    ways = in_order(normalise)
    on_stage("measuring")
    matter = measure(texts(), kind, sample_bytes, ways)
    if not matter.text_bytes:
        raise UserError("there is no text to train a tokenizer on", fix="give files that are not empty")
    on_stage("learning")
    spec = _LEARNERS[kind](
        lambda: (normalised(text, ways) for text in sampled(texts(), matter)), vocab, matter
    )
    spec["normalizer"] = normaliser(ways)
    return Training(Tokenizer(spec), kind, vocab, matter)


# ---- what to learn from -----------------------------------------------------------------------------------


def measure(
    texts: Iterable[str],
    kind: Kind,
    sample_bytes: int = SAMPLE_BYTES,
    normalise: Sequence[Normalisation] = (),
) -> Matter:
    """Read everything once: how much it is, and how much of it has no white space."""
    text_bytes = unspaced_bytes = 0
    characters: Counter[str] = Counter()
    for text in texts:
        text_bytes += len(text.encode("utf-8", "replace"))
        unspaced_bytes += sum(len(found[0].encode("utf-8", "replace")) for found in _unspaced(text))
        if kind in ("wordpiece", "char"):
            characters.update(normalised(text, normalise))
    return Matter(
        text_bytes, unspaced_bytes, characters,
        share=min(1.0, sample_bytes / max(1, text_bytes)),
        unspaced_share=min(1.0, UNSPACED_BYTES[kind] / max(1, unspaced_bytes)),
    )  # fmt: skip


# What counts as a stretch without white space, and the windows that it is cut into. In scripts that are
# written without spaces, most of which take three bytes a character, the stretches are shorter.
_LONG, _LONG_WINDOW = re.compile(r"\S{65,}"), 64
_DENSE, _DENSE_WINDOW = re.compile(r"\S{17,}"), 16


def _is_dense(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) > 2 * len(text)


def _unspaced(text: str) -> Iterator[re.Match[str]]:
    return (_DENSE if _is_dense(text) else _LONG).finditer(text)


def sampled(texts: Iterable[str], matter: Matter) -> Iterator[str]:
    """The text to learn from: a fixed random share of it, stretches without white space cut into windows."""
    draws = stream(0, "tokenizer sample")
    for text in texts:
        if matter.share < 1 and draws.random() >= matter.share:
            continue
        done, window = 0, _DENSE_WINDOW if _is_dense(text) else _LONG_WINDOW
        for found in _unspaced(text):
            yield text[done : found.start()]
            done = found.end()
            for start in range(found.start(), done, window):
                if matter.unspaced_share == 1 or draws.random() < matter.unspaced_share:
                    yield text[start : min(start + window, done)]
        yield text[done:] if done else text


# ---- the four kinds ---------------------------------------------------------------------------------------


def _refuse_small(vocab: int, kind: Kind, alphabet: int) -> None:
    # With no room for a piece besides the alphabet, the Unigram trainer stops at none at all.
    needs = {"special tokens": len(SPECIALS), "for the alphabet": alphabet, "for a piece": kind != "bpe"}
    least = sum(needs.values())
    if vocab < least:
        parts = " + ".join(f"{count:d} {what}" for what, count in needs.items() if count)
        raise UserError(
            f"a vocabulary of {vocab:,} is too small: {kind} needs at least {least:,} ({parts})",
            fix=f"--vocab {max(least, 1_000)}",
        )


def _learned(library: Library, texts: Texts, trainer: Any) -> dict[str, Any]:
    library.train_from_iterator(texts(), trainer)
    spec: dict[str, Any] = json.loads(library.to_str())
    return spec


def _byte_level(model: Any) -> Library:
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _learn_bpe(texts: Texts, vocab: int, matter: Matter) -> dict[str, Any]:
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, special_tokens=list(SPECIALS), initial_alphabet=sorted(BYTE_OF),
        show_progress=False,
    )  # fmt: skip
    return _learned(_byte_level(models.BPE()), texts, trainer)


def _learn_unigram(texts: Texts, vocab: int, matter: Matter) -> dict[str, Any]:
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=list(SPECIALS), initial_alphabet=sorted(BYTE_OF), unk_token=SPECIALS[1],
        show_progress=False,
    )  # fmt: skip
    spec = _learned(_byte_level(models.Unigram()), texts, trainer)
    spec["model"]["vocab"] = _settled(spec["model"]["vocab"])
    return spec


def _settled(vocab: list[list[Any]]) -> list[list[Any]]:
    """The same pieces with scores and order that do not depend on how the sums were added up.

    The library adds in the order of a hash table, which differs from run to run (by 1e-10 at most), and
    scatters the scores of bytes that it did not see above the least score by up to 256 steps of 0.0001.
    """
    specials, learned = vocab[: len(SPECIALS)], vocab[len(SPECIALS) :]
    least = min(score for _, score in learned)
    scores = {
        piece: round(least if len(piece) == 1 and score < least + 0.02565 else score, 3)
        for piece, score in learned
    }
    return specials + sorted(([p, s] for p, s in scores.items()), key=lambda pair: (-pair[1], pair[0]))


def _learn_wordpiece(texts: Texts, vocab: int, matter: Matter) -> dict[str, Any]:
    alphabet = _covering(matter.characters)
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
    visible = Counter(
        {character: count for character, count in characters.items() if not character.isspace()}
    )
    missing = (1 - ALPHABET_COVERAGE) * visible.total()
    kept = _by_frequency(visible)
    while kept and (len(kept) > ALPHABET_LIMIT or visible[kept[-1]] <= missing):
        missing -= visible[kept.pop()]
    return sorted(kept)


def _by_frequency(characters: Counter[str]) -> list[str]:
    return sorted(characters, key=lambda character: (-characters[character], character))


def _learn_char(texts: Texts, vocab: int, matter: Matter) -> dict[str, Any]:
    """Nothing to learn but which characters there are; a BPE without merges leaves them apart."""
    pieces = [*SPECIALS, *_by_frequency(matter.characters)[: vocab - len(SPECIALS)]]
    library = Library(
        models.BPE({piece: identity for identity, piece in enumerate(pieces)}, [], unk_token=SPECIALS[1])
    )
    library.decoder = decoders.Fuse()
    library.add_special_tokens(list(SPECIALS))
    spec: dict[str, Any] = json.loads(library.to_str())
    return spec


_LEARNERS: dict[Kind, Callable[[Texts, int, Matter], dict[str, Any]]] = {
    "bpe": _learn_bpe, "unigram": _learn_unigram, "wordpiece": _learn_wordpiece, "char": _learn_char,
}  # fmt: skip
