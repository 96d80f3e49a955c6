"""`headstart predict` and `headstart embed`: what a run makes of each text."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headstart.cli.consoles import log, log_truncated, open_model, open_run, read_rows, read_texts, spinner
from headstart.cli.options import TEXT_READING, Common, CommonFlags, RunPath, TextFile, TextReadingFlags, conflict
from headstart.data.readers.sources import has_known_ending, is_stdin
from headstart.errors import UserError

_FILE_OR_TEXT = (
    "The text itself; or a file: a text a line, or .jsonl, .csv, .tsv or .parquet with a column of texts (text_a and "
    "text_b for pairs). What exists, ends like a file of data or text, or is one word with a / in it, is a file."
)


def predict(
    run: Path,
    file: Annotated[str, Parameter(help=_FILE_OR_TEXT)] = "-",
    *,
    out: Path | None = None,
    reading: TextReadingFlags = TEXT_READING,
    common: CommonFlags = Common(),
) -> None:
    """A JSON line for each text, in their order: its label and the probabilities of all.

    Several labels give "labels", a number "value". Every line of a .txt is a text, a blank one too; a text that is
    longer than the run reads is cut, and the number of those is reported at the end.

    For example:

        headstart predict runs/tuned "Un roman magnifique"
        headstart predict runs/tuned reviews.txt
        headstart predict runs/tuned rows.csv --out scored.csv
        headstart predict runs/tuned reviews.csv --text-column review
        echo "Un roman magnifique" | headstart predict runs/tuned

    Args:
        run: A fine-tuned run's directory, or a study's.
        out: A .csv, .tsv or .jsonl to write instead: the rows with all their columns, and besides `label` (or
            `labels`, or `value`) and `p_LABEL`, the probability of each label. A column that is there already keeps
            its name, and the new one begins with predicted_. In .csv and .tsv text that could be a formula begins
            with '.
    """
    from headstart.data.written_tables import check_form, table_writer
    from headstart.inference.predict import predicted_rows

    if out is not None:
        check_form(out)
    loaded, machine = open_model(run, "predict", common)
    rows = read_rows(file, loaded, reading.given()) if is_file(file) else [(file, {"text": file})]
    counts = [0, 0]
    with spinner(f"reading {file}", is_printing=out is None), table_writer(out) if out else nullcontext() as write:
        for row, prediction in predicted_rows(loaded, rows, machine):
            if write is not None:
                write(row)
            else:
                print(json.dumps(prediction.answer), flush=True)
            counts = [counts[0] + 1, counts[1] + prediction.is_cut]
    log_truncated(counts[1], loaded.config.length)
    if out is not None:
        log(f"{out}: {counts[0]:,} rows")


def is_file(argument: str) -> bool:
    """Whether an argument names a file, there or not: by its ending, or as one word with a separator of folders."""
    if is_stdin(argument) or os.path.exists(argument) or has_known_ending(argument):
        return True
    return os.sep in argument and not any(character.isspace() for character in argument)


def embed(
    run: RunPath,
    file: TextFile = "-",
    *,
    pool: Literal["first", "mean", "last", "tokens"] = "mean",
    out: Path | None = None,
    reading: TextReadingFlags = TEXT_READING,
    common: CommonFlags = Common(),
) -> None:
    """Contextual vectors of each text from the base of a run.

    A JSON line for each text, in their order: {"vector": […]}, or with --pool tokens {"tokens": […], "vectors":
    [[…], …]} with the special tokens around the text. Any run serves: pretrained or fine-tuned.

    For example:

        headstart embed runs/base reviews.txt --pool mean --out reviews.safetensors
        echo "le livre est sur la table" | headstart embed runs/base --pool tokens

    Args:
        pool: One vector for each text: of its first token, its last, or the mean; or one for each token.
        out: A .safetensors file for the vectors, as one tensor "vectors" (texts, width), not JSON lines.
    """
    import numpy as np
    from safetensors.numpy import save_file

    from headstart.inference.predict import embed as embeddings
    from headstart.inference.predict import plain
    from headstart.storage.atomic import atomic_file

    if out is not None:  # what cannot be written is known before anything is computed
        if pool == "tokens":
            what = "--out with --pool tokens: texts have vectors of different number"
            raise conflict(what, "leave --out out, or pool by first, mean or last")
        if out.suffix != ".safetensors":
            raise UserError("--out is a .safetensors file", where=out, fix=f"{out.stem}.safetensors")
        if not out.parent.is_dir():
            raise UserError("there is no such directory", where=out.parent, fix="make it first", code="no-file")
    loaded, machine = open_run(run, "embed", common)
    texts = read_texts(file, loaded, reading.given())
    kept, cut_count = list[Any](), 0
    with spinner(f"reading {file}", is_printing=True):
        for embedding in embeddings(loaded, texts, machine, pool):
            cut_count += embedding.is_cut
            if out is not None:
                kept.append(embedding.vectors)
            elif pool == "tokens":
                tokens = loaded.tokenizer.pieces_of(embedding.tokens)
                print(json.dumps({"tokens": tokens, "vectors": [plain(one) for one in embedding.vectors]}))
            else:
                print(json.dumps({"vector": plain(embedding.vectors)}))
    log_truncated(cut_count, loaded.config.length)
    if out is not None:
        width = loaded.config.model.width
        table = np.stack(kept) if kept else np.zeros((0, width), np.float32)
        with atomic_file(out, table.nbytes) as written:
            save_file({"vectors": np.ascontiguousarray(table)}, written.name, {"run": loaded.digest, "pool": pool})
        log(f"{out}: {len(kept):,} vectors of {width:,} numbers")
