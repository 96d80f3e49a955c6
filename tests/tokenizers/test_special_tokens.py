"""Roles of special tokens, by their spelling in other tokenizers' files."""

import pytest

from headstart.tokenizers.special_tokens import KNOWN, ROLES, SPECIALS, roles_among


@pytest.mark.parametrize(
    ("specials", "roles"),
    [
        (
            ["<pad>", "<unk>", "<s>", "</s>"],
            {"pad": 0, "unknown": 1, "begin": 2, "end": 3, "cls": 2, "sep": 3},
        ),
        (
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            {"pad": 0, "unknown": 1, "cls": 2, "sep": 3, "mask": 4},
        ),
        (["<|endoftext|>"], {"begin": 0, "end": 0}),
        (["<eos>", "</s>"], {"end": 1, "sep": 1}),
        ([], {}),
    ],
)
def test_the_families_of_tokenizers_are_known(specials, roles):
    found = roles_among({spelling: number for number, spelling in enumerate(specials)})
    assert found == {**dict.fromkeys(ROLES), **roles}


def test_a_name_wins_over_a_spelling():
    found = roles_among({"</s>": 0, "<|im_end|>": 1}, {"end": "<|im_end|>", "pad": "</s>"})
    assert (found["end"], found["pad"], found["sep"]) == (1, 0, 0)


def test_ours_are_seven_different_ones():
    assert len(set(SPECIALS)) == len(ROLES) == 7
    assert set(SPECIALS) <= KNOWN
