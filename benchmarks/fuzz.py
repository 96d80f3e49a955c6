"""Damage files of runs and studies at random, run commands on them, and look for what must not happen.

    python benchmarks/fuzz.py --seed 7 --cases 2000
    python benchmarks/fuzz.py --seed 7 --only 1312

A case takes one finished or interrupted run or study (a scene), damages one of the files that it wrote (cut, emptied,
deleted, one bit flipped, or another file of that kind in its place) and runs a command that reads it. The answer has to
be the one of the undamaged scene, or a refusal with exit 2, 3 or 75 that names the file and a remedy; the remedy is
then followed, and has to lead to the right answer. A case depends on the seed and its number alone. Findings are lines
of JSON; the exit code is 1 where there is one.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

REFUSALS = {2, 3, 75}
ROUNDS, HANGS_AFTER = 6, 120
SHAPE = ["--vocab", "300", "--width", "16", "--depth", "1", "--heads", "2", "--ffn", "16", "--length", "32"]
HOW = ["--steps", "8", "--save-every", "2", "--device", "cpu", "--precision", "fp32", "--threads", "1"]
STUDY = """
[study]
budgets = [10]
seeds = 1
precision = "fp32"
arms = ["majority", "tfidf", "lsa", "tfidf-lsa", "finetuned", "combined"]
[tokenizer]
vocab = 300
[[pretrain]]
corpus = ["{data}/corpus.txt"]
steps = 8
length = 32
batch_tokens = 128
evaluations = 2
[finetune]
train = "{data}/train.jsonl"
valid = "{data}/valid.jsonl"
test = "{data}/test.jsonl"
epochs = 1
least_steps = 4
batch = 5
length = 32
evaluations = 2
learning_rates = [1e-3, 1e-2]
[model]
width = 16
depth = 1
heads = 2
ffn = 16
context = 32
"""


class Scene(NamedTuple):
    """What a command has written, whole or in part; the command; and others that read what it ends with."""

    command: list[str]
    results: tuple[str, ...]  # the files that it ends with
    readers: list[list[str]]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Fuzzer:
    """The scenes, undamaged, and what is right for them."""

    def __init__(self, root: Path) -> None:
        self.root, self.sound = root / "at", root / "sound"
        self.data, self.cache = self.root / "data", self.root / "cache"
        os.environ["HEADSTART_CACHE"] = str(self.cache)
        self._write_data()
        self.scenes = self._scenes()
        for name, scene in self.scenes.items():
            self._make(name, scene)
        shutil.copytree(self.root, self.sound, symlinks=True)
        self.right: dict[str, dict[str, str]] = {}
        for name, scene in self.scenes.items():
            self._restore(name)
            ended = run(scene.command)
            assert ended.code == 0, ended.err
            self.right[name] = {"": self._results(name)}
            for reader in scene.readers:
                answer = run(reader)
                assert answer.code == 0, answer.err
                self.right[name][" ".join(reader)] = answer.out
            self._restore(name)

    def _write_data(self) -> None:
        from headstart.demo.corpus import reviews

        self.data.mkdir(parents=True)
        lines = [review.french for review in reviews(0, "unlabelled", count=150)]
        (self.data / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name, count in (("train", 40), ("valid", 20), ("test", 30)):
            rows = [{"text": r.french, "label": r.label} for r in reviews(0, name, count=count)]
            (self.data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.root / "STUDY.toml").write_text(STUDY.format(data=self.data))

    def _scenes(self) -> dict[str, Scene]:
        data, scenes = self.data, dict[str, Scene]()
        run_files = ("weights.safetensors", "result.json", "tokenizer.json")
        for stage in ("whole", "half"):
            base, tuned, study = (str(self.root / f"{kind}-{stage}") for kind in ("base", "tuned", "study"))
            corpus, rows = str(data / "corpus.txt"), str(data / "test.jsonl")
            scenes[f"base-{stage}"] = Scene(
                ["pretrain", "--corpus", corpus, *SHAPE, *HOW, "--batch-tokens", "128", "--out", base], run_files,
                [["generate", base, "Le livre", "--max-tokens", "8"], ["evaluate", base, "--data", corpus, "--json"]],
            )  # fmt: skip
            files = [word for name in ("train", "valid", "test") for word in (f"--{name}", str(data / f"{name}.jsonl"))]
            scenes[f"tuned-{stage}"] = Scene(
                ["finetune", *files, *HOW, "--start", str(self.root / "base-whole"), "--batch", "5", "--evaluate-every",
                 "2", "--patience", "9", "--length", "32", "--out", tuned], run_files,
                [["predict", tuned, rows], ["evaluate", tuned, "--data", rows, "--json"]],
            )  # fmt: skip
            toml = str(self.root / "STUDY.toml")
            scenes[f"study-{stage}"] = Scene(
                ["study", toml, "--out", study, "--jobs", "1", "--device", "cpu"], ("study.json", "results.csv"),
                [["predict", study, rows], ["report", study]],
            )  # fmt: skip
        return scenes

    def _make(self, name: str, scene: Scene) -> None:
        """The scene as it is: an interrupted training was killed after its second checkpoint."""
        if name.startswith("study-"):
            arms = ["--arms", "majority,tfidf,lsa,finetuned"] if name.endswith("half") else []
            assert (ended := run([*scene.command, *arms])).code == 0, ended.err
            if arms:
                for left in ("study.json", "report.html", "results.csv", "model", "trials/finetuned-b10-s0/trial.json"):
                    path = self.root / name / left
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif name.endswith("half"):
            environment = {**os.environ, "HEADSTART_FAULT": "after:rename@2"}
            killed = subprocess.run([sys.executable, "-m", "headstart", *scene.command], env=environment)
            assert killed.returncode == -signal.SIGKILL
        else:
            assert (ended := run(scene.command)).code == 0, ended.err

    def _results(self, name: str) -> str:
        files = [self.root / name / file for file in self.scenes[name].results]
        return " ".join(hashlib.sha256(f.read_bytes()).hexdigest() if f.is_file() else "none" for f in files)

    def _restore(self, name: str) -> None:
        for part in (name, "cache", "base-whole"):
            shutil.rmtree(self.root / part, ignore_errors=True)
            if (self.sound / part).exists():
                shutil.copytree(self.sound / part, self.root / part, symlinks=True)

    def case(self, seed: int, number: int) -> dict[str, Any] | None:
        """One case; what was found, if anything."""
        rng = random.Random(f"{seed} {number}")
        name = rng.choice(sorted(self.scenes))
        scene = self.scenes[name]
        self._restore(name)
        files = sorted(
            path for part in (name, "cache") for path in (self.root / part).rglob("*")
            if path.is_file() and path.name != "lock"
        )  # fmt: skip
        file = rng.choice(files)
        how = self._damage(file, rng)
        command = rng.choice([scene.command, scene.command, *scene.readers])
        if name.endswith("half"):
            command = scene.command
        what = {"seed": seed, "case": number, "scene": name, "file": str(file.relative_to(self.root)), "damage": how}
        try:
            problem = self._judge(name, command, file)
        except Exception:
            problem = traceback.format_exc(limit=-4)
        return {**what, "command": " ".join(command), "problem": problem} if problem else None

    def _damage(self, file: Path, rng: random.Random) -> str:
        whole = file.read_bytes()
        alike = [other for other in self.sound.rglob(file.name) if other.is_file() and other.read_bytes() != whole]
        how = rng.choice(["cut", "emptied", "deleted", "flipped", "flipped", *(["foreign"] if alike else [])])
        if how == "deleted":
            file.unlink()
        elif how == "foreign":
            shutil.copyfile(rng.choice(sorted(alike)), file)
        elif how == "flipped" and whole:
            place = rng.randrange(8 * len(whole))
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            file.write_bytes(flipped)
            how = f"bit {place} flipped"
        else:
            file.write_bytes(whole[: rng.randrange(len(whole)) if how == "cut" and whole else 0])
        return how

    def _judge(self, name: str, command: list[str], file: Path) -> str:
        """What is wrong with the answer, or with where its remedies lead; nothing if all is well."""
        scene, said = self.scenes[name], ""
        for _ in range(ROUNDS):
            answer = run(command)
            if answer.code == 0:
                is_right = self._is_right(name, command, answer)
                return "" if is_right else f"a wrong answer, exit 0{' after ' + said if said else ''}: {answer.err}"
            if answer.code not in REFUSALS:
                return f"exit {answer.code}: {answer.err}"
            if not said and not any(str(part) in answer.err for part in (file, *file.parents[: self._depth(file)])):
                return f"the refusal does not name the file: {answer.err}"
            said = answer.err
            self._follow(said, file)
            if command != scene.command:
                again = run(scene.command)
                if again.code != 0:
                    said = again.err
                    self._follow(said, file)
        return f"a dead end: {said}"

    def _depth(self, file: Path) -> int:
        return len(file.relative_to(self.root).parts) - 1

    def _is_right(self, name: str, command: list[str], answer: Answer) -> bool:
        if command == self.scenes[name].command:
            return self._results(name) == self.right[name][""]
        return answer.out == self.right[name][" ".join(command)]

    def _follow(self, said: str, file: Path) -> None:
        """Do what the message says: delete what it names, or bring the file back from a copy."""
        fix = " ".join(said.rpartition("fix:")[2].split())
        inside = self._named(fix) or self._named(said)  # "delete it" is what the message is about
        if re.search(r"\b(delete|remove)\b", fix) and inside:
            path = max(inside, key=lambda path: len(path.parts))
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif re.search(r"\b(copy|back)\b", fix):
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.sound / file.relative_to(self.root), file)

    def _named(self, text: str) -> list[Path]:
        """The paths that a text names, as far as they are there."""
        named = [Path(path.rstrip(".,:;)")) for path in re.findall(rf"{re.escape(str(self.root))}/[^\s'\"]+", text)]
        return [path for path in named if self.data not in path.parents and os.path.lexists(path)]


def run(command: list[str]) -> Answer:
    """A command line, in this process."""
    from headstart.cli.main import run as headstart

    def hang(*_: Any) -> None:
        raise TimeoutError(f"no answer in {HANGS_AFTER} s")

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANGS_AFTER)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = headstart(command)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return Answer(code, out.getvalue(), err.getvalue())


def outcomes(seed: int, numbers: Iterable[int]) -> Iterator[dict[str, Any] | None]:
    """Of each case what it found, if anything."""
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder).resolve())
        for number in numbers:
            yield fuzzer.case(seed, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--only", type=int, help="this case alone")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    numbers = range(options.cases) if options.only is None else [options.only]
    cases = found = 0
    for finding in outcomes(options.seed, numbers):
        cases += 1
        if finding:
            found += 1
            print(json.dumps(finding, ensure_ascii=False), flush=True)
    print(f"{cases:,} cases, {found} findings, seed {options.seed}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
