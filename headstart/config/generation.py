"""How text is written: one configuration for generation, translation and the evaluation of translations."""

from typing import Annotated

from headstart.config.schema import COUNT, POSITIVE, Bound, Settings
from headstart.errors import UserError

MOST_TOKENS, MOST_TEXTS, MOST_BEAM = 100_000, 100, 1_000
BEAM = 5  # of a translation

# Logits are divided by the temperature, and summed probabilities compared with top_p, in fp32.
LEAST_TEMPERATURE = LEAST_TOP_P = 1e-6
MOST_TEMPERATURE = 1e6


class Seed(Settings):
    """Randomness."""

    seed: Annotated[int, Bound(-(2**63), 2**63 - 1)] = 0
    """The seed that all randomness is derived from."""


class BeamSearch(Settings):
    """The search for the most probable text."""

    beam: Annotated[int, Bound(1, MOST_BEAM)] | None = None
    """Search for the most probable text with this many hypotheses (1: greedy)."""

    # Beyond 10 the length alone would decide, and its powers leave the range of a float.
    length_penalty: Annotated[float, Bound(-10, 10)] = 1.0
    """Exponent of the length in a beam's scores: 0 favours short texts, 1 ranks by the mean over the tokens."""


class GenerationConfig(BeamSearch, Seed):
    """How the next token is chosen, and when a text ends; the default is greedy."""

    count: Annotated[int, Bound(1, MOST_BEAM)] = 1
    """Number of texts: independent samples, or the best of the beam."""

    temperature: Annotated[float, Bound(0, MOST_TEMPERATURE)] = 0.0
    """Sampling temperature: above 1 flatter, below 1 sharper; 0 always takes the most probable token."""

    top_k: Annotated[int, POSITIVE] | None = None
    """Sample from the k most probable tokens only."""

    top_p: Annotated[float, Bound(LEAST_TOP_P, 1)] | None = None
    """Sample from the most probable tokens that together reach this probability only (1: all tokens)."""

    min_tokens: Annotated[int, Bound(0, MOST_TOKENS)] = 0
    """Fewest tokens to write."""

    max_tokens: Annotated[int, Bound(1, MOST_TOKENS)] | None = None
    """Most tokens to write (default: 200; in a translation by the length of its source)."""

    # Of 18,000 pairs of three data sets, in both directions, no translation is longer.
    max_length_ratio: Annotated[float, Bound(0, MOST_TOKENS)] = 1.5
    """Translation: most tokens to write for each one of the source."""

    max_length_extra: Annotated[int, Bound(1, MOST_TOKENS)] = 10
    """Translation: most tokens to write on top of these."""

    no_repeat: Annotated[int, COUNT] = 0
    """Never write the same sequence of this many tokens twice (0: allow repeats)."""

    def most_tokens(self, source_tokens: int) -> int:
        """The most tokens of the translation of so many."""
        by_source = int(self.max_length_ratio * source_tokens) + self.max_length_extra
        return self.max_tokens or max(self.min_tokens, by_source)

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.beam or MOST_TEXTS
        if not 1 <= self.count <= most:
            of_beam = f" of a beam of {self.beam}" if self.beam else ""
            raise UserError(f"count is {self.count:,}{of_beam}", fix=f"give 1 to {most}")
        if 0 < self.temperature < LEAST_TEMPERATURE:
            fix = f"give 0 (always the most probable token), or {LEAST_TEMPERATURE:g} or more"
            raise UserError(f"temperature is {self.temperature:g}", fix=fix)
        if self.temperature and (self.beam or 1) > 1:
            what = f"a temperature of {self.temperature} with a beam of {self.beam}"
            raise UserError(what, fix="give one of them", code="conflict")
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            what = f"max_tokens is {self.max_tokens:,}, min_tokens {self.min_tokens:,}"
            raise UserError(what, fix="give max_tokens no less than min_tokens", code="conflict")


# What `generate` and `translate` do unless something else is given.
SAMPLED = GenerationConfig(temperature=0.8, top_p=0.95)
BEAM_OF_FIVE = GenerationConfig(beam=BEAM)
