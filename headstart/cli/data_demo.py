"""`headstart data demo`: the embedded corpus as ordinary files."""

import json
import shlex
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headstart.cli.options import Common, CommonFlags, Switch
from headstart.errors import visible


def demo(*, out: Path, null: Switch = False, common: CommonFlags = Common()) -> None:
    """Write the embedded corpus as files: French book reviews, with and without labels, and their English.

    A grammar makes it, so the answer is known: the unlabelled reviews can teach what a few labels cannot. With
    --null they cannot: the same words as often, but good and bad by chance; the labelled files stay the same.
    The same seed gives the same bytes. Files of these names that are there already are left alone if they are
    equal, and are an error if they are not.

    For example:

        headstart data demo --out demo

        headstart data demo --out demo-null --null

        headstart data demo --out demo-7 --seed 7 --json

    Parameters
    ----------
    out
        The directory to write to; it is made if it is not there.
    null
        Write the variant whose unlabelled text holds nothing about sentiment.
    """
    from headstart.text.demo import write

    files = write(out, common.seed, null)
    if common.json:
        listed = {f.name: {"rows": f.rows, "bytes": f.size_bytes, "sha256": f.sha256} for f in files}
        written = any(f.fresh for f in files)
        answer = {
            "directory": str(out),
            "seed": common.seed,
            "null": null,
            "written": written,
            "files": listed,
        }
        print(json.dumps(answer, indent=2))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table("file", "rows", "kB", "")
    for file in files:
        table.add_row(
            file.name, f"{file.rows:,}", f"{file.size_bytes / 1000:,.0f}", "" if file.fresh else "was there"
        )
    console.print(table)
    console.print(f"In {visible(str(out))}; README.md there says what each is for. Next:")
    path = {name: shlex.quote(str(out / name)) for name in ("unlabelled.txt", "tokenizer")}
    labelled = " ".join(
        f"--{split} {shlex.quote(str(out / f'{split}.jsonl'))}" for split in ("train", "valid", "test")
    )
    console.print(visible(f"  headstart data check --corpus {path['unlabelled.txt']} {labelled}"))
    console.print(
        visible(f"  headstart tokenizer {path['unlabelled.txt']} --vocab 2000 --out {path['tokenizer']}")
    )
