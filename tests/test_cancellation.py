"""Work that is cancelled ends before its next step, wherever it takes long."""

import threading

import pytest
import tiny_runs
import translators

from headstart.cancellation import Cancelled, cancelled_when, stop_if_cancelled
from headstart.config.generation import GenerationConfig
from headstart.inference.attention_maps import attention_of
from headstart.inference.attribution import attribution_of
from headstart.inference.generate import generate
from headstart.inference.perplexity import score_tokens
from headstart.inference.predict import predict
from headstart.inference.translate import translate

TEXT, MACHINE = "une histoire vraiment belle.", tiny_runs.MACHINE
WORK = {
    "classify": lambda: list(predict(tiny_runs.run_of("classification"), [TEXT], MACHINE)),
    "leave-one-out": lambda: attribution_of(tiny_runs.run_of("classification"), TEXT, MACHINE),
    "gradient": lambda: attribution_of(tiny_runs.run_of("classification"), TEXT, MACHINE, method="gradient"),
    "score": lambda: score_tokens(tiny_runs.run_of("causal"), TEXT * 9, MACHINE),
    "generate": lambda: generate(tiny_runs.run_of("causal"), TEXT, MACHINE),
    "beam": lambda: generate(tiny_runs.run_of("causal"), TEXT, MACHINE, GenerationConfig(beam=2)),
    "translate": lambda: list(translate(translators.run_of(), [TEXT], MACHINE)),
    "attention": lambda: attention_of(translators.run_of(), TEXT, MACHINE),
}


@pytest.mark.parametrize("name", WORK)
def test_all_that_takes_long_asks_before_its_steps(name):
    WORK[name]()
    with cancelled_when(lambda: True), pytest.raises(Cancelled):
        WORK[name]()


@pytest.mark.parametrize("name", ["score", "generate", "beam", "translate"])
def test_what_has_many_steps_is_cancelled_between_them(name):
    asked = []

    def at_the_third_step():
        asked.append(name)
        return len(asked) == 3

    with cancelled_when(at_the_third_step), pytest.raises(Cancelled):
        WORK[name]()
    assert len(asked) == 3


def test_what_another_thread_does_is_its_own():
    found = []
    with cancelled_when(lambda: True):
        thread = threading.Thread(target=lambda: found.append(stop_if_cancelled()))
        thread.start()
        thread.join()
    assert found == [None]
    stop_if_cancelled()
