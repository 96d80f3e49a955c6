"""What translations are worth: BLEU and chrF by sacreBLEU, each with the signature that says how it was counted."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headstart.model.model import Model
from headstart.objectives.translation import Translation
from headstart.text.pairs import PairedSet
from headstart.training.machine import Machine
from headstart.training.translating import Search, Translator, texts_of


class TranslationScores(NamedTuple):
    """Scores from 0 to 100, as the field gives them, over texts as they are: cased, not tokenised."""

    values: dict[str, float]
    signatures: dict[str, str]


def bleu_and_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Corpus BLEU and chrF against one reference each."""
    from sacrebleu.metrics import BLEU, CHRF

    values, signatures = {}, {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        values[name] = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
        signatures[name] = str(metric.get_signature())
    return TranslationScores(values, signatures)


def score_pairs(translator: Translator, pairs: PairedSet, search: Search) -> TranslationScores:
    """Translate the sources of a set and compare with its targets."""
    return bleu_and_chrf(texts_of(translator.translate(pairs.sources, search)), pairs.targets)


class MeasuredTranslation(Translation):
    """The objective over a set that is measured by its translations too, whenever it is evaluated."""

    def __init__(self, known: Translation, measure: Callable[[Model], TranslationScores]) -> None:
        vars(self).update(vars(known))  # the same pairs, and none of them is read again
        self._measure = measure

    def whole_scores(self, model: Model, machine: Machine) -> dict[str, float]:
        """BLEU and chrF of the model as it is."""
        return self._measure(model).values
