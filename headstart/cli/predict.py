"""`headstart predict` and `headstart embed`: what a run makes of each text."""

import json
from pathlib import Path
from typing import Any, Literal

from headstart.cli.consoles import log, log_truncated, open_model, open_run, read_texts, spinner
from headstart.cli.options import TEXT_READING, Common, CommonFlags, RunPath, TextFile, TextReadingFlags, conflict
from headstart.errors import UserError


def predict(
    run: Path, file: TextFile = "-", *, reading: TextReadingFlags = TEXT_READING, common: CommonFlags = Common()
) -> None:
    """A JSON line for each text, in their order: its label and the probabilities of all.

    Several labels give "labels", a number "value". Every line of a .txt is a text, a blank one too; a text that is
    longer than the run reads is cut, and the number of those is reported at the end.

    For example:

        headstart predict runs/tuned reviews.txt
        headstart predict runs/tuned reviews.csv --text-column review
        echo "Un roman magnifique" | headstart predict runs/tuned

    Args:
        run: A fine-tuned run's directory.
    """
    from headstart.inference.predict import predict as predictions

    loaded, machine = open_model(run, "predict", common)
    texts = read_texts(file, loaded, reading.given())
    cut_count = 0
    with spinner(f"reading {file}", is_printing=True):
        for prediction in predictions(loaded, texts, machine):
            print(json.dumps(prediction.answer), flush=True)
            cut_count += prediction.is_cut
    log_truncated(cut_count, loaded.config.length)


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
