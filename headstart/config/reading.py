"""How files are read: the settings that every reader of text, rows and pairs takes."""

from typing import Literal

from headstart.config.schema import Settings

Documents = Literal["auto", "line", "blank", "file"]
DecodingErrors = Literal["strict", "replace", "ignore"]


class RowReading(Settings):
    """How rows are read."""

    text_column: str = "text"
    """The column of the text: a name, or a number from 1 in a file without a header."""

    label_column: str = "label"
    """The column of the label: a name, or a number from 1 in a file without a header."""

    encoding: str = "utf-8"
    """The encoding of the files."""

    errors: DecodingErrors = "strict"
    """What to do with bytes that do not decode: stop, replace them with U+FFFD, or drop them."""

    skip_bad_rows: bool = False
    """Skip and count rows that cannot be used, instead of stopping at the first."""


class DocumentSplit(Settings):
    """How a text is split into documents."""

    documents: Documents = "auto"
    """What a document of a .txt file is: a line, what stands between blank lines, the whole file, or (auto) the
    second where blank lines occur and else the first."""


class Reading(RowReading, DocumentSplit):
    """How files are read."""


DEFAULT_READING = Reading()
