"""Training a translator: from scratch, from a base, from another translator; its scores; what is refused."""

import dataclasses
import json

import pandas
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.config.training import FinetuneSettings, LoopConfig
from headstart.data.labelled import evenly_spread, read_pairs
from headstart.errors import IntegrityError
from headstart.inference.evaluate import evaluate_run, score_pairs
from headstart.inference.metrics import bleu_and_chrf
from headstart.inference.translate import Translator
from headstart.runs.directory import MetricsFile
from headstart.runs.load import load
from headstart.training.fit import Console
from headstart.training.tasks import translation
from headstart.training.tasks.arguments import read_sets
from headstart.training.tasks.finetune import train_translator


def parameters(run):
    return dict(run.model.named_parameters())


def test_a_run_is_written_and_found_again():
    result = json.loads((translators.path_of() / "result.json").read_bytes())
    run = translators.run_of()
    assert run.finished
    assert run.digest == result["weights_sha256"]
    assert run.config.objective == "translation"
    assert run.config.model.shape == "encoder-decoder"
    assert run.config.loop.schedule == "inverse-sqrt"
    assert run.vocabularies.is_joint
    assert {"loss", "cross_entropy", "accuracy", "bleu", "chrf"} == set(result["valid"])
    assert {"bleu", "chrf"} == set(result["test"])
    assert result["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|")


def test_the_same_command_again_finds_it_finished():
    said = []
    before = (translators.path_of() / "result.json").read_bytes()
    translators.train(
        translators.path_of(),
        test=translators.files()["test"],
        steps=80,
        console=Console(said.append),
    )
    assert "nothing to do" in said[-1]
    assert (translators.path_of() / "result.json").read_bytes() == before


def test_the_result_has_the_scores_that_sacrebleu_gives():
    run, pairs = translators.run_of(), read_pairs(translators.files()["test"])
    translator = Translator.of(run, tiny_runs.MACHINE)
    result = json.loads((translators.path_of() / "result.json").read_bytes())
    found = score_pairs(translator, pairs, GenerationConfig(beam=5))
    assert found.values == pytest.approx(result["test"])
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = [one.candidates[0].text for one in translator.translate(pairs.sources, GenerationConfig(beam=5))]
    assert found.values["bleu"] == sacrebleu.corpus_bleu(texts, [pairs.targets]).score
    assert found.values["chrf"] == sacrebleu.corpus_chrf(texts, [pairs.targets]).score


def test_bleu_of_what_is_known():
    assert bleu_and_chrf(["Un chat dort bien ici."], ["Un chat dort bien ici."]).values == {
        "bleu": pytest.approx(100), "chrf": pytest.approx(100)
    }  # fmt: skip
    assert bleu_and_chrf(["xyz"], ["Un chat dort."]).values["bleu"] == 0


def test_separate_vocabularies_have_a_file_each(tmp_path):
    path = translators.path_of("separate")
    run = translators.run_of("separate")
    assert not (path / "tokenizer.json").exists()
    assert run.config.model.vocab == run.vocabularies.source.size
    assert run.config.model.target_vocab == run.vocabularies.target.size
    assert run.vocabularies.source.fingerprint != run.vocabularies.target.fingerprint
    assert parameters(run)["base.target_embedding.tokens.weight"].shape[0] == run.vocabularies.target.size
    said = []
    translators.train(path, vocabularies="separate", tokenizer=None, vocab=300, console=Console(said.append))
    assert "nothing to do" in said[-1]


@pytest.mark.parametrize("side", ["source", "target"])
def test_another_tokenizer_in_the_run_is_refused(tmp_path, side):
    out = tmp_path / "run"
    translators.train(out, vocabularies="separate", tokenizer=None, vocab=300)
    small.tokenizer().save(tmp_path)
    (tmp_path / "tokenizer.json").rename(out / f"tokenizer.{side}.json")
    with refused("mismatch", f"tokenizer.{side}.json", by=IntegrityError):
        load(out)
    with refused("mismatch", f"tokenizer.{side}.json", by=IntegrityError):
        translators.train(out, vocabularies="separate", tokenizer=None, vocab=300, steps=6)


# ---- starts -------------------------------------------------------------------------------------------------


def started(tmp_path, kind, into, **options):
    """What a translator has before its first step, the base that it started from, and what was told."""
    said = []
    translators.train(
        tmp_path / "run", start=tiny_runs.path_of(kind), start_into=into, console=Console(said.append),
        learning_rate=1e-30, steps=1, **options,
    )  # fmt: skip
    return load(tmp_path / "run"), tiny_runs.run_of(kind), "\n".join(said)


@pytest.mark.parametrize("kind", ["masked", "masked-nsp", "causal", "rotary", "learned"])
@pytest.mark.parametrize("into", ["encoder", "decoder", "both", None])
def test_a_pretrained_base_starts_the_encoder_the_decoder_or_both(tmp_path, kind, into):
    run, base, said = started(tmp_path, kind, into)
    own, theirs = parameters(run), parameters(base)
    stacks = {"both": ("encoder", "decoder"), None: ("encoder",)}.get(into, (into,))
    for stack in ("encoder", "decoder"):
        for name in (name for name in theirs if name.startswith("base.stack.")):
            here = own[name.replace("base.stack.", f"base.{stack}.")]
            is_same = torch.allclose(here, theirs[name], atol=1e-6)
            is_constant = name.endswith(("norm.weight", "bias"))  # those start the same anyway
            assert is_same == (stack in stacks) or is_constant, name
    assert torch.allclose(own["base.embedding.tokens.weight"], theirs["base.embedding.tokens.weight"], atol=1e-6)
    assert run.config.frame == base.config.frame
    assert run.config.translation.start_into == (into or "encoder")
    assert run.config.start == base.digest
    assert "tensors carried over" in said
    count = sum(name.startswith("base.stack.") for name in theirs)
    for stack in ("encoder", "decoder"):
        assert f"{stack:<18} {count if stack in stacks else 0} tensors from the start" in said
    assert "cross_attention" in said, "what stays new is named"


def test_a_start_can_have_a_decoder_of_another_depth(tmp_path):
    run, base, _ = started(tmp_path, "masked", "encoder", model={"decoder_depth": 1})
    assert (run.config.model.depth, run.config.model.decoder_depth) == (base.config.model.depth, 1)


@pytest.mark.parametrize("kind", ["joint", "separate"])
def test_another_translator_is_taken_whole(tmp_path, kind):
    said = []
    translators.train(
        tmp_path / "run", start=translators.path_of(kind), console=Console(said.append), learning_rate=1e-30,
        steps=1,
    )  # fmt: skip
    own, theirs = parameters(load(tmp_path / "run")), parameters(translators.run_of(kind))
    assert own.keys() == theirs.keys()
    assert all(torch.allclose(own[name], theirs[name], atol=1e-6) for name in own)
    assert "0 tensors made anew" in "\n".join(said)


# ---- what is trained on, and measured -----------------------------------------------------------------------


def test_without_valid_a_tenth_of_train_is_held_out_by_its_source(tmp_path):
    texts = small.sentences(40, seed=8)
    pairs = [(text, str(number)) for number, text in enumerate(texts + texts[:10])]
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    given, source = FinetuneSettings(task="translation", seed=3), {"train": str(tmp_path / "a.tsv")}
    sets = read_sets(source, read_pairs, lambda rows: (rows.sources, [0.0] * len(rows)), given, print)
    parts = {name: set(zip(rows.sources, rows.targets, strict=True)) for name, rows in sets.items()}
    assert parts["train"] | parts["valid"] == set(pairs)
    assert not {source for source, _ in parts["train"]} & {source for source, _ in parts["valid"]}
    assert 3 <= len(parts["valid"]) <= 7


def test_a_budget_of_pairs_is_kept(tmp_path):
    translators.train(tmp_path / "run", labels=7, steps=None, epochs=1, batch_tokens=64)
    steps = load(tmp_path / "run").step
    translators.train(tmp_path / "all", steps=None, epochs=1, batch_tokens=64)
    assert steps < load(tmp_path / "all").step / 4


def test_bleu_on_valid_is_there_at_every_evaluation_where_asked(tmp_path):
    loop = LoopConfig(schedule="inverse-sqrt", evaluate_every=2)
    translators.train(tmp_path / "run", valid_bleu=True, loop=loop)
    log = MetricsFile(tmp_path / "run/metrics.jsonl", print).read()
    scores = [line for line in log if line.get("event") == "valid"]
    assert [line["step"] for line in scores] == [2, 4]
    assert all({"loss", "cross_entropy", "bleu", "chrf"} <= set(line) for line in scores)
    assert scores[0]["loss"] > scores[0]["cross_entropy"] > 0  # smoothing asks for what cannot be had


def test_evaluate_gives_the_loss_the_perplexity_and_the_scores_with_their_signatures():
    found = evaluate_run(translators.run_of(), translators.files()["valid"], tiny_runs.MACHINE)
    result = json.loads((translators.path_of() / "result.json").read_bytes())
    assert found.count == 15
    for name, value in result["valid"].items():
        assert found.metrics[name] == pytest.approx(value)
    assert found.metrics["perplexity"] == pytest.approx(torch.tensor(found.metrics["cross_entropy"]).exp().item())
    assert found.details["signatures"] == result["signatures"]
    greedy = evaluate_run(
        translators.run_of(),
        translators.files()["valid"],
        tiny_runs.MACHINE,
        generation=GenerationConfig(beam=1),
    )
    assert greedy.metrics["loss"] == found.metrics["loss"]
    assert greedy.details["beam"] == 1


def test_evaluate_cuts_at_a_length_for_the_loss_and_for_the_translations_alike():
    run, file = translators.run_of(), translators.files()["test"]
    found = evaluate_run(run, file, tiny_runs.MACHINE, length=6)
    translator = dataclasses.replace(Translator.of(run, tiny_runs.MACHINE), length=6)
    assert found.metrics.items() >= score_pairs(translator, read_pairs(file), GenerationConfig(beam=5)).values.items()
    assert found.metrics["chrf"] != evaluate_run(run, file, tiny_runs.MACHINE).metrics["chrf"]


def test_pairs_longer_than_a_batch_of_the_training_are_measured(tmp_path):
    long = " ".join(small.sentences(30))
    (tmp_path / "long.tsv").write_text(f"le livre\tlivre le\n{long}\t{long}\n")
    result = translators.train(tmp_path / "run", batch_tokens=48, length=24, test=tmp_path / "long.tsv", labels=9)
    assert set(result["test"]) == {"bleu", "chrf"}
    found = evaluate_run(load(tmp_path / "run"), tmp_path / "long.tsv", tiny_runs.MACHINE, length=60)
    assert found.count == 2


def test_bleu_on_valid_is_over_pairs_of_the_whole_file_and_says_how_many(tmp_path, monkeypatch):
    pairs = read_pairs(translators.files()["valid"])
    assert evenly_spread(pairs, 5).locations == [pairs.locations[row] for row in (0, 3, 6, 9, 12)]
    assert evenly_spread(pairs, 99).locations == pairs.locations
    monkeypatch.setattr(translation, "SCORED_PAIRS", 5)
    said = []
    result = translators.train(tmp_path / "run", console=Console(said.append))
    assert any("over 5 of its 15 pairs" in line for line in said)
    translator = Translator.of(load(tmp_path / "run"), tiny_runs.MACHINE)
    assert (
        result["valid"].items()
        >= score_pairs(translator, evenly_spread(pairs, 5), GenerationConfig(beam=5)).values.items()
    )


def test_a_sample_is_scored_while_training_and_all_at_the_end(tmp_path, monkeypatch):
    counts = []

    def counted(translator, pairs, config):
        counts.append(len(pairs))
        return score_pairs(translator, pairs, config)

    monkeypatch.setattr(translation, "SAMPLED_PAIRS", 4)
    monkeypatch.setattr(translation, "score_pairs", counted)
    loop = LoopConfig(schedule="inverse-sqrt", evaluate_every=2)
    said = []
    translators.train(tmp_path / "run", valid_bleu=True, loop=loop, console=Console(said.append))
    assert counts[:2] == [4, 4]
    assert set(counts[2:]) == {15}
    assert any("over 4 pairs of valid while training" in line for line in said)


def test_how_translations_are_searched_for_is_a_setting_of_the_run(tmp_path):
    out = tmp_path / "run"
    translators.train(out, beam=2, length_penalty=0.5)
    assert (load(out).config.translation.beam, load(out).config.translation.length_penalty) == (2, 0.5)
    with refused("changed", "translation.beam was 2, is 5"):
        translators.train(out)


@pytest.mark.parametrize("side", ["tokenizer", "target_tokenizer"])
def test_a_tokenizer_that_is_not_given_is_trained_once(tmp_path, side):
    settings = {"vocabularies": "separate", "tokenizer": None, "vocab": 300, side: small.tokenizer()}
    said = []
    translators.train(tmp_path / "run", **settings)
    translators.train(tmp_path / "run", **settings, console=Console(said.append))
    assert not any("training a tokenizer" in line for line in said)
    assert "nothing to do" in said[-1]


# ---- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "name"),
    [
        ({"preset": "tiny", "model": {"width": 16}}, "conflict", "the preset tiny"),
        ({"start_into": "encoder"}, "conflict", "--start-into=encoder"),
        ({"label_smoothing": 1.5}, "bad-value", "label_smoothing is 1.5"),
        ({"loop": LoopConfig(unfreeze_every=2)}, "conflict", "--unfreeze-every"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, options, code, name):
    with refused(code, name):
        translators.train(tmp_path / "run", **options)


def test_a_batch_that_is_shorter_than_a_pair_is_refused(tmp_path):
    with refused("too-large", "--batch-tokens", "8"):
        translators.train(tmp_path / "run", batch_tokens=8)


def test_pairs_may_be_in_memory(tmp_path):
    files = {name: read_pairs(path) for name, path in translators.files().items()}
    frames = {
        name: pandas.DataFrame({"source": pairs.sources, "target": pairs.targets}) for name, pairs in files.items()
    }
    by_file, by_frame = tmp_path / "files", tmp_path / "frames"
    translators.train(by_file)
    translators.train(by_frame, **frames)
    assert load(by_frame).digest == load(by_file).digest
    assert load(by_frame).config.data.train == "pandas.DataFrame"


def test_pairs_that_all_have_one_source_need_valid(tmp_path):
    (tmp_path / "a.tsv").write_text("un\tone\nun\ta\n")
    with refused("too-few", "a.tsv", "--valid"):
        train_translator(tmp_path / "a.tsv", out=tmp_path / "run", machine=tiny_runs.MACHINE)


def test_a_start_brings_its_tokenizer(tmp_path):
    for options in ({"tokenizer": small.tokenizer()}, {"vocabularies": "separate"}):
        with refused("conflict", "--start", "tokenizer", "vocabularies"):
            translators.train(tmp_path / "run", start=tiny_runs.path_of("masked"), **options)


def test_start_into_is_for_a_single_stack(tmp_path):
    with refused("conflict", "--start-into=both", "a translation run"):
        translators.train(tmp_path / "run", start=translators.path_of(), start_into="both")
