"""The scores of a translation run on pairs that it has not seen."""

import dataclasses
import math
from pathlib import Path

from headstart.decoding.beam import Beam
from headstart.text.files import Reading
from headstart.text.pairs import read_pairs
from headstart.training.evaluate import evaluate
from headstart.training.language_scores import check_length
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.run_directory import DataConfig
from headstart.training.translating import Search, Translator
from headstart.training.translation import objective_over
from headstart.training.translation_scores import score_pairs
from headstart.training.using import Evaluation, Tell


def evaluate_translation(
    run: LoadedRun,
    data: str | Path,
    machine: Machine,
    beams: int,
    length_penalty: float,
    length: int | None,
    reading: DataConfig | None,
    tell: Tell,
) -> Evaluation:
    """The loss over a file of pairs, and the BLEU and chrF of the run's translations of their sources."""
    search = Search(beam=Beam(beams=beams, length_penalty=length_penalty))
    how = reading or run.config.data
    pairs = read_pairs(data, reading=Reading(how.encoding, how.errors), skip_bad_rows=how.skip_bad_rows)
    if pairs.skipped.counts:
        tell(pairs.skipped.summary())
    length = check_length(run, length)
    objective = objective_over(run, pairs, length)
    if objective.truncated_share:
        tell(f"{objective.truncated_share:.1%} of the pairs are cut at {length} tokens")
    values = evaluate(run.model.to(machine.device), objective, machine).values
    plain = values["cross_entropy"]
    translator = dataclasses.replace(Translator.of(run, machine), length=length)
    found = score_pairs(translator, pairs, search)
    perplexity = {"perplexity": math.exp(plain)} if plain < 709 else {}
    return Evaluation(
        {**values, **perplexity, **found.values},
        len(pairs),
        {"signatures": found.signatures, "beam": beams, "length_penalty": length_penalty},
    )
