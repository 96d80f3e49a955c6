"""The sizes of a study's data."""

import gzip
import json

import pytest
from expected_errors import refused

from headstart.config.study import FinetunePart, PretrainPart, StudyConfig
from headstart.study.data import labelled_sets
from headstart.study.recipes.costs import Sizes, text_bytes


@pytest.fixture(params=["", ".gz"])
def config(tmp_path, request):
    """A corpus of 4,000 bytes and 50 labelled texts of 80, plain or compressed."""
    rows = [json.dumps({"text": f"{number:080}", "label": "ab"[number % 2]}) for number in range(50)]
    for name, text in (("corpus.txt", "x" * 4_000), ("train.jsonl", "\n".join(rows) + "\n")):
        opened = gzip.open if request.param else open
        with opened(tmp_path / f"{name}{request.param}", "wt") as file:
            file.write(text)
    corpus, train = (str(tmp_path / f"{name}{request.param}") for name in ("corpus.txt", "train.jsonl"))
    return StudyConfig(
        pretrain=[PretrainPart(corpus=[corpus])], finetune=FinetunePart(train=train, valid=train, test=train)
    )


def test_sizes_of_the_rows_as_they_are_read(config):
    sets = labelled_sets(config, lambda line: None)
    assert Sizes.of(config, sets) == Sizes(
        [1_000], 50, 22, 50, 50, classes=2, text_quantiles=(22.0,) * 101, document_tokens=1_000
    )


def test_long_texts_count_as_far_as_they_are_read():
    sizes = Sizes([], 4, 100, 0, 0, text_quantiles=(20, 80, 100, 200))
    assert [sizes.tokens_read(longest) for longest in (512, 100, 60)] == [100, 75, 50]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with refused("no-file", str(tmp_path / "none.txt")):
        text_bytes(str(tmp_path / "none.txt"))
