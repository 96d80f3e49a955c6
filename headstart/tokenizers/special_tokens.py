"""What special tokens are for: seven roles, and the spellings by which other tokenizers' files give them.

A role that a vocabulary does not have is None; it is appended only on request.
"""

from collections.abc import Mapping
from typing import Literal, get_args

Role = Literal["pad", "unknown", "begin", "end", "mask", "cls", "sep"]
ROLES: tuple[Role, ...] = get_args(Role)
Roles = dict[Role, int | None]
MOST_UNUSED = 1 << 16  # ids that no piece has, in a file that is read

# The first spelling of each is ours. `<s>` and `</s>` also serve as cls and sep, as in RoBERTa's family;
# `<|endoftext|>` both begins and ends, as in GPT-2's.
SPELLINGS: dict[Role, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<blank>"),
    "unknown": ("<unk>", "[UNK]", "<|unk|>", "<oov>"),
    "begin": ("<s>", "<bos>", "[BOS]", "<sos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
    "cls": ("<cls>", "[CLS]", "<s>"),
    "sep": ("<sep>", "[SEP]", "</s>"),
}

SPECIALS: tuple[str, ...] = tuple(SPELLINGS[role][0] for role in ROLES)
KNOWN: frozenset[str] = frozenset(spelling for spellings in SPELLINGS.values() for spelling in spellings)


def roles_among(specials: Mapping[str, int], named: Mapping[str, str] | None = None) -> Roles:
    """The id of each role; `named` says so where a spelling does not: `<|im_end|>` ends, or the end token pads."""
    ids: Roles = {}
    for role in ROLES:
        spellings = (named[role],) if named and role in named else SPELLINGS[role]
        ids[role] = next((specials[spelling] for spelling in spellings if spelling in specials), None)
    return ids
