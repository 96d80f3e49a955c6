"""The settings of trainings, each declared once: pretraining, fine-tuning, translation."""

import re
from typing import Annotated, Literal

from headstart.config.defaults import MASK_PROB, VALID_SHARE
from headstart.config.generation import BEAM, BeamSearch, Seed
from headstart.config.model import MOST_LENGTH, PoolingChoice
from headstart.config.reading import Reading
from headstart.config.schema import BELOW_ONE, COUNT, POSITIVE, SHARE, Bound, Settings, field
from headstart.errors import UserError

# What these tasks have where nothing is given.
PRETRAIN_DEFAULTS = {"schedule": "cosine", "warmup": 0.05}
TRANSLATION_DEFAULTS = {"schedule": "inverse-sqrt"}

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
Shard = Literal["auto", "never", "always"]
OptimizerName = Literal["adamw", "muon", "muon-split"]
ScheduleName = Literal["linear", "cosine", "constant", "inverse-sqrt"]
AverageName = Literal["none", "ema", "tail"]
Normalisation = Literal["lower-case", "apostrophes"]
PretrainObjective = Literal["causal", "masked", "masked-nsp"]
Task = Literal["classification", "multilabel", "regression", "translation"]
StartInto = Literal["", "encoder", "decoder", "both"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "char"]

# What a process can start, a tokenizer's trainer take, and a step count in 64 bits.
MOST_THREADS, MOST_PIECES, MOST_EPOCHS, MOST_BATCH = 1_024, 10**6, 1e6, 10**8
WEIGHT = Bound(0, 1_000, is_open=True)  # of a file of the corpus


# ---- parts that trainings share ---------------------------------------------------------------------------


class Computing(Settings):
    """How to compute."""

    precision: Precision = "auto"
    """Compute precision; auto looks at the device first."""

    threads: Annotated[int, Bound(1, MOST_THREADS)] = field(0, identity=False)
    """CPU threads (default: all cores)."""

    fast: bool = field(False, identity=False)
    """Give up bit-exact repetition on a GPU for faster kernels; on a CPU there is nothing to give up."""


class MachineConfig(Computing):
    """Where and how to compute."""

    device: Device = field("auto", identity=False)
    """Where to compute."""

    shard: Shard = field("auto", identity=False)
    """With several ranks (torchrun): shard the model over them; auto: if it does not fit on one."""


class OptimizerConfig(Settings):
    """How the weights learn."""

    optimizer: OptimizerName = "adamw"
    """AdamW, or Muon for the matrices of the blocks and AdamW for the rest. muon-split treats matrices that share a
    tensor (queries, keys and values; gate and input) separately."""

    learning_rate: Annotated[float, Bound(0, 100, is_open=True)] = 0.0
    """Peak learning rate of AdamW (default: by the width alone; in fine-tuning 1e-3 at 128 and 1e-4 at 768, from any
    start)."""

    muon_lr: Annotated[float, Bound(0, 100, is_open=True)] = 0.005
    """Peak learning rate of Muon."""

    weight_decay: Annotated[float, Bound(0, 100)] = 0.01
    """Weight decay of matrices; biases, norms and embeddings have none."""

    betas: Annotated[tuple[float, float], BELOW_ONE] = (0.9, 0.98)
    """AdamW betas."""

    layer_decay: Annotated[float, Bound(0, 1, is_open=True)] = 1.0
    """Multiply the learning rate by this for each layer further down (1: the same for all)."""


def seconds_in(duration: str) -> float:
    """Of `2h`, `90m`, `45s`, `3d` or `1h30m`."""
    parts = re.findall(r"([\d.]+)\s*([dhms])", duration.strip().lower())
    whole = "".join(f"{number}{unit}" for number, unit in parts)
    try:
        seconds = sum(float(n) * {"d": 86_400, "h": 3_600, "m": 60, "s": 1}[unit] for n, unit in parts)
    except ValueError:
        seconds = 0.0
    if whole != re.sub(r"\s", "", duration.lower()) or not 0 < seconds < float("inf"):
        raise UserError(f"a time of {duration!r}", fix="give a time such as 2h, 90m or 1h30m")
    return seconds


class TimeLimit(Settings):
    """How long it may take."""

    time: str = field("", identity=False)
    """Train for this long, such as 90s, 30m or 2h: some steps are timed first, and as many are trained as fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time:
            seconds_in(self.time)


class Duration(TimeLimit):
    """How long to train: at most one of the three."""

    steps: Annotated[int, POSITIVE] = field(0, identity=False)
    """Updates of the weights. More than a finished run has extends it."""

    epochs: Annotated[float, Bound(0, MOST_EPOCHS, is_open=True)] = field(0.0, identity=False)
    """Passes over the data, instead of steps (default: 10 in fine-tuning; in pretraining 1, or with the recipe's shape
    as many as pay, in half an hour at most)."""


class Schedule(Settings):
    """The learning rate over the steps."""

    schedule: ScheduleName = "linear"
    """Learning rate schedule after the warm-up (default: linear; cosine in pretraining, inverse-sqrt in
    translation)."""

    warmup: Annotated[float, SHARE] = 0.1
    """Share of the steps to warm up over (default: 0.1; 0.05 in pretraining)."""

    cooldown: Annotated[float, SHARE] = 0.2
    """Share of the steps over which a constant schedule decays at the end."""


class Averaging(Settings):
    """Averages of the weights."""

    average: AverageName = "none"
    """Weights to evaluate and to end with: the last ones, an exponential moving average, or the mean over the last
    fifth of the steps."""

    average_decay: Annotated[float, BELOW_ONE] = 0.999
    """Decay of the moving average."""


class LoopConfig(Duration, Schedule, Averaging, Seed):
    """How the loop runs."""

    accumulate: Annotated[int, Bound(1, MOST_BATCH)] = 1
    """Micro-batches that a batch is split into, to save memory; the result differs by rounding only."""

    clip: Annotated[float, Bound()] = 1.0
    """Clip the gradient norm to this (0: never)."""

    evaluate_every: Annotated[int, COUNT] = 0
    """Steps between evaluations on valid (0: at the end only)."""

    patience: Annotated[int, COUNT] = 0
    """Early stopping: evaluations without improvement before stopping and restoring the best (0: never)."""

    best_metric: str = "loss"
    """The metric on valid that patience looks at: loss, or another one of the objective, such as macro_f1."""

    unfreeze_every: Annotated[int, COUNT] = 0
    """Steps after which one more block is unfrozen, from the top down (0: all train from the start)."""

    spike_factor: Annotated[float, Bound()] = 0.0
    """Skip an update whose loss is this many times the median of the last 32 (0: never)."""

    skip_limit: Annotated[int, POSITIVE] = 5
    """Updates in a row that may be skipped for a non-finite loss or gradient before the run fails."""

    save_every: Annotated[int, COUNT] = field(0, identity=False)
    """Steps between checkpoints, besides those by the clock (0: none)."""

    save_every_seconds: Annotated[float, Bound()] = field(60.0, identity=False)
    """Seconds between checkpoints."""

    keep: Annotated[int, COUNT] = field(2, identity=False)
    """Checkpoints to keep (0: none once the run is finished, so that it cannot be extended)."""


class Masking(Settings):
    """What the masked objectives hide: BERT's 15 %, of which 80 % become the mask token."""

    mask_prob: Annotated[float, Bound(0, 1, is_open=True)] = MASK_PROB
    """Share of the tokens to predict."""

    mask_random: Annotated[float, SHARE] = 0.1
    """Share of those that are replaced by a random token."""

    mask_kept: Annotated[float, SHARE] = 0.1
    """Share of those that stay unchanged; the rest become the mask token."""

    whole_words: bool = False
    """Mask whole words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_prob == 1 or self.mask_random + self.mask_kept > 1:
            what = f"mask_prob is {self.mask_prob}, mask_random {self.mask_random}, mask_kept {self.mask_kept}"
            fix = "give --mask-prob below 1, and --mask-random and --mask-kept that add up to at most 1"
            raise UserError(what, fix=fix)

    @property
    def mask_token_share(self) -> float:
        """Share of the hidden tokens that become the mask token."""
        return round(1 - self.mask_random - self.mask_kept, 9)


class EmbeddingInit(Settings):
    """How the token embedding starts."""

    embedding_init: Literal["random", "cooccurrence"] = "random"
    """First token vectors: random ones, or by how often tokens occur near each other in the corpus."""


class TokenizerConfig(Settings):
    """The tokenizer of a run that has no start."""

    tokenizer: str = ""
    """A tokenizer's directory (default: one is trained on the text and kept in the run)."""

    vocab: Annotated[int, Bound(1, MOST_PIECES)] = 8_000
    """Tokens of a tokenizer that is trained now."""

    normalise: list[Normalisation] = field([])
    """Normalisation of a tokenizer that is trained now: lower-case, apostrophes (all straight), or both."""


class TextLength(Settings):
    """How much of a text is read at once."""

    length: Annotated[int, Bound(1, MOST_LENGTH)] = 0
    """Tokens of a block, or of the longest text; longer ones are truncated (default: the context)."""


class BatchTokens(Settings):
    """Batches that are counted in tokens."""

    batch_tokens: Annotated[int, Bound(1, MOST_BATCH)] = 0
    """Tokens in a batch (default: 1,024 on a CPU and 65,536 on a GPU; in translation, padding included, 2,048 and
    16,384)."""


class BatchSize(Settings):
    """Batches that are counted in examples, and how often each example is read."""

    batch: Annotated[int, Bound(1, MOST_BATCH)] = 16
    """Texts in a batch (translation has --batch-tokens)."""

    r_drop: Annotated[float, Bound(0, 100)] = 0.0
    """R-Drop: weight of the divergence between two passes with different dropout (0: one pass). Takes twice the time;
    give --dropout with it."""


class ClassWeighting(Settings):
    """What the classes count for."""

    class_weights: Literal["none", "balanced"] = "none"
    """Class weights in the training loss: none, or balanced, by which each class counts as much as any other, however
    rare it is (as scikit-learn's class_weight)."""


class Freezing(Settings):
    """What a run learns, and from where."""

    freeze: Literal["nothing", "base"] = "nothing"
    """What keeps its weights: nothing, or the base, so that the head alone is trained."""

    initial_seed: Annotated[int, Bound(-1, 2**63 - 1)] = -1
    """The seed of the initial weights (-1: the seed)."""


class LabelSubset(Settings):
    """Which of the labelled rows are used."""

    labels: Annotated[int, POSITIVE] = 0
    """Labelled rows, or pairs, to use: a nested, stratified subset (default: all)."""

    labels_seed: Annotated[int, Bound(-1, 2**63 - 1)] = -1
    """The seed that chooses them (-1: the seed)."""


class Shuffling(Settings):
    """A control."""

    shuffled: bool = False
    """Shuffle the tokens of the corpus: a control that cannot learn language."""


class ValidFile(Settings):
    """What to evaluate on."""

    valid: str = ""
    """Data to evaluate on and to choose by (default: a tenth of the training data, by the hash of the text)."""


class CorpusFiles(ValidFile):
    """What to pretrain on."""

    corpus: list[str] = field([])
    """Unlabelled text: .txt, .jsonl, .csv, .tsv or .parquet, also .gz; or the folder of a dataset. FILE=2 repeats each
    block of that file (or pair of sentences) twice an epoch, FILE=0.5 takes half of its blocks, and in the next epoch
    the other half."""


class LabelledFiles(ValidFile):
    """What to fine-tune and to test on."""

    train: str = ""
    """Labelled rows: .jsonl, .csv, .tsv, .parquet, lines with a .label file beside them, or the folder of a dataset
    (parquet, or what Dataset.save_to_disk wrote), whose splits are taken by their names. For translation pairs: a .tsv
    of two columns without header or quoting, or a table with source and target."""

    test: str = ""
    """Labelled rows to test on at the end."""


class TranslationOptions(BeamSearch, defaults={"beam": BEAM}):
    """What only a translation has."""

    start_into: StartInto = ""
    """What the single stack of a pretrained start becomes: encoder, decoder or both (default: the encoder)."""

    vocabularies: Literal["joint", "separate"] = "joint"
    """One tokenizer for both sides, or one for each."""

    target_tokenizer: str = ""
    """The target's own tokenizer (--tokenizer is then the source's)."""

    label_smoothing: Annotated[float, BELOW_ONE] = 0.1
    """Label smoothing: the share of the probability that is spread evenly over all tokens."""


class Start(Settings):
    """Where the weights come from."""

    start: str = "scratch"
    """scratch, or a run to take the base and the tokenizer from."""


class Preset(Settings):
    """What a base from scratch is."""

    preset: str = ""
    """Shape of a base from scratch (default: the recipe's, by the text and the time; transformer-tiny for translation;
    tiny where fields of the model are given)."""


# ---- the settings of each verb ----------------------------------------------------------------------------


class TrainingSettings(OptimizerConfig, LoopConfig):
    """How to train."""


class PretrainSettings(
    TrainingSettings, Masking, EmbeddingInit, TextLength, BatchTokens, TokenizerConfig, Start, Preset, Shuffling,
    Reading,
    defaults=PRETRAIN_DEFAULTS,
):  # fmt: skip
    """All settings of a pretraining but its texts and the fields of its model."""

    objective: PretrainObjective = "causal"
    """What to predict: the next token, masked tokens, or masked tokens and the next sentence."""


class FinetuneSettings(
    TrainingSettings, BatchSize, ClassWeighting, Freezing, PoolingChoice, LabelSubset, TextLength, BatchTokens,
    TokenizerConfig, Start, Preset, TranslationOptions, Reading,
):  # fmt: skip
    """All settings of a fine-tuning or a translation but its rows and the fields of its model."""

    task: Task = "classification"
    """What the labels are, or translation."""

    valid_share: Annotated[float, BELOW_ONE] = VALID_SHARE
    """Share of train to hold out where no valid is given (0: none)."""

    valid_bleu: bool = False
    """Translation: compute BLEU and chrF at every evaluation, on a sample of valid, and not only at the end."""

    valid_metrics: bool = False
    """Compute all metrics on valid at every evaluation, such as macro-F1, not only at the end (translation has
    --valid-bleu)."""
