"""`headstart pretrain` and `headstart finetune`: their flags, the progress bar, and how a result is printed."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from headstart.cli import options
from headstart.cli.main import is_first_rank
from headstart.cli.options import Common, CommonFlags, ModelFlags, Switch
from headstart.config.training import CorpusFiles, LabelledFiles
from headstart.progress import long_task

if TYPE_CHECKING:
    from headstart.runs.directory import RunResult
    from headstart.training.fit import Console as RunConsole


@dataclasses.dataclass(frozen=True)
class CommandOptions:
    """How this command treats its run; none of it changes what is trained."""

    track: Literal["tensorboard"] | None = None
    """Write the metrics for TensorBoard too, under the run's directory."""

    unsafe_fs: Switch = False
    """Write even where the file system cannot flush or rename; a kill during a save may leave half a file."""

    override_resume: Switch = False
    """Resume although the settings differ from those that the run was started with."""


CommandFlags = Annotated[CommandOptions, Parameter(name="*", group=Group("Training", sort_key=40))]
COMMAND = CommandOptions()


def pretrain(
    *,
    corpus: Annotated[options.Files, Parameter(help=CorpusFiles.sentence("corpus"))],
    out: options.OutPath | None = None,
    own: options.PretrainFlags = options.PRETRAIN,
    reading: options.CorpusReadingFlags = options.CORPUS_READING,
    training: options.TrainingFlags = options.TRAINING,
    command: CommandFlags = COMMAND,
    model: ModelFlags = options.MODEL,
    common: CommonFlags = Common(),
) -> None:
    """Pretrain a base on unlabelled text. The same command again resumes it, or finds it finished.

    For example:

        headstart pretrain --corpus reviews.txt --objective masked --time 30m --out runs/base
        headstart pretrain --corpus a.txt.gz b.txt.gz --preset lab --epochs 3 --out runs/lab
        headstart pretrain --corpus trade.txt=4 novels.txt --epochs 2 --out runs/mixed
        headstart pretrain --corpus trade.txt --start runs/base --objective masked --steps 2000 --out runs/second

    Args:
        out: The run's directory (default: runs/pretrain- and a hash of the settings and the data).
    """
    from headstart.training.tasks.pretrain import pretrain as train

    given = {"out": out, **own.given(), **reading.given(), **training.given(), **model.given()}
    run_training(train, corpus, given, command, common)


def finetune(
    *,
    train: Annotated[str, Parameter(help=LabelledFiles.sentence("train"))],
    out: options.OutPath | None = None,
    own: options.FinetuneFlags = options.FINETUNE,
    reading: options.LabelledReadingFlags = options.LABELLED_READING,
    training: options.TrainingFlags = options.TRAINING,
    command: CommandFlags = COMMAND,
    translation: options.TranslationFlags = options.TRANSLATION,
    model: ModelFlags = options.MODEL,
    common: CommonFlags = Common(),
) -> None:
    """Fine-tune a base on labelled texts, or train a translator on pairs.

    The same command again resumes it. A translator is scored by sacreBLEU on valid and test.

    For example:

        headstart finetune --train train.jsonl --test test.jsonl --start runs/base --out runs/tuned
        headstart finetune --train train.jsonl --test test.jsonl --start scratch --labels 200 --out runs/scratch
        headstart finetune --train stars.csv --task regression --text-column review --label-column stars
        headstart finetune --task translation --train train.tsv --valid valid.tsv --test test.tsv --out runs/fr

    Args:
        out: The run's directory (default: runs/finetune- and a hash of the settings and the data).
    """
    from headstart.training.tasks.finetune import finetune as fine_tune

    given = {"out": out, **own.given(), **reading.given(), **training.given(), **model.given()}
    run_training(fine_tune, train, given | translation.given(), command, common)


def run_training(
    function: "Callable[..., RunResult]", data: Any, given: dict[str, Any], command: CommandOptions, common: Common
) -> None:
    """Train by the flags that were given, and print the result."""
    from headstart.runs.base_status import base_warning
    from headstart.storage.atomic import unsafe_file_system

    paths: list[Path] = []
    shared = {name: getattr(common, name) for name in ("seed", "device", "precision", "threads")}
    with _run_console(command, paths.append) as console, unsafe_file_system(command.unsafe_fs, console.log):
        if (start := given.get("start")) and (warning := base_warning(start)):
            console.log(warning)
        result = function(data, console=console, override_resume=command.override_resume, **shared, **given)
        if warning := base_warning(paths[0]):
            console.log(warning)
    if not is_first_rank():
        return
    if common.json:
        print(json.dumps({"run": str(paths[0]), **result}))
        return
    print(f"run         {paths[0]}")
    print(f"steps       {result['step']:,}" + (" (stopped early)" if result["stopped_early"] else ""))
    print(f"parameters  {result['parameters']:,}")
    for name, scores in (("valid", result.get("valid")), ("test", result.get("test"))):
        for key, value in (scores or {}).items():
            print(f"{name:<6} {key:<20} {'not finite' if value is None else format(value, '.4f')}")
    for name, signature in result.get("signatures", {}).items():
        print(f"{name:<6} {signature}")


@contextmanager
def _run_console(command: CommandOptions, on_start: Callable[[Path], None]) -> Iterator["RunConsole"]:
    """Lines and a progress bar on standard error: loss, tokens a second, time left; and what follows the metrics."""
    from headstart.training.fit import Console as RunConsole
    from headstart.training.tensorboard import require

    require(command.track)
    if not is_first_rank():
        yield RunConsole(on_start=on_start)
        return
    with long_task("training") as (log, update):

        def on_step(progress: Any) -> None:
            done = f"step {progress.step:,}/{progress.steps:,}"
            about = f"{done}  loss {progress.loss:.3f}  {progress.tokens_a_second:,.0f} tokens/s"
            update(progress.step / progress.steps, about)

        yield RunConsole(log, on_step, command.track, on_start)
