"""The studies of the course: what is asked of the machine holds for the base that a study starts from too."""

import sys
from pathlib import Path

import pytest

from headstart.machine import choose

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Begun(Exception):
    """The training of a base, which is not to go on."""


@pytest.mark.parametrize("more", [[], ["--fast"]])
def test_the_base_of_ag_news_is_trained_on_the_machine_that_was_asked_for(more, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import studies

    asked = []

    def chosen(*arguments, **named):
        asked.append((arguments, named))
        return choose("cpu")

    def begin(*_, **named):
        raise Begun(named["machine"])

    monkeypatch.setattr(studies, "choose", chosen)
    monkeypatch.setattr(studies, "pretrain", begin)
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["studies.py", "ag-news", "--out", str(tmp_path), "--device", "cuda", *more])
    with pytest.raises(Begun):
        studies.main()
    assert asked == [(("cuda",), {"fast": bool(more)})]
