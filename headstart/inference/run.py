"""A run in Python: what it predicts, writes, knows and attends to, each by one call. `headstart.load` gives it."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headstart.config.generation import BEAM_OF_FIVE, SAMPLED, BeamSearch, GenerationConfig
from headstart.config.reading import Reading
from headstart.config.run import RunConfig
from headstart.config.schema import fields_of, settings, takes
from headstart.data.in_memory import Given
from headstart.errors import Log, UserError
from headstart.inference.attention_maps import AttentionMaps, attention_of
from headstart.inference.evaluate import Evaluation, evaluate_run
from headstart.inference.generate import generate
from headstart.inference.predict import Text, embed, outputs_for, predict
from headstart.inference.translate import Translated, Translator, texts_of
from headstart.machine import Device, Machine, Precision, choose
from headstart.runs.load import LoadedRun
from headstart.runs.study_model import StudyModel, StudyModelConfig, run_of
from headstart.runs.study_model import load as load_model

_READING = fields_of(Reading, BeamSearch).values()


@dataclass(frozen=True, repr=False)
class Run:
    """A trained run, or the model of a study, in memory on a machine.

    What a run cannot do is refused with what it can: a language model generates, a fine-tuned run predicts.
    """

    loaded: LoadedRun | StudyModel
    machine: Machine

    def __repr__(self) -> str:
        config, unit = self.config, "label" if len(self.labels) == 1 else "labels"
        labels = f", {len(self.labels)} {unit}" if self.labels else ""
        arm = f", the arm {config.arm}" if isinstance(config, StudyModelConfig) else ""
        return f"<Run {self.path}: {config.objective}{labels}{arm}>"

    @property
    def path(self) -> Path:
        return self.loaded.path

    @property
    def config(self) -> RunConfig | StudyModelConfig:
        """The settings that it was trained with."""
        return self.loaded.config

    @property
    def labels(self) -> list[str]:
        """The names of its classes, in the order of the probabilities."""
        return list(self.config.label_names)

    def predict(self, texts: Iterable[Text]) -> list[str] | list[list[str]] | list[float]:
        """For each text (or pair of texts) its label; its labels, or its value, where it was trained on those."""
        answers = [one.answer for one in predict(self.loaded, _several(texts), self.machine)]
        name = {"multilabel": "labels", "regression": "value"}.get(self.config.objective, "label")
        return [answer[name] for answer in answers]

    def predict_proba(self, texts: Iterable[Text]) -> np.ndarray:
        """The probability of each of `labels`, for each text: (texts, labels)."""
        if self.config.objective == "regression":
            what = "predicts a value, which has no probabilities"
            raise UserError(what, where=self.path, fix="use predict", code="wrong-run")
        found = [outputs for outputs, _ in outputs_for(self.loaded, _several(texts), self.machine)]
        return np.stack(found) if found else np.zeros((0, len(self.labels)), np.float32)

    def embed(self, texts: Iterable[Text], pool: Literal["first", "mean", "last"] = "mean") -> np.ndarray:
        """The vector of each text from the base: (texts, width)."""
        network = self._network()
        found = [one.vectors for one in embed(network, _several(texts), self.machine, pool)]
        return np.stack(found) if found else np.zeros((0, network.config.model.width), np.float32)

    @takes(fields_of(GenerationConfig).values())
    def generate(self, prompt: str = "", *, log: Log = lambda line: None, **given: Any) -> list[str]:
        """`count` continuations of a prompt (default: one), sampled unless `beam` or a `temperature` of 0 is given."""
        how = settings(GenerationConfig, given, None if given.get("beam") else SAMPLED.given())
        return [one.text for one in generate(self._network(), prompt, self.machine, how, log)]

    @takes(fields_of(GenerationConfig).values())
    def translate(self, texts: Iterable[str], **given: Any) -> list[str]:
        """The translation of each text, by beam search unless a `temperature` is given."""
        return texts_of(self.translations(texts, **given))

    @takes(fields_of(GenerationConfig).values())
    def translations(self, texts: Iterable[str], **given: Any) -> list[Translated]:
        """The same with `count` candidates for each text, best first, with their scores."""
        how = settings(GenerationConfig, given, None if given.get("temperature") else BEAM_OF_FIVE.given())
        return list(Translator.of(self._network(), self.machine).translate(_several(texts), how))

    @takes(_READING)
    def evaluate(
        self, data: Given, *, length: int | None = None, log: Log = lambda line: None, **given: Any
    ) -> Evaluation:
        """The scores on data that it has not seen: rows, pairs or a corpus, as it was trained on."""
        known = {name: given.pop(name) for name in list(given) if name in fields_of(Reading)}
        own = self.config.data.part(Reading)
        reading = dataclasses.replace(own, **settings(Reading, known).given())
        beams = dataclasses.replace(BEAM_OF_FIVE, **settings(BeamSearch, given).given())
        return evaluate_run(self.loaded, data, self.machine, length=length, generation=beams, reading=reading, log=log)

    def attention(self, text: str, *, text_b: str | None = None, target: str | None = None) -> AttentionMaps:
        """The attention weights over a text, or over a pair of them; of a translation, to `target` or its own."""
        return attention_of(self._network(), text, self.machine, text_b=text_b, target=target)

    def _network(self) -> LoadedRun:
        if isinstance(self.loaded, StudyModel):
            run_of(self.path)  # says which arm it is, and what to load instead
        assert isinstance(self.loaded, LoadedRun)
        return self.loaded


def load(
    path: str | Path, *, device: Device = "auto", precision: Precision = "auto", threads: int | None = None
) -> Run:
    """A run, finished or at its last good checkpoint, or the model of a study, ready to be used."""
    machine = choose(device, precision, threads)
    machine.prepare()
    return Run(load_model(path, machine.device), machine)


def _several(texts: Iterable[Any]) -> Sequence[Any]:
    if isinstance(texts, str):
        raise UserError("one text where several are expected", fix="give a list: [text]")
    return list(texts)
