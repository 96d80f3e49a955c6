"""What a study computes and stores, from its settings and the sizes of its files."""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.config.defaults import PRETRAIN_BATCH_TOKENS, STUDY_EPOCHS, VALID_SHARE
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.reading import Reading
from headstart.config.study import WITHOUT_STEPS, PretrainPart, StudyConfig
from headstart.data.labelled import LabelledSet
from headstart.data.readers.documents import pieces
from headstart.data.readers.sources import weighted_path
from headstart.errors import UserError
from headstart.planning.figures import format_bytes
from headstart.planning.parameters import total
from headstart.planning.workload import BYTES_A_TOKEN, ComputePrecision, DeviceKind, Lengths, Workload, reading_of
from headstart.study.design import HEADS, Arm, arms_of, learning_rates_of

FIRST_PIECES = 300  # of a file of the corpus, to learn how long its documents are


@dataclass(frozen=True)
class Sizes:
    """What the files hold."""

    corpus_tokens: list[float]
    """Of each phase of pretraining."""

    rows: int
    text_tokens: float
    """Of a labelled text, on average."""

    valid_rows: int
    test_rows: int
    classes: int = 0
    text_quantiles: tuple[float, ...] = ()
    """Tokens of the labelled texts, from the shortest to the longest."""

    document_tokens: float = 0.0
    """Of a document of the corpus, on average over the first ones; 0: as a labelled text."""

    @classmethod
    def of(cls, config: StudyConfig, sets: Mapping[str, LabelledSet]) -> "Sizes":
        """Of the corpus by its bytes, and of the labelled rows as they are read and split."""
        tokens = [len(text.encode()) / BYTES_A_TOKEN + 2 for text in sets["train"].whole_texts]
        quantiles = tuple(np.quantile(tokens, np.linspace(0, 1, 101)).tolist())
        rows, valid, test = (len(sets[name]) for name in ("train", "valid", "test"))
        classes, mean = len(set(sets["train"].labels)), sum(tokens) / rows
        return cls(_corpus_tokens(config), rows, mean, valid, test, classes, quantiles, _document_tokens(config))

    def tokens_read(self, longest: int) -> int:
        """Of a labelled text on average, where longer ones are truncated."""
        lengths = [min(tokens, longest) for tokens in self.text_quantiles or (self.text_tokens,)]
        return max(1, round(sum(lengths) / len(lengths)))


@dataclass(frozen=True)
class Workloads:
    """The steps of a study's runs, with its settings, one model and one machine."""

    config: StudyConfig
    model: ModelConfig
    sizes: Sizes
    device: DeviceKind
    precision: ComputePrecision

    def pretraining(self, phase: PretrainPart, objective: str) -> Workload:
        head, model = HeadConfig(kind=HEADS[objective]), self.model
        length = min(phase.length or model.context, model.context)
        direction: Any = "causal" if objective == "causal" else "bidirectional"
        return Workload(
            config=dataclasses.replace(model, direction=direction), head=head,
            batch=max(1, (phase.batch_tokens or PRETRAIN_BATCH_TOKENS[self.device]) // length),
            lengths=Lengths(length), device=self.device, precision=self.precision,
            reading=reading_of(head.kind), document=max(1, round(self.sizes.document_tokens or self.sizes.text_tokens)),
            optimizer=phase.optimizer, masked_share=phase.mask_prob,
        )  # fmt: skip

    def pretraining_steps(self, phase: PretrainPart, tokens: float, work: Workload) -> int:
        """Those that are given, or that the epochs make of a corpus of so many tokens."""
        share = 1.0 if phase.valid else 1 - VALID_SHARE
        each = work.batch * work.lengths.source
        return phase.steps or max(1, round((phase.epochs or STUDY_EPOCHS) * share * tokens / each))

    def trial(self, arm: Arm) -> Workload:
        finetune, model = self.config.finetune, self.model
        if finetune.dropout is not None:
            model = dataclasses.replace(model, dropout=finetune.dropout)
        length = self.sizes.tokens_read(min(finetune.length or model.context, model.context))
        return Workload(
            config=dataclasses.replace(model, direction=arm.direction), head=HeadConfig(kind="classification"),
            batch=finetune.batch * (2 if finetune.r_drop else 1), lengths=Lengths(length), device=self.device,
            precision=self.precision, reading="padded", average=finetune.average != "none",
        )  # fmt: skip


class StudyDisk(NamedTuple):
    """Bytes of the networks' weights and checkpoints that a study has on disk: at its end, and at most before."""

    at_end: int
    at_most: int

    @classmethod
    def of(cls, config: StudyConfig, model: ModelConfig, classes: int, bases: int, jobs: int = 1) -> "StudyDisk":
        """Of so many bases, a network of each arm, and the study's model; `jobs` trials run at once."""
        networks = sum(arm.kind not in WITHOUT_STEPS or arm.kind == "frozen" for arm in arms_of(config.study))
        weights = 4 * total(model, HeadConfig(kind="classification", classes=classes))
        base = 4 * total(model, HeadConfig(kind=HEADS[config.study.objectives[0]]))
        at_end = bases * len(config.pretrain) * base + (networks + 1) * weights
        # A run has two checkpoints while one is written: the weights with AdamW's two moments, perhaps an average.
        tries, copies = len(learning_rates_of(config.finetune, model)), 3 + (config.finetune.average != "none")
        running = max(jobs * (tries + 2 * copies) * weights * bool(networks), 2 * 3 * base * bool(bases))
        return cls(at_end, at_end + running)

    @property
    def sentence(self) -> str:
        return (
            f"the weights take about {format_bytes(self.at_end)} on disk at the end, "
            f"at most {format_bytes(self.at_most)} while the study runs"
        )


def _corpus_tokens(config: StudyConfig) -> list[float]:
    phases = [[weighted_path(file)[0] for file in phase.corpus] for phase in config.pretrain]
    return [sum(map(text_bytes, paths)) / BYTES_A_TOKEN for paths in phases]


def _document_tokens(config: StudyConfig) -> float:
    """Of the first documents of all files of a corpus."""
    documents = size = 0
    for phase in config.pretrain:
        for path, _ in map(weighted_path, phase.corpus):
            reading = config.reading.part(Reading, documents=phase.documents)
            for piece in itertools.islice(pieces([path], reading), FIRST_PIECES):
                size, documents = size + len(piece.text.encode()), documents + piece.ends_document
    return size / max(1, documents) / BYTES_A_TOKEN


def text_bytes(path: str) -> int:
    """The size of a file, or of what is in a .gz by its last four bytes."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if not path.endswith(".gz") or size < 4:
                return size
            file.seek(-4, 2)
            return max(size, int.from_bytes(file.read(4), "little"))
    except IsADirectoryError:
        return sum(part.stat().st_size for part in Path(path).rglob("*") if part.is_file())
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise UserError(what, where=path, fix="check the path", code="no-file") from error
