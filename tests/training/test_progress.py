"""A long evaluation tells how far it is: shares that rise to the whole, whatever is evaluated."""

import pytest
import tiny_runs

from headstart.inference.evaluate import evaluate_run


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification", "regression", "pairs"])
def test_an_evaluation_tells_the_share_that_is_done(kind):
    run, shares = tiny_runs.run_of(kind), []
    data = tiny_runs.files()["valid" if kind in tiny_runs.LANGUAGE else (kind, "test")]
    scores = evaluate_run(run, data, tiny_runs.MACHINE, on_share=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] <= 1
    assert shares[-1] > 0.9
    assert scores == evaluate_run(run, data, tiny_runs.MACHINE)
