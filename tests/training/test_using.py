"""What can be done with a run, against truth found another way: token by token, text by text, by hand."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import small
import tiny_runs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from headstart.decoding.search import Sampling
from headstart.errors import UserError
from headstart.text.tokenizer_training import train as train_tokenizer
from headstart.training import windows
from headstart.training.generating import HALF_A_CHARACTER, WholeCharacters, generate, read_prompt, writing
from headstart.training.language_scores import LanguageScores
from headstart.training.predicting import embed, predict, texts_in_file
from headstart.training.using import SERVES, corpus_store, evaluate_run, open_run, require

MACHINE = tiny_runs.MACHINE
GREEDY = Sampling(temperature=0.0)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.place() / "cache"))


def silenced(run):
    """The same run with every weight zero: it knows nothing, and all tokens are equally likely to it."""
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    return run


def one_line(name, text):
    path = tiny_runs.place() / name
    path.write_text(text, encoding="utf-8")
    return path


# ---- language models --------------------------------------------------------------------------------------


def losses_by_hand(run, path, length):
    """(tokens read, nats) of every token, one at a time: each text alone, cut where blocks of the stream are."""
    begin, end = run.tokenizer.id_of("begin"), run.tokenizer.id_of("end")
    found, place = [], 0
    for text in path.read_text().splitlines():
        tokens = [begin, *map(int, run.tokenizer.encode(text)), end]
        for i in range(1, len(tokens)):
            block_start = (place + i - 1) // length * length
            context = tokens[max(0, block_start - place) : i]
            with torch.no_grad():
                logits = run.model(torch.tensor([context]))[0, -1].double()
            found.append((len(context), -float(logits.log_softmax(-1)[tokens[i]])))
        place += len(tokens)
    return found


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
def test_loss_perplexity_and_bits_per_byte_are_those_of_a_loop_over_tokens(kind):
    run, path = tiny_runs.run_of(kind), tiny_runs.files()["valid"]
    by_hand = [nats for _, nats in losses_by_hand(run, path, tiny_runs.LENGTH)]
    found = evaluate_run(run, path, MACHINE)
    assert found.count == len(by_hand)
    assert found.metrics["loss"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(np.mean(by_hand)), rel=1e-4)
    text_bytes = sum(len(line.encode()) for line in path.read_text().splitlines())
    assert found.details["text_bytes"] == text_bytes
    assert found.metrics["bits_per_byte"] == pytest.approx(sum(by_hand) / math.log(2) / text_bytes, rel=1e-5)


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp"])
def test_a_run_scores_on_its_valid_set_what_it_scored_in_training(kind):
    result = json.loads((tiny_runs.path_of(kind) / "result.json").read_text())
    found = evaluate_run(tiny_runs.run_of(kind), tiny_runs.files()["valid"], MACHINE)
    for measure, value in result["valid"].items():
        assert found.metrics[measure] == pytest.approx(value, rel=1e-6), measure
    assert ("masked_accuracy" in found.metrics) == (kind != "causal")
    assert ("pair_accuracy" in found.metrics) == (kind == "masked-nsp")


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_run_that_knows_nothing_loses_log_v(kind):
    run, path = silenced(tiny_runs.run_of(kind)), tiny_runs.files()["valid"]
    found = evaluate_run(run, path, MACHINE)
    vocab = run.tokenizer.size
    assert found.metrics["loss"] == pytest.approx(math.log(vocab), rel=1e-6)
    if kind == "causal":
        lines = path.read_text().splitlines()
        tokens = sum(len(ids) + 1 for ids in run.tokenizer.encode_many(lines))
        text_bytes = sum(len(line.encode()) for line in lines)
        assert found.count == tokens
        assert found.metrics["perplexity"] == pytest.approx(vocab, rel=1e-5)
        assert found.metrics["bits_per_byte"] == pytest.approx(
            math.log2(vocab) * tokens / text_bytes, rel=1e-6
        )


@pytest.mark.parametrize("kind", ["causal", "rotary"])
def test_loss_by_position_at_four_times_the_trained_length(kind):
    run, path = tiny_runs.run_of(kind), tiny_runs.files()["long"]
    length = 4 * tiny_runs.LENGTH
    by_hand = losses_by_hand(run, path, length)
    found = evaluate_run(run, path, MACHINE, length=length)
    by_position = found.details["loss_by_position"]
    assert len(by_position) == length
    for read in (1, 2, tiny_runs.LENGTH, tiny_runs.LENGTH + 1, length):
        expected = [nats for seen, nats in by_hand if seen == read]
        assert found.details["count_by_position"][read - 1] == len(expected) > 0
        assert by_position[read - 1] == pytest.approx(np.mean(expected), rel=1e-4)
    for bucket in found.details["buckets"]:
        inside = [nats for seen, nats in by_hand if bucket["first"] <= seen <= bucket["last"]]
        assert bucket["count"] == len(inside)
        assert bucket["loss"] == pytest.approx(np.mean(inside), rel=1e-4)
    firsts = [bucket["first"] for bucket in found.details["buckets"]]
    assert tiny_runs.LENGTH + 1 in firsts, "the trained length is an edge"


def test_positions_are_those_in_the_document_and_not_in_the_block():
    run, path = tiny_runs.run_of("causal"), tiny_runs.files()["corpus"]
    lengths = [len(ids) + 1 for ids in run.tokenizer.encode_many(path.read_text().splitlines())]
    found = evaluate_run(run, path, MACHINE, length=64)
    counts = found.details["count_by_position"]
    assert sum(counts) == sum(lengths)
    assert counts[max(lengths) :] == [0] * (64 - max(lengths))
    assert found.details["loss_by_position"][-1] is None


def test_where_no_text_is_longer_than_the_trained_length_that_is_said():
    run, told = tiny_runs.run_of("causal"), []
    evaluate_run(run, one_line("short.txt", "une fin.\nun livre.\n"), MACHINE, length=64, tell=told.append)
    assert "nothing here is longer than the 16 tokens" in told[0]
    evaluate_run(run, tiny_runs.files()["long"], MACHINE, length=64, tell=told.append)
    assert len(told) == 1


def test_learned_positions_beyond_the_table_are_refused_before_the_data_is_looked_at():
    run = tiny_runs.run_of("learned")
    with pytest.raises(UserError, match="96 tokens, but the run's learned positions end at 24"):
        evaluate_run(run, "there-is-no-such-file.txt", MACHINE, length=96)
    assert (
        evaluate_run(run, tiny_runs.files()["long"], MACHINE, length=24).details["count_by_position"][23] > 0
    )
    with pytest.raises(UserError, match="length is 0"):
        evaluate_run(run, "there-is-no-such-file.txt", MACHINE, length=0)


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_text_shorter_than_a_block_is_scored_all_the_same(kind):
    path = one_line("short.txt", "une fin.\n")
    run = tiny_runs.run_of(kind)
    found = evaluate_run(run, path, MACHINE)
    tokens = len(run.tokenizer.encode("une fin.")) + 1
    assert tokens < tiny_runs.LENGTH
    assert found.count == tokens if kind == "causal" else found.count >= 1


def test_buckets_stay_few_and_cover_every_position_once():
    scores = LanguageScores(np.ones(1000), np.full(1000, 2), 1)
    buckets = scores.buckets(trained_length=16)
    assert len(buckets) <= 32
    assert buckets[0]["first"] == 1
    assert buckets[-1]["last"] == 1000
    assert all(a["last"] + 1 == b["first"] for a, b in itertools.pairwise(buckets))
    assert sum(bucket["count"] for bucket in buckets) == 2000


def test_unknown_tokens_are_told_because_they_flatter_the_scores():
    run, told = tiny_runs.run_of("char"), []
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, objective="causal"))
    corpus_store(run, one_line("signs.txt", "belle ☺☺ fin\n"), tell=told.append)
    assert "2 of 12 tokens are unknown" in told[0]


# ---- fine-tuned runs --------------------------------------------------------------------------------------


def rows_of(kind):
    return [json.loads(line) for line in tiny_runs.files()[kind, "test"].read_text().splitlines()]


def answers(kind, texts):
    return [found.answer for found in predict(tiny_runs.run_of(kind), texts, MACHINE)]


def test_classification_measures_are_scikit_learns_over_the_predictions():
    rows = rows_of("classification")
    found = evaluate_run(
        tiny_runs.run_of("classification"), tiny_runs.files()["classification", "test"], MACHINE
    )
    predicted = [answer["label"] for answer in answers("classification", [row["text"] for row in rows])]
    true = [row["label"] for row in rows]
    assert found.count == len(rows)
    assert found.metrics["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, predicted))
    assert found.metrics["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(true, predicted, average="macro", zero_division=0)
    )
    assert found.metrics["mcc"] == pytest.approx(sklearn_metrics.matthews_corrcoef(true, predicted))
    majority = max(true.count("oui"), true.count("non")) / len(true)
    assert found.metrics["majority_accuracy"] == pytest.approx(majority)


def test_multilabel_and_regression_are_scored_by_their_own_measures():
    rows = rows_of("multilabel")
    found = evaluate_run(tiny_runs.run_of("multilabel"), tiny_runs.files()["multilabel", "test"], MACHINE)
    said = answers("multilabel", [row["text"] for row in rows])
    exact = np.mean(
        [set(answer["labels"]) == set(row["label"]) for answer, row in zip(said, rows, strict=True)]
    )
    assert found.metrics["accuracy"] == pytest.approx(exact)
    rows = rows_of("regression")
    found = evaluate_run(tiny_runs.run_of("regression"), tiny_runs.files()["regression", "test"], MACHINE)
    said = [answer["value"] for answer in answers("regression", [row["text"] for row in rows])]
    errors = np.array(said) - np.array([row["label"] for row in rows])
    assert found.metrics["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)


def test_a_label_that_the_run_does_not_know_is_refused_before_anything_is_computed(monkeypatch):
    run = tiny_runs.run_of("classification")
    monkeypatch.setattr(run.model, "forward", lambda *arguments, **options: pytest.fail("computed"))
    path = one_line("unseen.jsonl", '{"text": "une fin", "label": "peut-être"}\n')
    with pytest.raises(UserError, match=r"'peut-être' \(1 rows, first at .*unseen.jsonl:1"):
        evaluate_run(run, path, MACHINE)


def test_every_kind_of_run_evaluates_itself_and_pairs_too():
    for kind in tiny_runs.LABELLED:
        found = evaluate_run(tiny_runs.run_of(kind), tiny_runs.files()[kind, "test"], MACHINE)
        assert found.count == 30
        assert all(math.isfinite(value) for value in found.metrics.values())


TEXTS = ["", "une belle histoire", "   ", "livre " * 40, "☺", "un", "très belle fin.", ""]


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "char"])
def test_a_batch_of_predictions_is_what_each_text_gets_alone(kind, monkeypatch):
    together = answers(kind, TEXTS)
    alone = [answers(kind, [text])[0] for text in TEXTS]
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 3)
    in_windows = answers(kind, iter(TEXTS))
    for one, other, third in zip(together, alone, in_windows, strict=True):
        values = [list(answer.get("probabilities", answer).values()) for answer in (one, other, third)]
        assert values[0] == pytest.approx(values[1], abs=1e-5)
        assert values[0] == pytest.approx(values[2], abs=1e-5)
        assert one.keys() == other.keys()
        assert one.get("label") == other.get("label")
    assert together[0] == pytest.approx(together[-1]) if kind == "regression" else together[0] == together[-1]


@pytest.mark.parametrize("kind", ["classification", "char"])
def test_empty_and_unknown_texts_have_a_defined_answer(kind):
    run = tiny_runs.run_of(kind)
    if kind == "char":
        unknown = run.tokenizer.id_of("unknown")
        assert run.tokenizer.encode("☺☺").tolist() == [unknown, unknown]
    for batch in (["", "une fin", ""], ["☺☺"], [""], ["☺☺", ""]):
        for answer in answers(kind, batch):
            probabilities = list(answer["probabilities"].values())
            assert all(math.isfinite(p) for p in probabilities)
            assert sum(probabilities) == pytest.approx(1.0, abs=1e-5)
            assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)


def test_texts_at_the_limit_are_whole_and_longer_ones_are_cut():
    run = tiny_runs.run_of("char")  # a token a character; two for the frame
    room = tiny_runs.LENGTH - 2
    texts = ["e" * (room - 1), "e" * room, "e" * (room + 1), "e" * room * 10]
    found = list(predict(run, texts, MACHINE))
    assert [prediction.is_cut for prediction in found] == [False, False, True, True]
    assert found[1].answer == found[2].answer == found[3].answer


def test_nothing_in_gives_nothing_out():
    assert answers("classification", []) == []


def test_pairs_are_read_as_pairs(tmp_path):
    texts = list(texts_in_file(tiny_runs.files()["pairs", "test"]))
    assert texts == [(row["text_a"], row["text_b"]) for row in rows_of("pairs")]
    accuracy = np.mean(
        [answer["label"] == row["label"] for answer, row in zip(answers("pairs", texts), rows_of("pairs"), strict=True)]
    )  # fmt: skip
    found = evaluate_run(tiny_runs.run_of("pairs"), tiny_runs.files()["pairs", "test"], MACHINE)
    assert found.metrics["accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "un\n\n  \ndeux", ["un", "", "  ", "deux"]),
        ("a.txt", "un\r\ndeux\r\n", ["un", "deux"]),
        ("a.txt", "", []),
        ("a.jsonl", '{"text": "un"}\n\n{"text": ""}\n{"text": "deux", "label": 7}\n', ["un", "", "deux"]),
        ("a.csv", 'text,n\nun,1\n"",2\n"de,ux",3\n', ["un", "", "de,ux"]),
        ("a.tsv", "n\ttext\n1\tun\n2\t\n", ["un", ""]),
        ("a.spm", "▁Que ▁faire ?\n", ["Que faire?"]),
        ("a.jsonl", '{"text_a": "un", "text_b": ""}\n', [("un", "")]),
    ],
)
def test_every_line_and_row_is_a_text_blank_ones_too(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    assert list(texts_in_file(path)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": 3}\n', "not text"),
        ('{"text": null}\n', "is empty"),
        ('{"txt": "un"}\n', "no column 'text'"),
        ('{"text": "\\ud800"}\n', "half of a character"),
        ('{"text": "un"}\nnonsense\n', "malformed JSON"),
    ],
)
def test_a_row_that_holds_no_text_is_refused_with_its_place(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        list(texts_in_file(path))
    assert "a.jsonl:" in caught.value.where
    assert "--skip-bad-rows" not in caught.value.fix, "there is no such flag here"


# ---- vectors ----------------------------------------------------------------------------------------------


def vectors(kind, texts, pool):
    return [found.vectors for found in embed(tiny_runs.run_of(kind), texts, MACHINE, pool)]


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification"])
def test_one_word_in_two_sentences_gets_two_vectors_and_one_sentence_twice_the_same(kind):
    run = tiny_runs.run_of(kind)
    texts = ["un livre triste", "une belle histoire, un livre triste", "un livre triste"]
    word = [int(i) for i in run.tokenizer.encode(" triste")]
    found = list(embed(run, texts, MACHINE, "tokens"))
    of_word = []
    for one in found:
        tokens = one.tokens.tolist()
        place = next(i for i in range(len(tokens)) if tokens[i : i + len(word)] == word)
        of_word.append(one.vectors[place + len(word) - 1])
    assert np.abs(of_word[0] - of_word[1]).max() > 1e-2
    assert of_word[0] == pytest.approx(of_word[2], abs=1e-6)
    assert np.abs(found[0].vectors - found[2].vectors).max() < 1e-6


@pytest.mark.parametrize("kind", ["causal", "masked", "char"])
def test_pooled_vectors_are_made_of_the_tokens_vectors_and_padding_never_counts(kind):
    for text, tokens in zip(TEXTS, vectors(kind, TEXTS, "tokens"), strict=True):
        assert np.isfinite(tokens).all()
        assert tokens.shape[1] == tiny_runs.SHAPE["width"]
        alone = {pool: vectors(kind, [text], pool)[0] for pool in ("first", "mean", "last")}
        assert alone["first"] == pytest.approx(tokens[0], abs=1e-5)
        assert alone["last"] == pytest.approx(tokens[-1], abs=1e-5)
        assert alone["mean"] == pytest.approx(tokens.mean(axis=0), abs=1e-5)
    for pool in ("first", "mean", "last"):
        together = np.stack(vectors(kind, TEXTS, pool))
        assert together == pytest.approx(np.stack([vectors(kind, [t], pool)[0] for t in TEXTS]), abs=1e-5)


# ---- writing ----------------------------------------------------------------------------------------------


def greedy_by_hand(run, prompt, count):
    words = run.tokenizer
    ids = [words.id_of("begin"), *map(int, words.encode(prompt))]
    allowed = [i for i in range(words.size) if i not in words.special_ids or i == words.id_of("end")]
    written = []
    for _ in range(count):
        with torch.no_grad():
            logits = run.model(torch.tensor([ids]))[0, -1]
        token = allowed[int(logits[allowed].argmax())]
        if token == words.id_of("end"):
            break
        ids.append(token)
        written.append(token)
    return written


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
def test_greedy_writing_is_a_loop_over_the_likeliest_token(kind):
    run = tiny_runs.run_of(kind)
    for prompt in ("", "une belle", "le roman est"):
        expected = greedy_by_hand(run, prompt, 8)
        (found,) = generate(run, prompt, MACHINE, max_tokens=8, sampling=GREEDY)
        assert found.token_count == len(expected)
        assert found.stop == ("max-tokens" if len(expected) == 8 else "end")
        whole = run.tokenizer.decode([*run.tokenizer.encode(prompt), *expected])
        assert prompt + found.text == whole.rstrip(HALF_A_CHARACTER)


def test_the_same_seed_writes_the_same_and_each_text_has_luck_of_its_own():
    run = tiny_runs.run_of("causal")
    hot = [Sampling(temperature=1.5, top_p=0.99, seed=seed) for seed in (1, 2, 1)]
    texts = [
        [one.text for one in generate(run, "un", MACHINE, max_tokens=20, count=3, sampling=s)] for s in hot
    ]
    assert texts[0] == texts[2] != texts[1]
    assert len(set(texts[0])) == 3
    alone = [one.text for one in generate(run, "un", MACHINE, max_tokens=20, sampling=hot[0])]
    assert alone == texts[0][:1]


def test_writing_stops_at_the_end_token_which_is_not_shown():
    run = silenced(tiny_runs.run_of("causal"))
    # All are equally likely; of those that may come, the end token has the lowest number.
    may_come = set(range(run.tokenizer.size)) - run.tokenizer.special_ids
    assert run.tokenizer.id_of("end") < min(may_come)
    (found,) = generate(run, "un", MACHINE, sampling=GREEDY)
    assert (found.text, found.token_count, found.stop) == ("", 0, "end")


def prompt_of(run, token_count):
    """A prompt that is so many tokens long with its begin token."""
    words = [w for w in small.WORDS if len(run.tokenizer.encode(" " + w)) == 1]
    text = "".join(" " + words[i % len(words)] for i in range(token_count - 1))
    assert len(run.tokenizer.encode(text)) == token_count - 1
    return text


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
@pytest.mark.parametrize(("times", "more"), [(1, -1), (1, 0), (1, 1), (10, 0)])
@pytest.mark.parametrize("max_tokens", [1, 5, 200])
def test_a_prompt_of_any_length_is_gone_on_with_and_never_an_index_error(kind, times, more, max_tokens):
    run = tiny_runs.run_of(kind)
    context = run.config.model.context
    prompt = prompt_of(run, times * context + more)
    told = []
    (found,) = generate(
        run,
        prompt,
        MACHINE,
        max_tokens=max_tokens,
        sampling=Sampling(temperature=1.0, seed=3),
        tell=told.append,
    )
    if kind != "learned":
        assert found.stop in ("end", "max-tokens")
        assert any("on its own" in line for line in told)
        return
    begun = read_prompt(run, prompt, max_tokens)
    original = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode(prompt))]
    assert begun.ids[0] == original[0]
    assert begun.ids[1:] == original[len(original) - len(begun.ids) + 1 :], "the newest tokens stay"
    assert len(begun.ids) + begun.max_tokens - 1 <= context, "the last token that is read has a position"
    assert begun.max_tokens >= min(max_tokens, context // 2)
    dropped = len(original) - len(begun.ids)
    assert bool(told) == bool(dropped)
    if dropped:
        assert f"the oldest {dropped:,} tokens" in told[0]
    assert found.token_count <= begun.max_tokens
    if found.stop == "context":
        assert found.token_count == begun.max_tokens < max_tokens


def test_writing_fills_the_learned_context_to_its_last_position_and_says_so():
    run = tiny_runs.run_of("learned")
    context = run.config.model.context
    begun = read_prompt(run, "", 200)
    assert (len(begun.ids), begun.max_tokens, begun.is_short_of_room) == (1, context, True)
    texts = generate(run, "", MACHINE, max_tokens=200, count=20, sampling=Sampling(temperature=2.0))
    full = [one for one in texts if one.stop == "context"]
    assert full
    assert {one.token_count for one in full} == {context}
    assert all(one.token_count < context for one in texts if one.stop == "end")


def test_what_is_read_as_it_is_written_adds_up_to_the_text_and_can_be_left():
    run, sampling = tiny_runs.run_of("causal"), Sampling(temperature=3.0, seed=5)
    pieces = list(writing(run, "été", MACHINE, max_tokens=60, sampling=sampling))
    (whole,) = generate(run, "été", MACHINE, max_tokens=60, sampling=sampling)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.stop for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert any(piece.text == "" for piece in pieces[:-1]), "some tokens are half a character"
    going = writing(run, "été", MACHINE, max_tokens=60, sampling=sampling)
    next(going)
    going.close()
    assert list(going) == []


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece", "char"])
def words(request):
    return train_tokenizer(lambda: iter(small.sentences(200)), vocab=400, kind=request.param).tokenizer


@settings(deadline=None, max_examples=60)
@given(before=st.text("un été☺ 日\u0301-", max_size=6), after=st.text("un été☺ 日\u0301-", max_size=12))
def test_characters_come_whole_whatever_the_tokenizer(words, before, after):
    first, rest = ([int(i) for i in words.encode(text)] for text in (before, after))
    stream = WholeCharacters(words, [words.id_of("begin"), *first])
    pieces = [stream.add(token) for token in rest]
    whole = words.decode([*first, *rest])
    assert words.decode(first) + "".join(pieces) == whole
    assert not any(HALF_A_CHARACTER in piece for piece in pieces)


def test_a_byte_that_never_becomes_a_character_is_shown_as_such_once_more_follows():
    words = small.tokenizer()
    half = int(words.encode("☺")[0])
    stream = WholeCharacters(words, [])
    assert stream.add(half) == ""
    assert stream.add(int(words.encode("a")[0])) == HALF_A_CHARACTER + "a"


@pytest.mark.parametrize(("options", "message"), [
    ({"max_tokens": 0}, "max-tokens is 0"),
    ({"max_tokens": 10**9}, "max-tokens is 1,000,000,000"),
    ({"count": 0}, "count is 0"),
    ({"count": 10**6}, "count is 1,000,000"),
])  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        generate(tiny_runs.run_of("causal"), "un", MACHINE, **options)


# ---- which verb a run serves ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["causal", "masked", "masked-nsp", "classification", "multilabel", "regression"]
)
@pytest.mark.parametrize("verb", ["generate", "predict", "evaluate", "embed", "compare"])
def test_a_verb_that_a_run_cannot_serve_is_refused_and_one_that_can_is_named(kind, verb, tmp_path):
    if verb in SERVES[kind]:
        require(kind, verb, "a run")
        return
    broken = tmp_path / "run"  # without weights: it is refused before they are looked for
    broken.mkdir()
    (broken / "config.toml").write_text((tiny_runs.path_of(kind) / "config.toml").read_text())
    with pytest.raises(UserError, match=f"is a {kind} run: it cannot serve `headstart {verb}`") as caught:
        open_run(broken, verb, MACHINE)
    assert f"`headstart {SERVES[kind][0]}`" in caught.value.fix
    assert caught.value.exit_code == 2


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a run"):
        open_run(tmp_path, "predict", MACHINE)
    with pytest.raises(UserError, match="pickled weights"):
        open_run(tmp_path / "model.pt", "predict", MACHINE)
