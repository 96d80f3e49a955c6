"""Estimators for scikit-learn: a classifier of texts, and an encoder of texts for pipelines.

Constructors store; `fit` does what `headstart finetune` does, by the same loop and with the same defaults, but for one:
it learns from all rows that it is given, unless a share of them is to be held out (`valid`). The tests run all of
scikit-learn's `check_estimator`, with numbers written out as words.
"""

import dataclasses
import hashlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from headstart.config.reading import Reading
from headstart.config.schema import fields_of
from headstart.config.training import FinetuneSettings, TranslationOptions
from headstart.data.labelled import LabelledSet
from headstart.errors import IntegrityError, UserError, visible
from headstart.inference.predict import Text, embed, outputs_for
from headstart.interop.text_input import (
    InputError,
    TextColumn,
    labels_of,
    names_of,
    refuse_labels_as_texts,
    texts_of,
    value_errors,
)
from headstart.machine import Device, Machine, Precision, choose
from headstart.runs.directory import RunDirectory, RunResult, config_bytes, with_config
from headstart.runs.load import LoadedRun, load
from headstart.storage import checksummed_json
from headstart.training.fit import Console
from headstart.training.tasks.finetune import finetune

Files = dict[str, bytes]
_NOT_IN_A_RUN = {"directory", "verbose", "text_column"}  # parameters that do not change what is learned

# Parameters of the classifier that are not settings of a fine-tuning.
_OWN: dict[str, Any] = {
    "model": None, "valid": None, "threads": None, "device": "auto", "precision": "auto", "directory": None,
    "verbose": False, "text_column": None,
}  # fmt: skip
_OWN_TYPES: dict[str, Any] = {
    "model": dict[str, object] | None, "valid": float | None, "threads": int | None, "device": Device,
    "precision": Precision, "directory": str | Path | None, "verbose": bool, "text_column": TextColumn,
}  # fmt: skip

# X and y are given, and are no translation: what is about files, pairs of languages and parts of rows is left out.
_ELSEWHERE = {*Reading.names(), *TranslationOptions.names(), "batch_tokens", "labels", "labels_seed", "valid_bleu"}
_SETTINGS = {
    # None where nothing is given, or where the default is a list: scikit-learn wants what never changes.
    name: None if setting.is_unset(setting.default) or setting.default == [] else setting.default
    for name, setting in fields_of(FinetuneSettings).items()
    if name not in {*_ELSEWHERE, "valid_share", "task", "tokenizer"}
} | _OWN
_TYPES = {name: setting.type | None for name, setting in fields_of(FinetuneSettings).items()} | _OWN_TYPES


class _OfTexts(BaseEstimator):
    """What both estimators share: X is texts, and a run is kept as plain bytes."""

    run_: Files
    text_column: TextColumn
    device: Device
    precision: Precision
    threads: int | None

    def _machine(self) -> Machine:
        return choose(self.device, self.precision, self.threads)

    def _computed(self, X: Any, compute: Callable[[LoadedRun, list[Text], Machine], np.ndarray]) -> np.ndarray:
        """What the run gives for the texts; its model is made from the bytes when it is first needed."""
        check_is_fitted(self)
        texts, machine = texts_of(X, self.text_column), self._machine()
        if "_loaded" not in self.__dict__:
            self._loaded = opened(self.run_, type(self).__name__)
        with value_errors(), _as_before():
            machine.prepare()
            return compute(self._loaded, texts, machine)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False  # of numbers; two columns of texts are pairs
        return tags


class TextClassifier(ClassifierMixin, _OfTexts):
    """A Transformer that classifies texts, or pairs of texts: from scratch, or from a base that was pretrained.

    X is a list, array or Series of texts, or two columns of them for pairs; or a table, whose column of texts
    `text_column` names. A column of X that is y is refused. y holds any labels (text, whole numbers,
    truth values), and what `classes_` and `predict` give is of their type. An empty text is a text; a missing one, a
    number, or labels of one class only are a ValueError that names the row. The same rows, parameters and seed give
    the same model. Stored with others, as scikit-learn's estimators are, it is bytes (weights as safetensors, settings,
    tokenizer) and no model; the model is made of them when it is first needed.

    The parameters are the settings of `headstart finetune` (see `headstart.config.training.FinetuneSettings`), with
    the same defaults; and besides them:

    Parameters
    ----------
    model
        Fields of the base from scratch, such as {"width": 64, "depth": 2}, instead of the preset's.
    valid
        Share of the rows to hold out and evaluate on (default: none, all are learned from).
    threads, device, precision
        What to compute with (default: all cores, a GPU where there is one).
    directory
        Where the runs are kept, one for each set of rows and parameters; a fit that was interrupted resumes, one that
        is finished is only read (default: a temporary directory).
    verbose
        Log to standard error.
    text_column
        The column of X that holds the texts, where X is a table; two for pairs.
    """

    def __init__(self, start: str | Path = "scratch", **given: Any) -> None:
        if unknown := set(given) - set(_SETTINGS):
            raise TypeError(f"unknown parameters {', '.join(sorted(unknown))}")
        self.__dict__.update({**_SETTINGS, **given, "start": start})

    # scikit-learn reads the parameters from the constructor's signature.
    __init__.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        *list(inspect.signature(__init__).parameters.values())[:2],
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=_TYPES[name])
          for name, value in _SETTINGS.items() if name != "start"),
    ])  # fmt: skip

    def fit(self, X: Sized, y: Sized) -> "TextClassifier":
        """Learn from texts and their labels."""
        texts = texts_of(X, self.text_column)
        y = labels_of(y, texts, type(self).__name__)
        refuse_labels_as_texts(texts, y)
        try:
            classes, ids = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise InputError(f"labels that cannot be told apart ({error})", fix="give one type of labels") from error
        if len(classes) < 2:
            what = f"all {len(texts)} texts are of one class, {classes[0]!r}"
            raise InputError(what, fix="give rows of at least 2 classes", code="too-few")
        names = names_of(classes)
        firsts = [text if isinstance(text, str) else text[0] for text in texts]
        seconds = [text[1] for text in texts if not isinstance(text, str)]
        locations, labels = [f"X[{row}]" for row in range(len(texts))], [names[number] for number in ids]
        rows = LabelledSet("X", "classification", firsts, labels, locations, seconds or None)
        with value_errors(), _as_before():
            if self.directory is not None:
                self.result_, run = self._fine_tuned(rows, Path(self.directory) / f"fit-{self._key(rows)}")
            else:
                with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
                    self.result_, run = self._fine_tuned(rows, Path(folder))
        self.classes_, self.run_, self._loaded = classes, kept(run), run
        return self

    def _fine_tuned(self, rows: LabelledSet, out: Path) -> tuple[RunResult, LoadedRun]:
        """The same as `headstart finetune`, on rows that are in memory."""
        given = self.get_params(deep=False)
        own = {name: given.pop(name) for name in _OWN if name != "model"}
        console = Console(lambda line: print(visible(line), file=sys.stderr)) if self.verbose else Console()
        share, machine = own["valid"] or 0.0, self._machine()
        result = finetune(rows, out=out, valid_share=share, machine=machine, console=console, **given)
        return result, load(out)

    def _key(self, rows: LabelledSet) -> str:
        given = self.get_params(deep=False)
        settings = {key: value for key, value in given.items() if key not in _NOT_IN_A_RUN}
        content = json.dumps([settings, rows.fingerprint], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def predict_proba(self, X: Sized) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: (texts, classes)."""

        def probabilities(run: LoadedRun, texts: list[Text], machine: Machine) -> np.ndarray:
            outputs = np.array([outputs for outputs, _ in outputs_for(run, texts, machine)], np.float64)
            # The run has its classes in the order of their names, which is another one for some numbers.
            return outputs[:, [run.config.label_names.index(name) for name in names_of(self.classes_)]]

        given = self._computed(X, probabilities)
        return given / given.sum(axis=1, keepdims=True)  # single precision sums to 1 in 7 digits only

    def predict(self, X: Sized) -> np.ndarray:
        """The likeliest class of each text."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


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
    text_column
        The column of X that holds the texts, where X is a table; two for pairs.
    threads, device, precision
        What to compute with (default: all cores, a GPU where there is one).
    """

    def __init__(
        self,
        run: str | Path,
        *,
        pool: Literal["mean", "first", "last"] = "mean",
        text_column: TextColumn = None,
        threads: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
    ) -> None:
        self.run, self.pool, self.text_column = run, pool, text_column
        self.threads, self.device, self.precision = threads, device, precision

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # texts have none
        return tags

    def fit(self, X: Sized, y: Sized | None = None) -> "TextEncoder":
        """Read the run; nothing is learned from the texts."""
        texts_of(X, self.text_column)
        if self.pool not in ("mean", "first", "last"):
            raise InputError(f"pool is {self.pool!r}", fix='give "mean", "first" or "last"')
        with value_errors():
            run = load(self.run)
            self.run_ = kept(run)
        self._loaded = run
        self._n_features_out = run.config.model.width
        return self

    def transform(self, X: Sized) -> np.ndarray:
        """The vectors: (texts, width)."""

        def vectors(run: LoadedRun, texts: list[Text], machine: Machine) -> np.ndarray:
            return np.stack([one.vectors for one in embed(run, texts, machine, self.pool)])

        return self._computed(X, vectors)


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


# ---- a run as plain bytes -----------------------------------------------------------------------------------


def kept(run: LoadedRun) -> Files:
    """A run as plain bytes: the files of its directory by their names; what opens them checks them as any run's."""
    if run.target_tokenizer is not None:
        what = "has two tokenizers: it translates"
        raise UserError(what, where=run.path, fix="give a run of one text", code="wrong-run")
    weights = {name: p.detach().cpu().contiguous() for name, p in run.model.named_parameters()}
    result = {"objective": run.config.objective, "step": run.step, "steps": run.step, "weights_sha256": run.digest}
    names = RunDirectory(".")
    return {
        names.config_file.name: config_bytes(run.config),
        names.tokenizer_file.name: json.dumps(run.tokenizer.spec, ensure_ascii=False).encode(),
        names.weights_file.name: save(weights),
        names.result_file.name: checksummed_json.dump(with_config(result, run.config)),
    }


def opened(files: Files, name: str) -> LoadedRun:
    """The run of these files; messages call it by this name."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        run = RunDirectory(folder)
        for path in (run.config_file, run.tokenizer_file, run.weights_file, run.result_file):
            if path.name not in files:
                raise IntegrityError(f"{path.name} is missing", where=name, fix="fit it again", code="missing")
            path.write_bytes(files[path.name])
        return dataclasses.replace(load(folder), path=Path(name))
