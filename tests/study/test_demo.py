"""The embedded corpus, on which the answer is known: the study finds what is there, and nothing where nothing is."""

import dataclasses

import pytest

from headstart.study.settings import demo_config
from headstart.study.study import study as run_study


@pytest.mark.slow
@pytest.mark.parametrize("null", [False, True], ids=["plain", "null"])
def test_the_verdict_is_true_of_the_embedded_corpus(null, tmp_path):
    config = demo_config(null)
    study = dataclasses.replace(config.study, arms=["scratch", "finetuned"], budgets=[50])
    found = run_study(dataclasses.replace(config, study=study), out=tmp_path / "study")
    (row,) = [d for d in found.differences if d.against == "scratch"]
    text = " ".join(found.verdict)
    assert found.pretraining[0].base.status == "learned"
    if null:
        assert row.p_holm >= 0.05
        assert "Pretraining pays" not in text
        assert "Pretraining makes no clear difference" in text
    else:
        assert row.low > 0.1
        assert "Pretraining pays, compared with scratch" in text
        assert "Scratch needs" in text
