"""`headstart predict`: a fine-tuned run's answer to each text."""

import json
import sys
from pathlib import Path

from headstart.cli.evaluate import note, working
from headstart.cli.options import Common, CommonFlags, TextReading, TextReadingFlags
from headstart.cli.running import machine_of


def predict(
    run: Path,
    file: str = "-",
    *,
    reading: TextReadingFlags = TextReading(),
    common: CommonFlags = Common(),
) -> None:
    """A JSON line for each text, in their order: its label and the probabilities of all.

    Several labels give "labels", a number "value". Every line of a .txt is a text, a blank one too; a text that is
    longer than the run reads is cut, and how many were is told at the end.

    For example:

        headstart predict runs/tuned reviews.txt

        headstart predict runs/tuned reviews.csv --text-column review

        echo "Un roman magnifique" | headstart predict runs/tuned

    Parameters
    ----------
    run
        A fine-tuned run's directory.
    file
        A text a line, or .jsonl, .csv, .tsv or .parquet with a column of texts (text_a and text_b for pairs).
    """
    from headstart.text.files import Reading
    from headstart.training.predicting import predict as predictions
    from headstart.training.predicting import texts_in_file
    from headstart.training.using import open_run

    machine = machine_of(common)
    machine.prepare()
    loaded = open_run(run, "predict", machine)
    tell_standard_input(file)
    column = reading.text_column or loaded.config.data.text_column
    texts = texts_in_file(file, text_column=column, reading=Reading(reading.encoding, reading.errors))
    cut_count = 0
    with working(f"reading {file}", is_printing=True):
        for prediction in predictions(loaded, texts, machine):
            print(json.dumps(prediction.answer))
            cut_count += prediction.is_cut
    tell_cut(cut_count, loaded.config.length)


def tell_standard_input(file: str) -> None:
    """Somebody at a terminal who gave no file should know what is waited for."""
    if file in ("-", "/dev/stdin") and sys.stdin is not None and sys.stdin.isatty():
        note("a text a line, please; Ctrl-D ends them")


def tell_cut(count: int, length: int) -> None:
    """How many texts were longer than the run reads."""
    if count:
        are, were = ("text is", "was") if count == 1 else ("texts are", "were")
        note(f"{count:,} {are} longer than {length:,} tokens and {were} cut there")
