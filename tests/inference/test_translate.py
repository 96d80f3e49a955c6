"""Using a translator: order, blank lines, long lines, other scripts, the n best, drawing, alignment."""

import dataclasses

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.errors import UserError
from headstart.inference import predict as windows
from headstart.inference.translate import (
    SOURCE_BATCH_TOKENS,
    Hypothesis,
    Translator,
    aligned,
    cross_attention,
    translate,
)
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer

TEXTS = ["le livre est belle.", "la fin.", "un roman très long est vraiment triste.", "une histoire."]
GREEDY = GenerationConfig(beam=1)


def translator(kind="joint"):
    run = translators.run_of(kind)
    run.model.double()
    return Translator.of(run, tiny_runs.MACHINE)


def best(texts, search=GREEDY, kind="joint", prefix=""):
    made = dataclasses.replace(translator(kind), prefix=prefix)
    return [one.candidates[0] for one in made.translate(texts, search)]


def ids(found):
    return [one.ids for one in found]


@pytest.mark.parametrize("kind", ["joint", "separate"])
@pytest.mark.parametrize("beams", [1, 3])
def test_every_text_has_the_translation_that_it_has_alone(kind, beams):
    search = GenerationConfig(beam=beams)
    together = best(TEXTS, search, kind)
    assert ids(together) == [ids(best([text], search, kind))[0] for text in TEXTS]
    assert ids(best(TEXTS[::-1], search, kind)) == ids(together)[::-1]
    assert len({tuple(one) for one in ids(together)}) > 1, "all the same shows no order"


def test_windows_and_batches_change_nothing(monkeypatch):
    texts = [*TEXTS, "", *small.sentences(12, seed=3), " ", "fin"]
    whole = best(texts)
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 3)
    monkeypatch.setitem(SOURCE_BATCH_TOKENS, "cpu", 40)
    assert ids(best(texts)) == ids(whole)


def test_texts_are_asked_for_as_they_are_needed(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 2)
    asked = []
    found = translator().translate((asked.append(text) or text for text in TEXTS), GREEDY)
    next(found)
    assert asked == TEXTS[:2]


def test_a_blank_text_stays_blank():
    found = list(translator().translate(["", "   ", "\t", TEXTS[0]], GREEDY))
    assert [one.candidates[0].text for one in found[:3]] == ["", "", ""]
    assert [one.source_ids for one in found[:3]] == [[], [], []]
    assert found[3].source_ids


def test_a_text_longer_than_the_run_is_cut_and_says_so():
    long = " ".join(small.sentences(30, seed=2))
    short, cut = translator().translate([TEXTS[1], long], GREEDY)
    assert (short.is_cut, cut.is_cut) == (False, True)
    assert len(cut.source_ids) == 32
    assert len(cut.candidates[0].ids) <= 31


@pytest.mark.parametrize(
    "text", ["Это по-русски", "日本語のテキスト", "\U0001f600\U0001f600", "e\u0301 \u202e abc", "</s><pad>"]
)
def test_other_scripts_are_bytes_to_a_byte_level_tokenizer(text):
    (found,) = translator().translate([text], GREEDY)
    assert not found.has_unknown
    special = small.tokenizer().special_ids
    assert not special & set(found.source_ids[1:-1])


def test_what_no_piece_is_for_is_read_as_unknown_and_never_written(tmp_path):
    tokenizer = train_tokenizer(lambda: iter(small.sentences(50)), vocab=60, kind="char").tokenizer
    translators.train(tmp_path / "run", tokenizer=tokenizer)
    run = load(tmp_path / "run")
    plain, strange = translate(run, ["le livre", "日本"], tiny_runs.MACHINE, GREEDY)
    assert (plain.has_unknown, strange.has_unknown) == (False, True)
    assert tokenizer.id_of("unknown") in strange.source_ids
    for one in (plain, strange):
        assert not tokenizer.special_ids & set(one.candidates[0].ids)


def test_a_translation_is_one_line():
    tokenizer = small.tokenizer()
    broken = [int(i) for i in tokenizer.encode("un\ndeux\r\ntrois")]
    made = translator()._candidate(Hypothesis(broken, 0.0, 0.0, True))
    assert made.text == "un deux trois"


def test_rules_of_the_search_are_handed_on():
    found = best(TEXTS, GenerationConfig(beam=2, min_tokens=5, max_tokens=7, no_repeat=1))
    assert all(5 <= len(one.ids) <= 7 and len(set(one.ids)) == len(one.ids) for one in found)
    begun = best(TEXTS, GenerationConfig(beam=2, max_tokens=4), prefix="La fin")
    prefix = [int(i) for i in small.tokenizer().encode("La fin")]
    assert all(one.text.startswith("La fin") and one.ids[: len(prefix)] == prefix for one in begun)
    assert all(len(one.ids) <= len(prefix) + 4 for one in begun)


def test_a_translation_is_bounded_by_the_length_of_its_source():
    loose = GenerationConfig(beam=3, max_length_ratio=3.0, max_length_extra=20)
    tight = GenerationConfig(beam=3, max_length_ratio=0.5, max_length_extra=2)
    texts = [*TEXTS, *small.sentences(12, seed=3)]
    bounded = list(translator().translate(texts, tight))
    longer = 0
    for free, found in zip(best(texts, loose), bounded, strict=True):
        most = int(0.5 * len(found.source_ids)) + 2
        assert len(found.candidates[0].ids) <= most
        if len(free.ids) < most:
            assert found.candidates[0] == free
        longer += len(free.ids) > most
    assert 0 < longer < len(texts)


def test_several_translations_come_best_first():
    for one in translator().translate(TEXTS, GenerationConfig(beam=4, count=4)):
        scores = [candidate.score for candidate in one.candidates]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)


def test_what_is_drawn_hangs_on_the_seed_and_the_number_of_the_text(monkeypatch):
    def drawn(texts, seed=1):
        return ids(best(texts, GenerationConfig(temperature=2.0, seed=seed)))

    texts = [TEXTS[0]] * 5
    one = drawn(texts)
    assert one == drawn(texts)
    assert one != drawn(texts, seed=2)
    assert len({tuple(ids) for ids in one}) > 1
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 2)
    assert drawn(texts) == one


def test_what_is_drawn_is_scored_by_the_model():
    run = translators.run_of()
    run.model.double()
    (found,) = translate(run, [TEXTS[2]], tiny_runs.MACHINE, GenerationConfig(temperature=1.0, seed=4))
    end, begin = small.tokenizer().id_of("end"), small.tokenizer().id_of("begin")
    written = found.candidates[0].ids
    whole = torch.tensor([[begin, *written, end]])
    with torch.no_grad():
        logs = run.model(torch.tensor([found.source_ids]), whole[:, :-1])[0].log_softmax(-1)
    each = logs.gather(-1, whole[0, 1:, None])[:, 0]
    assert len(written) < 30, "it has ended"
    assert found.candidates[0].score == pytest.approx(each.mean().item())


@pytest.mark.parametrize(
    "bad",
    [
        {"min_tokens": -1},
        {"max_tokens": 0},
        {"min_tokens": 5, "max_tokens": 4},
        {"no_repeat": -1},
        {"beam": 5, "temperature": 1.0},
    ],
)
def test_rules_that_mean_nothing_are_refused(bad):
    with pytest.raises(UserError):
        GenerationConfig(**bad)


# ---- alignment ----------------------------------------------------------------------------------------------


def test_cross_attention_is_the_mean_over_the_heads_of_a_layer():
    made = translator()
    (found,) = made.translate([TEXTS[0]], GREEDY)
    target = found.candidates[0].ids
    weights = [cross_attention(made, found.source_ids, target, layer) for layer in (1, 2)]
    for one in weights:
        assert one.shape == (len(target), len(found.source_ids))
        assert np.allclose(one.sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(*weights)
    assert np.array_equal(cross_attention(made, found.source_ids, target), weights[0]), "the last but one of two"
    with refused("bad-value", "1 to 2"):
        cross_attention(made, found.source_ids, target, 3)


def test_alignment_by_hand_leaves_special_tokens_aside():
    weights = np.array([[0.7, 0.2, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]], np.float32)
    pairs = aligned(weights, [False, True, True, False])
    assert [(pair.source, pair.target) for pair in pairs] == [(1, 0), (2, 1)]
    assert [pair.weight for pair in pairs] == pytest.approx([0.2, 0.2])
