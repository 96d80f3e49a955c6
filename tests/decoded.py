"""What a search writes after each prompt, as lists of tokens."""

from headstart.config.generation import GenerationConfig
from headstart.inference.decoding.sampling import NO_TOKEN
from headstart.inference.decoding.search import DecodingLimits, decode


def continuations(steps, count, end=NO_TOKEN):
    """The tokens of the steps of `decode` for each of the prompts, without the end."""
    written = [[] for _ in range(count)]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            if token != end:
                written[row].append(token)
    return written


def write(reader, prompts, config=None, *, max_tokens, end=NO_TOKEN, never=(), **options):
    """What `decode` writes with the same limit for every prompt."""
    limits = DecodingLimits(end=end, max_tokens=[max_tokens] * len(prompts), never=never)
    return continuations(decode(reader, prompts, limits, config or GenerationConfig(), **options), len(prompts), end)
