"""Where tables are printed."""

from rich.console import Console


def table_console() -> Console:
    """Standard output, as wide as its terminal; where it is none, as wide as a table needs: nothing is cut."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)
