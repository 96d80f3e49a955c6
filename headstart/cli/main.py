"""The command `headstart`: finds the verb, and turns what goes wrong into a message and an exit code."""

import codecs
import contextlib
import importlib
import io
import json
import os
import sys
from typing import Any

import cyclopts
from cyclopts import App, CycloptsError
from cyclopts.config import Dict, Env
from rich.console import Console

from headstart import __version__
from headstart.config.toml import read_toml
from headstart.errors import HeadstartError, IntegrityError, UserError, nearest, visible
from headstart.storage.exhaustion import try_again

# Each verb and its function. A verb's module is imported when it is called, or asked for its help.
VERBS = {
    "study": "headstart.cli.study:study",
    "report": "headstart.cli.study:report",
    "plan": "headstart.cli.plan:plan",
    "pretrain": "headstart.cli.train:pretrain",
    "finetune": "headstart.cli.train:finetune",
    "evaluate": "headstart.cli.evaluate:evaluate",
    "predict": "headstart.cli.predict:predict",
    "embed": "headstart.cli.predict:embed",
    "generate": "headstart.cli.generate:generate",
    "translate": "headstart.cli.generate:translate",
    "serve": "headstart.cli.serve:serve",
    "import": "headstart.cli.exchange:import_",
    "export": "headstart.cli.exchange:export",
    "runs": "headstart.cli.runs:runs",
    "compare": "headstart.cli.evaluate:compare",
    "tokenizer": "headstart.cli.tokenizer:tokenizer",
    "data demo": "headstart.cli.data:demo",
    "data check": "headstart.cli.data:data_check",
    "doctor": "headstart.cli.doctor:doctor",
    "selftest": "headstart.cli.selftest:selftest",
    "explain mask": "headstart.cli.explain:mask",
    "explain positions": "headstart.cli.explain:positions",
    "explain attention": "headstart.cli.explain:attention",
    "explain cost": "headstart.cli.explain:cost",
}

CLOSED_PIPE = 141  # 128 + SIGPIPE, as a shell has it

# What the verbs of two words have in common.
GROUPS = {
    "data": "Look at data before it is used, or write the embedded corpus.",
    "explain": "Pictures and tables of how a Transformer works.",
}


def _settings_file(app: App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    """Fill flags that were not given from the file named by --config."""
    paths = [a.tokens[-1].value for a in arguments if a.name == "--config" and a.tokens]
    for path in paths:
        settings = {key.replace("_", "-"): value for key, value in read_toml(path).items()}
        known = {name.removeprefix("--") for argument in arguments for name in argument.names}
        for key in settings:
            if key not in known:
                is_study = commands[-1:] == ("study",) and isinstance(settings[key], dict | list)
                fix = f"give it without --config: headstart study {path}" if is_study else nearest(key, known)
                raise UserError(f"unknown key {key!r}", where=path, fix=fix, code="unknown-name")
        Dict(settings, source=path, use_commands_as_keys=False)(app, commands, arguments)


def application(arguments: list[str]) -> App:
    """The command line; only the verb that was asked for is imported, or all of them to list what they do."""
    app = App(
        name="headstart",
        help=(
            "Pretrain a Transformer on your own text, swap its head, and know, with evidence, "
            "what the transfer bought.\n\nEvery verb answers --help with examples."
        ),
        version=__version__,
        # A variable holds its verb's name (HEADSTART_PLAN_WIDTH), so that HEADSTART_DATA is never a flag.
        config=(Env("HEADSTART_", show=False), _settings_file),
    )
    words = [argument for argument in arguments if not argument.startswith("-")]
    is_listing = not words or (words[0] in GROUPS and len(words) == 1)
    groups = {name: App(name=name, help=text) for name, text in GROUPS.items()}
    for name in groups:
        app.command(groups[name])
    for verb, path in VERBS.items():
        group, _, leaf = verb.rpartition(" ")
        module, _, function = path.partition(":")
        target = getattr(importlib.import_module(module), function) if is_listing else path
        (groups[group] if group else app).command(target, name=leaf)
    return app


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    arguments = ["/dev/stdin" if argument == "-" else argument for argument in arguments]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="headstart-escapes")
    try:
        code = _answer(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # what stands behind it may fail only now
        return code
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit) as error:
        if _is_closed_pipe(error):
            _drop_output()
            return CLOSED_PIPE
        # An error of the file that was read or written may be the system's.
        cause = error.__cause__ if isinstance(error, UserError | IntegrityError) else error
        lacking = try_again(cause, getattr(error, "where", ""))
        error = lacking or error
        if not isinstance(error, HeadstartError) or "--debug" in arguments:
            raise
        _report(error)
        if lacking:
            _drop_output()  # what is still to be written would fail at the end once more
        return error.exit_code


def _answer(arguments: list[str]) -> int:
    _refuse_ranks(arguments)
    try:
        result: Any = application(arguments)(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        if is_first_rank():
            asked = next((verb for verb in VERBS if arguments[: verb.count(" ") + 1] == verb.split()), "")
            console = _console()
            console.print(f"headstart [usage]: {visible(str(error))}", style="red", markup=False)
            console.print(f"try: headstart {asked} --help".replace("  ", " "), markup=False)
        return 2


def _console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def _report(error: HeadstartError) -> None:
    if is_first_rank() or error.is_of_one_rank:
        rank = f"rank {os.environ['RANK']}: " if error.is_of_one_rank else ""
        with contextlib.suppress(OSError, SystemExit):  # standard error may be gone too
            _console().print(f"headstart [{error.code}]: {rank}{error.text}", style="red", markup=False)


def _is_closed_pipe(error: BaseException) -> bool:
    """Whether the reader of our output has gone, as `head` does; rich makes an exit of it."""
    return isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)


def _drop_output() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escapes(error: UnicodeError) -> tuple[str, int]:
    """Characters that standard output has no code for, as JSON writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("headstart-escapes", _escapes)


def is_first_rank() -> bool:
    """Whether this process reports: with several ranks under torchrun, the first one does for all."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def _refuse_ranks(arguments: list[str]) -> None:
    """Only a training is shared by ranks; every rank would do all of another verb's work."""
    has_others = "MASTER_ADDR" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
    if has_others and arguments[:1] not in (["pretrain"], ["finetune"]):
        what = f"torchrun with headstart {' '.join(arguments[:1])}"
        fix = "torchrun is for pretrain and finetune; give other verbs without it"
        raise UserError(what, fix=fix, code="unsupported")


def main() -> None:
    sys.exit(run())
