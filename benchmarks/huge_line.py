"""A corpus of one huge line, with and without spaces: does training and storing stay in bounded memory?

    python benchmarks/huge_line.py [--megabytes 64] [--kind bpe] [--json]

Each case runs in a process of its own, whose peak of resident memory is printed. For the line with spaces the
tokenizer is also trained on the same text cut into many lines: it has to be the same tokenizer, to the byte.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from children import report, run_child

LIMIT_MB = 500
WORDS = 60_000
SYLLABLES = [
    "ba",
    "bé",
    "chan",
    "con",
    "de",
    "dou",
    "é",
    "en",
    "fi",
    "gra",
    "ha",
    "in",
    "jou",
    "la",
    "lè",
    "mai",
]
SYLLABLES += ["me", "nœ", "on", "pa", "plu", "que", "ri", "sa", "ta", "tion", "un", "vel", "vou"]


def write_line(path: Path, size_bytes: int, separator: str) -> None:
    """One line of made-up words, frequent and rare ones as in a language."""
    from headstart.randomness import stream

    draws = stream(0, "huge line")
    words = ["".join(draws.choice(SYLLABLES, draws.integers(1, 6))) for _ in range(WORDS)]
    with path.open("w", encoding="utf-8") as file:
        written = 0
        while written < size_bytes:
            chosen = (draws.zipf(1.2, 50_000) - 1) % WORDS
            stretch = "".join(words[number] + separator for number in chosen)
            file.write(stretch)
            written += len(stretch.encode())


def cut_line(path: Path, lines: Path) -> None:
    """The same text in lines of a hundred words, each but the first with the space before it."""
    with path.open(encoding="utf-8") as source, lines.open("w", encoding="utf-8") as target:
        rest = ""
        while block := source.read(1 << 20):
            words = (rest + block).split(" ")
            rest = words.pop()
            target.writelines(word + ("\n " if not number % 100 else " ") for number, word in enumerate(words))
        target.write(rest)


def child(path: str, directory: str, kind: str, trains_only: bool) -> None:
    """Train on the file and build its store; print what came of it."""
    from headstart.data.readers.documents import pieces
    from headstart.data.store_building import build_stores
    from headstart.tokenizers.training import train

    started = time.perf_counter()
    training = train(lambda: (piece.text for piece in pieces([path])), kind=kind)  # type: ignore[arg-type]
    found = {"train_seconds": time.perf_counter() - started, "fingerprint": training.tokenizer.fingerprint}
    if not trains_only:
        started = time.perf_counter()
        store = build_stores([path], training.tokenizer, directory)[0]
        found |= {"store_seconds": time.perf_counter() - started, "tokens": len(store)}
    report(**found, vocabulary=training.tokenizer.size, notes=training.notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64, help="the size of the line (1024: a gigabyte)")
    parser.add_argument("--kind", default="bpe", choices=["bpe", "unigram", "wordpiece", "char"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, metavar=("FILE", "DIRECTORY", "KIND", "TRAINS_ONLY"))
    options = parser.parse_args()
    if options.child:
        path, directory, kind, trains_only = options.child
        return child(path, directory, kind, trains_only == "yes")

    results = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for case, separator in (("with spaces", " "), ("without spaces", "")):
            path = directory / f"{case}.txt"
            write_line(path, options.megabytes * 1_000_000, separator)
            results[case] = run_child(__file__, path, directory, options.kind, "no")
        lines = directory / "lines.txt"
        cut_line(directory / "with spaces.txt", lines)
        results["cut into lines"] = run_child(__file__, lines, directory, options.kind, "yes")
    is_same = results["with spaces"]["fingerprint"] == results["cut into lines"]["fingerprint"]
    if options.json:
        print(json.dumps({"cases": results, "same_tokenizer": is_same}))
        return
    print(f"one line of {options.megabytes} MB, {options.kind}, limit {LIMIT_MB} MB")
    for case, found in results.items():
        stored = f", stored in {found['store_seconds']:.1f} s" if "tokens" in found else ""
        print(f"  {case:15} peak {found['peak_mb']:4.0f} MB, trained in {found['train_seconds']:.1f} s{stored}")
    print(f"  the line and the lines give {'the same tokenizer' if is_same else 'DIFFERENT tokenizers'}")


if __name__ == "__main__":
    main()
