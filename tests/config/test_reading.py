"""How files are read: one configuration, in parts that other settings share."""

import pytest
from expected_errors import refused

from headstart.config.reading import DEFAULT_READING, DocumentSplit, Reading, RowReading


def test_rows_and_documents_are_the_parts_of_a_reading():
    assert RowReading.names() | DocumentSplit.names() == Reading.names()
    assert RowReading(text_column="review").part(Reading, documents="file") == Reading(
        text_column="review", documents="file"
    )
    assert Reading() == DEFAULT_READING


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"errors": "ignored"}, ("errors", "'ignored'", "'ignore'")),
        ({"documents": "lines"}, ("documents", "'lines'", "'line'")),
    ],
)
def test_a_word_that_is_no_choice_is_refused_with_its_neighbour(given, names):
    with refused("bad-value", *names):
        Reading(**given)
