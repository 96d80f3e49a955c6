"""What `pretrain` and `finetune` share: flags of a training, and the bar that shows it."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headstart.cli.options import Common, Switch
from headstart.errors import visible
from headstart.plan.workload import OptimizerName

if TYPE_CHECKING:
    from headstart.training.execute import Console as RunConsole
    from headstart.training.loop import LoopConfig
    from headstart.training.machine import Machine


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to train; what is not given stays as the verb has it."""

    steps: int | None = None
    """Updates of the weights; more than a finished run had extends it."""

    epochs: float | None = None
    """Passes over the data, instead of steps."""

    minutes: float | None = None
    """Minutes on this machine, instead of steps: some steps are timed first, and then it is a number of steps."""

    learning_rate: float | None = None
    """Peak learning rate (default: by the width in pretraining, by the start in fine-tuning)."""

    optimizer: OptimizerName = "adamw"
    """AdamW, or Muon for the blocks' matrices (split: for each that shares a tensor) and AdamW for the rest."""

    matrix_rate: float = 0.005
    """Peak rate of Muon."""

    weight_decay: float = 0.01
    """Decay of matrices."""

    layer_decay: float = 1.0
    """The rate of each layer is this times that of the layer above it."""

    schedule: Literal["linear", "cosine", "constant", "inverse-sqrt"] | None = None
    """How the rate falls after the warm-up."""

    warmup: float | None = None
    """Share of the steps that the rate rises over."""

    cooldown: float = 0.2
    """Share of the steps that a constant schedule falls over at the end."""

    clip: float = 1.0
    """Longest gradient (0: any)."""

    accumulate: int = 1
    """Micro-batches that a batch is cut into, to save memory."""

    evaluate_every: int = 0
    """Steps between evaluations on valid (0: at the end alone)."""

    patience: int = 0
    """Evaluations without a better one after which to stop, and go back to the best."""

    choose_by: str = "loss"
    """The measure on valid that patience goes by: loss, or another that the objective has, such as macro_f1."""

    average: Literal["none", "ema", "tail"] = "none"
    """Weights to end with: the last, a moving average, or the mean over the last fifth of the steps."""

    unfreeze_every: int = 0
    """Steps after which one more block learns, from the top down (0: all from the start)."""

    spike_factor: float = 0.0
    """Skip an update whose loss is so many times the median of the last 32 (0: never)."""

    save_every: int = 0
    """Steps between checkpoints, besides the one a minute."""

    keep: int = 2
    """Checkpoints that stay."""

    # Not shown, for the default --out is a hash of what is: with these or without, it is the same run.
    fast: Switch = dataclasses.field(default=False, repr=False)
    """Give up exact repetition on a GPU for quicker kernels; on a CPU there is nothing to give up."""

    shard: Literal["auto", "never", "always"] = dataclasses.field(default="auto", repr=False)
    """With several ranks (torchrun): whether each holds a part of the model alone; auto: if it does not fit whole."""

    track: Literal["tensorboard"] | None = dataclasses.field(default=None, repr=False)
    """Write the metrics for TensorBoard too, under the run's directory."""

    unsafe_fs: Switch = False
    """Write even where the file system cannot flush or rename; what is killed while it saves may leave half a file."""

    override_resume: Switch = False
    """Go on although the settings differ from those that the run was started with."""

    def loop(self, seed: int, schedule: str, warmup: float) -> "LoopConfig":
        """The loop's settings, with the verb's own schedule and warm-up where none is given."""
        from headstart.training.loop import LoopConfig

        shared = {f.name for f in dataclasses.fields(self)} & {f.name for f in dataclasses.fields(LoopConfig)}
        values = {name: getattr(self, name) for name in shared - {"steps", "schedule", "warmup"}}
        return LoopConfig(
            seed=seed,
            schedule=self.schedule or schedule,  # type: ignore[arg-type]
            warmup=warmup if self.warmup is None else self.warmup,
            **values,
        )


TrainingFlags = Annotated[TrainingOptions, Parameter(name="*", group=Group("Training", sort_key=40))]


def machine_of(
    common: Common, *, fast: bool = False, shard: Literal["auto", "never", "always"] = "auto"
) -> "Machine":
    """The machine to run on, as asked."""
    from headstart.training.machine import choose

    return choose(common.device, common.precision, common.threads, fast=fast, shard=shard)


@contextmanager
def run_console(machine: "Machine", track: Literal["tensorboard"] | None = None) -> Iterator["RunConsole"]:
    """Lines and a progress bar on standard error: loss, tokens a second, time left; and what follows the metrics."""
    from headstart.training.execute import Console as RunConsole
    from headstart.training.tracking import require

    require(track)
    if not machine.ranks.is_first:  # the first one speaks for all
        yield RunConsole()
        return
    console = Console(stderr=True, highlight=False)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[about]}"), TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("training", total=1, about="", visible=False)

        def on_step(progress: object) -> None:
            about = f"loss {progress.loss:.3f}  {progress.tokens_a_second:,.0f} tokens/s"  # type: ignore[attr-defined]
            done, total = progress.step, progress.steps  # type: ignore[attr-defined]
            bar.update(task, completed=done, total=total, about=about, visible=True)

        def tell(line: str) -> None:
            console.print(visible(line), markup=False, soft_wrap=True)

        for reason in machine.reasons:
            tell(reason)
        yield RunConsole(tell, on_step, track)
