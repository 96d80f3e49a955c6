"""Sentences of French and English text, by punctuation, for next-sentence pairs.

A simple splitter: it wants an end mark, white space and a beginning, and knows some abbreviations. Joining the
sentences gives back the text: the white space between two belongs to the second, as in pieces.
"""

import re
from collections.abc import Iterable, Iterator

from headstart.text.documents import Piece

# An end: marks, then closing quotes and brackets (French ones after a space), then white space, then a capital,
# a digit or what opens a sentence. The white space is looked at but not taken.
_END = re.compile(
    r"""(?P<marks>[.!?…]+|[。！？]+)
        (?:[\s]?»|["'’”)\]]+)*
        (?=\s+(?:[«"'‘“(\[—–¿¡-]+\s?)?(?P<next>\w))""",
    re.VERBOSE,
)
# Abbreviations that no sentence ends with, in French and in English; single capitals are initials.
_TITLES = "mm mme mmes mlle mlles mgr dr pr prof st ste mr mrs ms jr sr rev gen col capt lt sgt"
_IN_TEXT = "cf p pp vol chap éd ed fig av apr env ibid op cit vs e.g i.e viz approx n° bd tél"
_ABBREVIATIONS = frozenset(f"{_TITLES} {_IN_TEXT}".split())
_LAST_WORD = re.compile(r"[\w.°-]+$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, with the white space before each; their concatenation is the text."""
    sentences, start = [], 0
    for found in _END.finditer(text):
        if _ends_sentence(text, found):
            sentences.append(text[start : found.end()])
            start = found.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_sentence(text: str, found: re.Match[str]) -> bool:
    follower = found["next"]
    if follower.islower():
        return False
    if found["marks"] != ".":
        return True
    word = _LAST_WORD.search(text, max(0, found.start() - 20), found.start())
    if not word:
        return True
    is_initial = len(word[0]) == 1 and word[0].isupper()
    return not is_initial and word[0].lower() not in _ABBREVIATIONS


def sentence_pieces(source: Iterable[Piece]) -> Iterator[Piece]:
    """The same text with every sentence as a segment of its own."""
    for piece in source:
        sentences = split_sentences(piece.text) or [""]
        for sentence in sentences[:-1]:
            yield Piece(sentence, True, False)
        yield piece._replace(text=sentences[-1])
