"""`headstart report`: the page of a study, written again."""

import json
from pathlib import Path

from headstart.cli.options import Common, CommonFlags
from headstart.errors import visible


def report(directory: Path, *, common: CommonFlags = Common()) -> None:
    """Write a study's report.html and results.csv again from what is on disk. Nothing is computed anew.

    For example:

        headstart report studies/books

        headstart report studies/books --json

    Parameters
    ----------
    directory
        The directory of a study: where `headstart study --out` wrote its study.json.
    """
    from headstart.report.page import write_report

    page = write_report(directory)
    table = page.with_name("results.csv")
    if common.json:
        print(json.dumps({"report": str(page), "results": str(table)}))
    else:
        print(visible(f"wrote {page} and {table}"))
