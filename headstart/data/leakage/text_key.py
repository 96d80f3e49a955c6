"""The key of a text: its letters and digits without case, accents, punctuation and white space."""

import hashlib
import re
import unicodedata

_ACCENTS = re.compile(r"[\u0300-\u036f]+")

# Scripts without spaces between words: there each sign counts as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


def folded_words(text: str) -> list[str]:
    """The words of a text, of letters and digits only, without case and accents; œ as oe."""
    plain = unicodedata.normalize("NFKD", text).casefold().replace("œ", "oe").replace("æ", "ae")
    return _WORD.findall(_ACCENTS.sub("", plain))


def text_key(text: str) -> str:
    """The folded words without space between them: `L'Été !` and `l ete` are both `lete`.

    A text without letters and digits, such as `:-)`, is its own key, less its outer white space.
    """
    return "".join(folded_words(text)) or text.strip()


def digest(key: str) -> bytes:
    """Sixteen bytes that stand for a key: two texts that share them are equal for every purpose here."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
