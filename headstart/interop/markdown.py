"""Text of others in Markdown: shown as it is, and never obeyed."""

import re

from headstart.errors import visible

MOST_CHARACTERS = 200


def code(text: str, *, in_table: bool = False) -> str:
    """A text as a code span: no markup, link or HTML in it means anything, and line breaks are spelled."""
    text = visible(text).replace("\n", "\\n")
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 1] + "…"
    if in_table:
        text = text.replace("|", "\\|")  # a table is cut at bars before anything else is read
    if not text.strip():
        return "(empty)" if not text else "(blank)"
    fence = "`" * (_longest_run(text) + 1)
    # One space on either side is taken off again.
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def code_block(source: str, language: str = "") -> str:
    """Lines of code, fenced by more backticks than they hold."""
    fence = "`" * max(3, _longest_run(source) + 1)
    return f"{fence}{language}\n{source.rstrip()}\n{fence}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are safe already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
