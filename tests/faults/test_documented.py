"""The page of the faults names a test for each of them, and each of these tests exists."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
HEADER = ["fault", "what happens", "test"]
TABLE_LINES = [
    [cell.strip() for cell in line.strip().strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
]
ROWS = [cells for cells in TABLE_LINES if cells != HEADER and set("".join(cells)) != {"-"}]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def defined_in(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    return set(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_every_fault_has_tests_that_exist(row):
    fault, promise, tests = row
    assert fault
    assert promise
    assert re.fullmatch(rf"{TEST.pattern}(, {TEST.pattern})*", tests), tests
    assert [name for path, name in TEST.findall(tests) if name not in defined_in(path)] == []


def test_every_section_is_a_table_that_is_read():
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert TABLE_LINES.count(HEADER) == len(headings) > 5
    assert len(ROWS) > 90
