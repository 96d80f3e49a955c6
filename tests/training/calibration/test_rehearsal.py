"""A rehearsal: every kind of head trains on random tokens."""

from typing import get_args

import pytest
import tiny_runs

from headstart.config.model import HeadConfig, HeadKind
from headstart.config.presets import preset
from headstart.planning.workload import Lengths, Workload, reading_of
from headstart.training.calibration.rehearsal import one_update, rehearsal


@pytest.mark.parametrize("kind", sorted(set(get_args(HeadKind)) - {"next-sentence", "none"}))
def test_every_objective_can_be_rehearsed(kind):
    name = "transformer-tiny" if kind == "translation" else "tiny"
    fields = {"width": 16, "heads": 2, "ffn": 24, "depth": 1, "segments": 2 if "nsp" in kind else 0}
    if kind == "translation":
        fields["decoder_depth"] = 1
    direction = "bidirectional" if kind.startswith("masked") else None
    work = Workload(
        config=preset(name, vocab=50, direction=direction, **fields), head=HeadConfig(kind=kind, classes=3), batch=4,
        lengths=Lengths(12, 9 if kind == "translation" else 0), reading=reading_of(kind), accumulate=2,
    )  # fmt: skip
    update = one_update(rehearsal(work, tiny_runs.MACHINE))
    numbers = update(0).read()
    assert numbers.is_updated
    assert 0 < numbers.loss < 20
