"""Estimators for scikit-learn: a classifier of texts, and an encoder of texts for pipelines.

Constructors store; `fit` does what `headstart finetune` does, by the same loop and with the same defaults, but for one:
it learns from all rows that it is given, unless a share of them is to be held out (`valid`).

scikit-learn's own `check_estimator` looks at little where X has to be text. The tests run all of its checks on the same
estimators with numbers written out as words; those that cannot pass so are in tests/interop/test_sklearn.py, each with
its reason: texts have no columns to count, and a number is no text.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from headstart.errors import visible
from headstart.interop.kept_run import Files, kept, opened
from headstart.interop.text_input import InputError, Text, labels_of, names_of, texts_of, value_errors
from headstart.model.presets import Pooling
from headstart.text.labelled import LabelledSet
from headstart.training.budget import Budget
from headstart.training.execute import Console
from headstart.training.finetune import DEFAULT_BATCH, DEFAULT_PRESET, finetune
from headstart.training.loading import LoadedRun, load
from headstart.training.loop import LoopConfig
from headstart.training.machine import Device, Machine, Precision, choose
from headstart.training.predicting import embed, outputs_for
from headstart.training.tokenizing import DEFAULT_VOCAB

_NOT_IN_A_RUN = {"directory", "verbose"}  # parameters that do not bear on what is learned


class _OfTexts(BaseEstimator):
    """What both estimators share: X is texts, and a run is held as plain bytes."""

    run_: Files
    device: Device
    precision: Precision
    threads: int | None

    def _machine(self) -> Machine:
        return choose(self.device, self.precision, self.threads)

    def _opened(self) -> LoadedRun:
        """The model, made from the bytes when it is first needed."""
        if "_loaded" not in self.__dict__:
            self._loaded = opened(self.run_, type(self).__name__)
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False  # of numbers; two columns of texts are pairs
        return tags


class TextClassifier(ClassifierMixin, _OfTexts):
    """A Transformer that classifies texts, or pairs of texts: from scratch, or from a base that was pretrained.

    X is a list, array or Series of texts, or two columns of them for pairs; y holds any labels (text, whole numbers,
    truth values), and what `classes_` and `predict` give is of their type. An empty text is a text; a missing one, a
    number, or labels of one class only are a ValueError that names the place. The same rows, parameters and seed give
    the same model. Stored with others, as scikit-learn's estimators are, it is bytes (weights as safetensors, settings,
    tokenizer) and no model; the model is made of them when it is first needed.

    Parameters
    ----------
    start
        "scratch", or the directory of a run to take base and tokenizer from.
    preset, overrides
        The shape of a base from scratch, and fields of it to change, such as {"width": 64, "depth": 2}.
    epochs, steps
        How long to learn: passes over the rows (default: 10), or updates of the weights.
    learning_rate
        Peak rate (default: 1e-3 from scratch, 3e-4 from a start).
    batch, length
        Texts in a step; tokens of the longest text (default: the context).
    vocab
        Tokens of the tokenizer that is trained on the texts, from scratch.
    pooling
        How one vector is made of a text: "last", "mean" or "first" (default: last if causal, first with
        BERT's pooler, else mean).
    freeze
        "base" lets the head alone learn, from a start.
    valid
        Share of the rows to hold out and measure by (default: none, all are learned from).
    patience, evaluate_every
        With `valid`: evaluations without a better one after which to stop, and the steps between two.
    seed
        Of the first weights, the order and dropout.
    threads, device, precision
        What to compute with (default: all cores, a GPU where there is one).
    directory
        Where the runs are kept, one for each set of rows and parameters; a fit that was interrupted goes on, one that
        is finished is only read (default: a temporary place).
    verbose
        Tell on standard error what happens.
    """

    def __init__(
        self,
        start: str | Path = "scratch",
        *,
        preset: str = DEFAULT_PRESET,
        overrides: dict[str, Any] | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        learning_rate: float | None = None,
        batch: int = DEFAULT_BATCH,
        length: int | None = None,
        vocab: int = DEFAULT_VOCAB,
        pooling: Pooling | None = None,
        freeze: Literal["nothing", "base"] = "nothing",
        valid: float | None = None,
        patience: int = 0,
        evaluate_every: int = 0,
        seed: int = 0,
        threads: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        directory: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.start = start
        self.preset = preset
        self.overrides = overrides
        self.epochs = epochs
        self.steps = steps
        self.learning_rate = learning_rate
        self.batch = batch
        self.length = length
        self.vocab = vocab
        self.pooling = pooling
        self.freeze = freeze
        self.valid = valid
        self.patience = patience
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.threads = threads
        self.device = device
        self.precision = precision
        self.directory = directory
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "TextClassifier":
        """Learn from texts and their labels."""
        texts = texts_of(X)
        y = labels_of(y, texts, type(self).__name__)
        try:
            classes, ids = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise InputError(
                f"labels that cannot be told apart ({error})", fix="give one type of labels"
            ) from error
        if len(classes) < 2:
            raise InputError(
                f"all {len(texts)} texts are of one class, {classes[0]!r}",
                fix="give rows of at least 2 classes",
            )
        names = names_of(classes)
        rows = _labelled(texts, [names[number] for number in ids])
        with value_errors(), _as_before():
            if self.directory is not None:
                place = Path(self.directory) / f"fit-{self._key(rows)}"
                self.result_, run = self._carried_out(rows, place)
            else:
                with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
                    self.result_, run = self._carried_out(rows, Path(folder))
        self.classes_ = classes
        self.run_ = kept(run)
        self._loaded = run
        return self

    def _carried_out(self, rows: LabelledSet, place: Path) -> tuple[dict[str, Any], LoadedRun]:
        """The same as `headstart finetune`, on rows that are in memory."""
        result = finetune(
            rows, out=place, valid_share=self.valid or 0.0, start=None if self.start == "scratch" else self.start,
            preset_name=self.preset, overrides=self.overrides, vocab=self.vocab, pooling=self.pooling,
            freeze=self.freeze, budget=Budget(steps=self.steps, epochs=self.epochs), length=self.length,
            batch=self.batch, learning_rate=self.learning_rate, machine=self._machine(),
            loop=LoopConfig(seed=self.seed, patience=self.patience, evaluate_every=self.evaluate_every),
            console=Console(_tell) if self.verbose else Console(),
        )  # fmt: skip
        return result, load(place)

    def _key(self, rows: LabelledSet) -> str:
        settings = {
            key: value for key, value in self.get_params(deep=False).items() if key not in _NOT_IN_A_RUN
        }
        content = json.dumps([settings, rows.fingerprint], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: (texts, classes)."""
        check_is_fitted(self)
        texts, run, machine = texts_of(X), self._opened(), self._machine()
        with value_errors(), _as_before():
            machine.prepare()
            found = np.stack([outputs for outputs, _ in outputs_for(run, texts, machine)]).astype(np.float64)
        # The run has its classes in the order of their names, which is another one for some numbers.
        found = found[:, [run.config.labels.index(name) for name in names_of(self.classes_)]]
        return found / found.sum(axis=1, keepdims=True)  # single precision sums to 1 in 7 digits only

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each text."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class TextEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _OfTexts):
    """Contextual vectors of texts from a run's base: what comes before a LogisticRegression in a pipeline.

    X is as for TextClassifier. `fit` looks at the texts only to refuse what is none; it reads the run, which is then
    part of the estimator, as bytes, wherever that is stored.

    Parameters
    ----------
    run
        A run's directory: pretrained, fine-tuned or imported.
    pool
        One vector for each text: the "mean" over its tokens, or that of the "first" or "last".
    threads, device, precision
        What to compute with (default: all cores, a GPU where there is one).
    """

    def __init__(
        self,
        run: str | Path,
        *,
        pool: Literal["mean", "first", "last"] = "mean",
        threads: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
    ) -> None:
        self.run = run
        self.pool = pool
        self.threads = threads
        self.device = device
        self.precision = precision

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # texts have none
        return tags

    def fit(self, X: Any, y: Any = None) -> "TextEncoder":
        """Read the run; nothing is learned from the texts."""
        texts_of(X)
        if self.pool not in ("mean", "first", "last"):
            raise InputError(f"pool is {self.pool!r}", fix='give "mean", "first" or "last"')
        with value_errors():
            run = load(self.run)
            self.run_ = kept(run)
        self._loaded = run
        self._n_features_out = run.config.model.width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The vectors: (texts, width)."""
        check_is_fitted(self)
        texts, run, machine = texts_of(X), self._opened(), self._machine()
        with value_errors(), _as_before():
            machine.prepare()
            return np.stack([found.vectors for found in embed(run, texts, machine, self.pool)])


def _labelled(texts: Sequence[Text], labels: Sequence[str]) -> LabelledSet:
    firsts = [text if isinstance(text, str) else text[0] for text in texts]
    seconds = [text[1] for text in texts if not isinstance(text, str)]
    places = [f"X[{row}]" for row in range(len(texts))]
    return LabelledSet("X", "classification", firsts, list(labels), places, seconds or None)


def _tell(line: str) -> None:
    print(visible(line), file=sys.stderr)


@contextmanager
def _as_before() -> Iterator[None]:
    """Leave torch as it was: what it does by default belongs to whoever calls an estimator."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    randomness = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        torch.set_rng_state(randomness)
