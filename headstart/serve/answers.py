"""What is computed for a request, in a worker's thread: texts in, plain values out.

Texts that arrive together are computed together where that is quicker: those of like length, so many tokens at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headstart.decoding.beam import Beam
from headstart.decoding.search import Sampling
from headstart.serve.messages import GenerateRequest
from headstart.text.token_texts import shown_tokens
from headstart.training.finetune import outputs_of
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.predicting import Prediction, Text, answer, batched, framed
from headstart.training.token_steps import TokenStep
from headstart.training.translating import Search, Translated, Translator, aligned, cross_attention

# Tokens that are computed together: a CPU has nothing to win from more, and its caches something to lose.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 2_048, 32_768
# Texts are alike where none is longer than so many times the shortest, or none longer than so many tokens.
LIKE, SHORT_TOKENS = 1.25, 32
DIGITS = 6


def classified(run: LoadedRun, texts: Sequence[Text], machine: Machine) -> Iterator[tuple[int, Prediction]]:
    """What the run says about each text, with the text's place, the shortest first."""
    examples = framed(run, texts)
    budget = CPU_BATCH_TOKENS if machine.device.type == "cpu" else GPU_BATCH_TOKENS
    for places in alike([len(example.tokens) for example in examples], budget):
        chosen = [examples[place] for place in places]
        outputs = outputs_of(run.model, batched(run, chosen, run.config.head), machine)
        for place, example, output in zip(places, chosen, outputs, strict=True):
            yield place, Prediction(answer(run, output), example.is_truncated)


def alike(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """The places of texts of like length, in batches of so many tokens, padding counted."""
    batch: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        length = lengths[place]
        is_unlike = batch and length > max(SHORT_TOKENS, LIKE * lengths[batch[0]])
        if batch and (is_unlike or length * (len(batch) + 1) > budget):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def translated(
    translator: Translator, asked: Sequence[tuple[str, Beam]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The translation of each text, with the text's place; those that are searched for alike are so together."""
    places: dict[Beam, list[int]] = {}
    for place, (_, beam) in enumerate(asked):
        places.setdefault(beam, []).append(place)
    for beam, those in places.items():
        found = translator.translate([asked[place][0] for place in those], Search(beam=beam))
        for place, one in zip(those, found, strict=True):
            yield place, _translation(translator, one)


def _translation(translator: Translator, found: Translated) -> dict[str, Any]:
    best, words = found.candidates[0], translator.words
    source = shown_tokens(words.source, found.source_ids)
    weights = np.zeros((0, len(source)))
    if best.ids and source:
        weights = cross_attention(translator, found.source_ids, best.ids)
    pairs = aligned(weights, [not token.is_special for token in source]) if len(weights) else []
    unknown = "some of the text has no piece in the run's tokenizer, and is read as unknown"
    return {
        "text": best.text,
        "score": best.score,
        "source": [token._asdict() for token in source],
        "target": [{"text": token.text} for token in shown_tokens(words.target, best.ids)],
        "weights": np.round(weights.astype(np.float64), DIGITS).tolist(),
        "alignment": [{**pair._asdict(), "weight": round(pair.weight, DIGITS)} for pair in pairs],
        "is_cut": found.is_cut,
        "notes": [unknown] if found.has_unknown else [],
    }


def sampling_of(asked: GenerateRequest) -> Sampling:
    """How tokens are drawn, as asked."""
    return Sampling(
        temperature=asked.temperature, top_k=asked.top_k or None, top_p=asked.top_p, seed=asked.seed
    )


def token_line(step: TokenStep) -> dict[str, Any]:
    """A token that was written, as a line tells it."""
    alternatives = [one._asdict() for one in step.alternatives]
    return {
        "text": step.text,
        "token": step.token,
        "probability": step.probability,
        "alternatives": alternatives,
    }
