"""Randomness by key: the same key gives the same numbers, whatever was drawn before; keys never collide by sum."""

from headstart.randomness import seed_of, stream


def draw(*key):
    return tuple(stream(*key).integers(2**60, size=4))


def test_the_same_key_gives_the_same_numbers():
    first = draw(1, "order", 5)
    draw(9, "other")
    assert draw(1, "order", 5) == first


def test_keys_are_mixed_not_added():
    keys = [(seed, "order", step) for seed in range(20) for step in range(20)]
    assert len({draw(*key) for key in keys}) == len(keys)
    assert draw(1, "order", 5) != draw(2, "order", 4)
    assert draw(1, "order", 5) != draw(1, "dropout", 5)
    assert draw(1, "a", 12) != draw(1, "a", 1, 2)


def test_the_numbers_are_the_same_on_every_machine():
    assert seed_of(0, "initialise", "base.embedding.tokens.weight") == 7999396918293589586
    assert stream(0, "order", 0).integers(1000, size=5).tolist() == [282, 261, 442, 229, 871]


def test_seeds_fit_a_signed_integer():
    assert all(0 <= seed_of(seed, "x") < 2**63 for seed in range(100))
