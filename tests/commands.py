"""Commands on a small workspace of their own, in this process or in a child that can be killed."""

import time
from collections import namedtuple

import forked
import small

from headstart.cli.main import run as headstart

COMMAND = "import sys; from headstart.cli.main import run; sys.exit(run(sys.argv[1:]))"
STEPS = 6
Answer = namedtuple("Answer", "code out err")


class Workspace:
    """A directory with a corpus, labelled rows and a tokenizer, and commands that use them."""

    def __init__(self, path):
        self.path, self.run, self.cache, self.log = path, path / "run", path / "cache", path / "log"

    def fill(self):
        texts = [text.capitalize() for text in small.sentences(180, seed=5)]
        documents = [" ".join(texts[i : i + 3]) for i in range(0, len(texts), 3)]
        (self.path / "corpus.txt").write_text("\n".join(documents))
        rows = [f"{text}\t{'oui' if 'belle' in text else 'non'}" for text in small.sentences(60, seed=4)]
        (self.path / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]))
        pairs = [f"{text}\t{text[::-1]}" for text in small.sentences(60, seed=6)]
        (self.path / "pairs.tsv").write_text("\n".join(pairs))
        small.tokenizer().save(self.path / "tokenizer")
        return self

    def command(self, *more, verb="pretrain"):
        """A command line; `more` are flags and their values, None for a flag without one.

        The verb `translation` is finetune for that task.
        """
        data = {
            "pretrain": ["--corpus", self.path / "corpus.txt", "--batch-tokens", 96],
            "finetune": ["--train", self.path / "rows.tsv", "--batch", 4],
            "translation": [
                "--task",
                "translation",
                "--train",
                self.path / "pairs.tsv",
                "--batch-tokens",
                300,
            ],
        }[verb]
        settings = {
            "--tokenizer": self.path / "tokenizer", "--out": self.run, "--length": 24, "--depth": 2, "--width": 16,
            "--ffn": 24, "--heads": 2, "--dropout": 0.1, "--accumulate": 2, "--save-every": 2, "--steps": STEPS,
            "--device": "cpu", "--precision": "fp32", "--threads": 1,
        }  # fmt: skip
        settings |= dict(zip(more[::2], more[1::2], strict=True))
        flags = [word for pair in settings.items() for word in pair if word is not None]
        return ["finetune" if verb == "translation" else verb, *map(str, [*data, *flags])]

    def start(self, *more, verb="pretrain", program=COMMAND, fault=""):
        """The command in a child."""
        environment = {"HEADSTART_CACHE": str(self.cache), "HEADSTART_FAULT": fault}
        return forked.start(program, *self.command(*more, verb=verb), output=self.log, environment=environment)

    def run_to_the_end(self, *more, verb="pretrain", program=COMMAND, fault=""):
        """The exit code of the command in a child, negative for a signal."""
        return exit_code_of(self.start(*more, verb=verb, program=program, fault=fault))


def invoke(capsys, command):
    """Run a command line here; returns its exit code and what it said."""
    capsys.readouterr()
    code = headstart(command)
    return Answer(code, *capsys.readouterr())


def exit_code_of(child):
    """The exit code of a child, once it has one."""
    child.join(60)
    assert child.exitcode is not None, "it hangs"
    return child.exitcode


def wait_until(true, child):
    """Wait for something that a living child brings about."""
    last = time.monotonic() + 30
    while not true():
        assert child.exitcode is None, f"it ended with {child.exitcode}"
        assert time.monotonic() < last, "it does not come"
        time.sleep(0.002)


def steps_logged(run):
    """The lines of a run's metrics that tell of a step."""
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b'{"step"') if file.exists() else 0


def run_files(run):
    """What makes two runs the same: weights, result, metrics, settings, tokenizer."""
    names = ("weights.safetensors", "result.json", "metrics.jsonl", "config.toml", "tokenizer.json")
    return {name: (run / name).read_bytes() for name in names}
