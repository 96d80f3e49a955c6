"""`headstart embed`: contextual vectors of texts."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headstart.cli.evaluate import note, working
from headstart.cli.options import Common, CommonFlags, TextReading, TextReadingFlags
from headstart.cli.predict import tell_cut, tell_standard_input
from headstart.cli.running import machine_of
from headstart.errors import UserError

if TYPE_CHECKING:
    import numpy as np


def embed(
    run: Path,
    file: str = "-",
    *,
    pool: Literal["first", "mean", "last", "tokens"] = "mean",
    out: Path | None = None,
    reading: TextReadingFlags = TextReading(),
    common: CommonFlags = Common(),
) -> None:
    """What the base of a run makes of each text: vectors that depend on the words around a word.

    A JSON line for each text, in their order: {"vector": […]}, or with --pool tokens {"tokens": […], "vectors":
    [[…], …]} with the special tokens around the text. Any run serves: pretrained or fine-tuned.

    For example:

        headstart embed runs/base reviews.txt --pool mean --out reviews.safetensors

        echo "le livre est sur la table" | headstart embed runs/base --pool tokens

    Parameters
    ----------
    run
        A run's directory.
    file
        A text a line, or .jsonl, .csv, .tsv or .parquet with a column of texts (text_a and text_b for pairs).
    pool
        One vector for each text: of its first token, its last, or the mean; or one for each token.
    out
        A .safetensors file for the vectors, as one tensor "vectors" (texts, width), instead of JSON lines.
    """
    from headstart.text.files import Reading
    from headstart.training.predicting import embed as embeddings
    from headstart.training.predicting import plain, texts_in_file
    from headstart.training.using import open_run

    if out is not None:
        _check_out(out, pool)
    machine = machine_of(common)
    machine.prepare()
    loaded = open_run(run, "embed", machine)
    tell_standard_input(file)
    column = reading.text_column or loaded.config.data.text_column
    texts = texts_in_file(file, text_column=column, reading=Reading(reading.encoding, reading.errors))
    kept, cut_count = list[Any](), 0
    with working(f"reading {file}", is_printing=True):
        for found in embeddings(loaded, texts, machine, pool):
            cut_count += found.is_cut
            if out is not None:
                kept.append(found.vectors)
            elif pool == "tokens":
                tokens = loaded.tokenizer.pieces_of(found.tokens)
                print(json.dumps({"tokens": tokens, "vectors": [plain(vector) for vector in found.vectors]}))
            else:
                print(json.dumps({"vector": plain(found.vectors)}))
    tell_cut(cut_count, loaded.config.length)
    if out is not None:
        _write(out, kept, loaded.config.model.width, {"run": loaded.digest, "pool": pool})
        note(f"{out}: {len(kept):,} vectors of {loaded.config.model.width:,} numbers")


def _check_out(out: Path, pool: str) -> None:
    """What cannot be written is known before anything is computed."""
    if pool == "tokens":
        raise UserError(
            "--out with --pool tokens: texts have vectors of different number",
            fix="leave --out out, or pool by first, mean or last",
        )
    if out.suffix != ".safetensors":
        raise UserError("--out is a .safetensors file", where=str(out), fix=f"{out.stem}.safetensors")
    if not out.parent.is_dir():
        raise UserError("there is no such directory", where=str(out.parent), fix="make it first")


def _write(out: Path, vectors: "Iterable[np.ndarray]", width: int, about: dict[str, str]) -> None:
    """Written aside, then renamed."""
    import numpy as np
    from safetensors.numpy import save_file

    rows = list(vectors)
    table = np.stack(rows) if rows else np.zeros((0, width), np.float32)
    aside = out.with_name(f".tmp-{out.name}-{os.getpid()}")
    try:
        save_file({"vectors": np.ascontiguousarray(table)}, aside, about)
        os.replace(aside, out)
    finally:
        aside.unlink(missing_ok=True)
