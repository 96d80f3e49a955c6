"""How much of TF-IDF's lead is length: the same baseline on what the neural arms of a study read.

    HEADSTART_DATA=… python benchmarks/tfidf_cut.py imdb-small imdb-small/unlabelled.txt.gz
    HEADSTART_DATA=… python benchmarks/tfidf_cut.py cls-books fr-reviews/train.txt.gz \\
        fr-synopses/train.txt.gz fr-novels/train.txt.gz

A tokenizer of 8,000 is trained on the corpus, as the study does (same text, same bytes); each labelled text is cut
to the 254 tokens that stand inside a frame of 256. Prints how many texts are cut, and both accuracies on test.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from headstart.config.reading import Reading
from headstart.data.labelled import read_labelled
from headstart.data.readers.documents import pieces
from headstart.study.baselines import tfidf
from headstart.tokenizers.training import train as train_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labelled", help="a folder with train, valid and test")
    parser.add_argument("corpus", nargs="+", help="what the tokenizer is trained on")
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    data = Path(os.environ["HEADSTART_DATA"])
    files = [data / name for name in options.corpus]
    words = train_tokenizer(lambda: (piece.text for piece in pieces(files, Reading(documents="line")))).tokenizer
    room = options.length - 2
    whole, cut, labels, classes = {}, {}, {}, []
    for part in ("train", "valid", "test"):
        rows = read_labelled(data / options.labelled / f"{part}.jsonl.gz")
        classes = classes or sorted(set(rows.labels))
        whole[part], labels[part] = rows.whole_texts, np.array([classes.index(one) for one in rows.labels])
        ids = words.encode_many(whole[part])
        cut[part] = [words.decode(one[:room]) for one in ids]
        share = np.mean([len(one) > room for one in ids])
        print(f"{part}: {len(ids):,} texts, {100 * share:.1f} % longer than {room} tokens", flush=True)
    for name, texts in (("whole", whole), ("cut", cut)):
        known = (labels["valid"], texts["test"], len(classes))
        found = tfidf(texts["train"], labels["train"], texts["valid"], *known)
        accuracy = np.mean(found.predictions == labels["test"])
        print(f"TF-IDF, {name} texts: {100 * accuracy:.1f} % on test", flush=True)


if __name__ == "__main__":
    main()
