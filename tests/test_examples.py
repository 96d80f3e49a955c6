"""The examples run as they stand, every cell of them shows something, and each says what to do next."""

import ast
import re
from pathlib import Path

import forked
import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)

# Each cell by itself, as a notebook has it, with what it printed between them.
RUN_CELLS = """
import sys
from pathlib import Path
text = Path(sys.argv[1]).read_text(encoding="utf-8")
names = {"__name__": "__main__"}
for number, cell in enumerate(text.split("# %%\\n")[1:]):
    print(f"--- cell {number}", flush=True)
    exec(compile(cell, f"{sys.argv[1]} cell {number}", "exec"), names)
"""


def cells(path):
    """The kind and the text of each cell."""
    parts = CELL.split(path.read_text(encoding="utf-8"))
    assert parts[0] == ""
    return list(zip([kind.strip() for kind in parts[1::2]], parts[2::2], strict=True))


def test_there_is_one_for_each_thing_that_people_come_for():
    names = {path.stem for path in EXAMPLES}
    assert names == {"classify_my_csv", "pretrain_on_a_folder", "translate", "use_a_checkpoint"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_prose_and_code_take_turns_and_the_end_says_what_is_next(path):
    found = cells(path)
    assert [kind for kind, _ in found] == (["[markdown]", ""] * len(found))[: len(found)]
    assert found[0][1].startswith("# # ")
    assert found[-1][1].startswith("# ## What to do next")
    for kind, text in found:
        if kind:
            assert all(line.startswith("#") for line in text.splitlines() if line), "prose is in comments"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_of_the_package_they_import_the_top_alone(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.partition(".")[0] == "headstart"} == {"headstart"}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_cell_runs_and_shows_something(path, tmp_path):
    if path.stem == "use_a_checkpoint":
        pytest.importorskip("transformers")
    environment = {"HEADSTART_EXAMPLES": str(tmp_path), "HEADSTART_CACHE": str(tmp_path / "cache")}
    code = forked.run(RUN_CELLS, path, output=tmp_path / "said", environment=environment, seconds=600)
    said = (tmp_path / "said").read_text()
    assert code == 0, said[-3_000:]
    shown = re.split(r"^--- cell \d+\n", said, flags=re.MULTILINE)[1:]
    assert len(shown) == sum(not kind for kind, _ in cells(path))
    assert all(part.strip() for part in shown)
