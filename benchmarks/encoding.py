"""Encoding a corpus into a token store, against `tokenizers`' own `encode_batch` over the same lines.

    HEADSTART_DATA=… python benchmarks/encoding.py [--rounds 3]

Our time holds everything: reading and decompressing the file, encoding, and writing the store to disk. Theirs
is the one call, on lines that are in memory already. Then the peak of resident memory of a process that builds
the store of the corpus once, twice and four times over: it should not grow.
"""

import argparse
import gzip
import os
import statistics
import tempfile
import time
from pathlib import Path

from children import report, run_child


def child(tokenizer: str, directory: str, *paths: str) -> None:
    """Build one store, in a process of its own."""
    from headstart.data.store_building import build_stores
    from headstart.tokenizers.tokenizer import Tokenizer

    store = build_stores(paths, Tokenizer.load(tokenizer), directory)[0]
    report(tokens=len(store))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs="+")
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    if "HEADSTART_DATA" not in os.environ:
        raise SystemExit("set HEADSTART_DATA to the directory that holds fr-novels")
    from tokenizers import Tokenizer as Library

    from headstart.data.readers.documents import pieces
    from headstart.data.store_building import build_stores
    from headstart.tokenizers.tokenizer import Tokenizer
    from headstart.tokenizers.training import train

    corpus = Path(os.environ["HEADSTART_DATA"]) / "fr-novels" / "train.txt.gz"
    with tempfile.TemporaryDirectory() as name:
        path = train(lambda: (piece.text for piece in pieces([corpus]))).tokenizer.save(name)
        ours, library = Tokenizer.load(path), Library.from_file(str(path))
        with gzip.open(corpus, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file if not line.isspace()]
        seconds: dict[str, list[float]] = {"headstart": [], "encode_batch": []}
        for number in range(options.rounds):
            started = time.perf_counter()
            store = build_stores([corpus], ours, Path(name) / str(number))[0]
            seconds["headstart"].append(time.perf_counter() - started)
            started = time.perf_counter()
            encoded = library.encode_batch(lines, add_special_tokens=False)
            seconds["encode_batch"].append(time.perf_counter() - started)
            assert sum(map(len, encoded)) == len(store)
            del encoded
        size = store.header.text_bytes / 1e6
        middle = {who: statistics.median(times) for who, times in seconds.items()}
        print(f"{size:.1f} MB of text, {len(lines):,} lines, {len(store):,} tokens, {os.cpu_count()} cores")
        for who, times in seconds.items():
            each = " ".join(f"{one:.2f}" for one in times)
            print(f"  {who:13} {middle[who]:6.2f} s ({size / middle[who]:.1f} MB/s; rounds {each})")
        print(f"  ratio headstart / encode_batch: {middle['headstart'] / middle['encode_batch']:.2f}")
        for times_over in (1, 2, 4):
            found = run_child(__file__, path, Path(name) / f"over-{times_over}", *[corpus] * times_over)
            print(f"  {times_over} times over: {found['tokens']:11,} tokens, peak {found['peak_mb']:.0f} MB")


if __name__ == "__main__":
    main()
