"""What special tokens are for: seven roles, and the spellings by which other tokenizers' files give them.

A role that a vocabulary does not have is None; it is appended only when somebody asks for it.
"""

from collections.abc import Mapping
from typing import Literal, get_args

Role = Literal["pad", "unknown", "begin", "end", "mask", "cls", "sep"]
ROLES: tuple[Role, ...] = get_args(Role)

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


def roles_among(
    specials: Mapping[str, int], named: Mapping[str, str] | None = None
) -> dict[Role, int | None]:
    """The id of each role, given the special tokens and their ids.

    `named` says which token has a role where a spelling does not: `<|im_end|>` ends, or the end token pads.
    """
    found: dict[Role, int | None] = {
        role: next((specials[spelling] for spelling in SPELLINGS[role] if spelling in specials), None)
        for role in ROLES
    }
    for role in ROLES:
        if named and role in named:
            found[role] = specials[named[role]]
    return found
