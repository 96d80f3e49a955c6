"""Our own runs out to `transformers`: the same logits where a family has our options, else the option's name."""

import json

import foreign
import pytest
import random_runs
import small
import tiny_runs
import torch

from headstart.errors import UserError
from headstart.interop.exporting import export_huggingface
from headstart.interop.importing import import_huggingface
from headstart.text.frames import frame_of
from headstart.training.budget import Budget
from headstart.training.finetune import finetune
from headstart.training.loading import load

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
AUTO = {
    "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM",
    "masked-nsp": "AutoModelForPreTraining", "classification": "AutoModelForSequenceClassification",
    "multilabel": "AutoModelForSequenceClassification", "regression": "AutoModelForSequenceClassification",
}  # fmt: skip
BIDIRECTIONAL = {"direction": "bidirectional"}
TEXTS = small.sentences(5, seed=9)


def outputs(run, directory):
    """Ours and theirs for the same texts, each with its own tokenizer, padded."""
    words = transformers.AutoTokenizer.from_pretrained(directory)
    model = getattr(transformers, AUTO[run.config.objective]).from_pretrained(directory).eval()
    inputs = words(TEXTS, padding=True, return_tensors="pt")
    present = inputs["attention_mask"].bool()
    with torch.no_grad():
        theirs = model(**inputs)
        segments = inputs.get("token_type_ids") if run.config.model.segments else None
        ours = run.model(inputs["input_ids"], present=present, segments=segments)
    if run.config.objective == "masked-nsp":
        return (
            torch.cat([ours.masked[present].flatten(), ours.next_sentence.flatten()]),
            torch.cat(
                [theirs.prediction_logits[present].flatten(), theirs.seq_relationship_logits.flatten()]
            ),
        )
    if ours.ndim == 3:
        return ours[present], theirs.logits[present]
    frame = frame_of(run.tokenizer, run.config.frame)
    framed = [frame.one(run.tokenizer.encode(text), 64).tokens.tolist() for text in TEXTS]
    assert words(TEXTS)["input_ids"] == framed
    return ours, theirs.logits


EXPRESSIBLE = {
    "gpt2": ("gpt2", "causal", {}, "gpt2"),
    "gpt2 with relu": ("gpt2", "causal", {"activation": "relu", "tied": False}, "gpt2"),
    "tiny": ("tiny", "causal", {}, "gpt_neox"),
    "modern-small": ("modern-small", "causal", {}, "llama"),
    "modern-base with shared keys": ("modern-base", "causal", {"kv_heads": 1, "rotary_base": 5e5}, "llama"),
    "bert-base": ("bert-base", "masked", {}, "bert"),
    "bert-base with next sentences": ("bert-base", "masked-nsp", {}, "bert"),
    "bert-base's classifier": ("bert-base", "classification", {}, "bert"),
    "bert-base's many labels": ("bert-base", "multilabel", {}, "bert"),
    "bert-base's number": ("bert-base", "regression", {}, "bert"),
    "without segments": ("bert-base", "masked", {"segments": 0, "norm_epsilon": 1e-5}, "roberta"),
    "without an output bias": ("bert-base", "masked", {"output_bias": False, "tied": False}, "bert"),
    "gpt2's classifier": ("gpt2", "classification", {}, "gpt2"),
    "tiny's classifier": ("tiny", "classification", {}, "gpt_neox"),
    "tiny's number": ("tiny", "regression", {}, "gpt_neox"),
}


@pytest.mark.parametrize(("preset", "objective", "fields", "family"), EXPRESSIBLE.values(), ids=EXPRESSIBLE)
def test_transformers_alone_gives_the_same_logits(tmp_path, preset, objective, fields, family):
    run = random_runs.write(tmp_path / "run", preset, objective, **fields)
    exported = export_huggingface(run.path, tmp_path / "out")
    assert exported.family == family
    ours, theirs = outputs(run, tmp_path / "out")
    torch.testing.assert_close(theirs, ours, rtol=0, atol=2e-5)
    assert (tmp_path / "out/README.md").exists()
    names = json.loads((tmp_path / "out/config.json").read_text()).get("id2label", {})
    assert list(names.values())[: len(run.config.labels)] == run.config.labels


@pytest.mark.parametrize(("kind", "family"), [("rotary", "gpt_neox"), ("learned", "gpt2")])
def test_a_pretrained_run_goes_out(tmp_path, kind, family):
    run = tiny_runs.run_of(kind)
    assert export_huggingface(tiny_runs.path_of(kind), tmp_path / "out").family == family
    ours, theirs = outputs(run, tmp_path / "out")
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


INEXPRESSIBLE = {
    "lab": ("lab", "causal", {}, "positions is 'sinusoidal' (it needs 'learned')"),
    "masked tiny": ("tiny", "masked", BIDIRECTIONAL, "positions is 'rotary'"),
    "two norms": ("gpt2", "causal", {"norm": "rms"}, "norm is 'rms'"),
    "gpt2 with segments": ("gpt2", "causal", {"segments": 2}, "segments is 2"),
    "bias over the words": ("modern-small", "causal", {"output_bias": True}, "output_bias is True"),
    "gpt2 with shared keys": ("gpt2", "causal", {"kv_heads": 1}, "kv_heads is 1"),
    "modern with bias": ("modern-small", "causal", {"bias": True}, "bias is True"),
    "a classifier on modern": ("modern-small", "classification", {}, "the classifier has a bias"),
    "a mean": ("bert-base", "classification", {"pooling": "mean"}, "head.pooling is 'mean'"),
    "no pooler": ("bert-base", "classification", {"pooler": False}, "pooler is False"),
}


@pytest.mark.parametrize(("preset", "objective", "fields", "why"), INEXPRESSIBLE.values(), ids=INEXPRESSIBLE)
def test_what_no_family_has_is_named(tmp_path, preset, objective, fields, why):
    run = random_runs.write(tmp_path / "run", preset, objective, **fields)
    with pytest.raises(UserError, match="is written as no family; the nearest is") as error:
        export_huggingface(run, tmp_path / "out")
    assert why in str(error.value)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_classifier_without_bias_goes_out_as_llama(tmp_path):
    run = random_runs.write(tmp_path / "run", "modern-small", "classification")
    random_runs.with_weights(run, head__classifier__bias=torch.zeros(3))
    assert export_huggingface(run, tmp_path / "out").architecture == "LlamaForSequenceClassification"
    ours, theirs = outputs(run, tmp_path / "out")
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


def test_more_classes_than_width_leave_no_room_for_the_bias(tmp_path):
    run = random_runs.write(tmp_path / "run", "gpt2", "classification", classes=20)
    with pytest.raises(UserError, match="nor has its last norm a bias that could take it up"):
        export_huggingface(run, tmp_path / "out", family="gpt2")


def test_a_family_can_be_asked_for(tmp_path):
    run = random_runs.write(tmp_path / "run", "bert-base", "masked", segments=0)
    assert export_huggingface(run, tmp_path / "bert", family="bert").architecture == "BertForMaskedLM"
    assert (
        export_huggingface(run, tmp_path / "distil", family="distilbert").architecture
        == "DistilBertForMaskedLM"
    )
    for name in ("bert", "distil"):
        ours, theirs = outputs(run, tmp_path / name)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    with pytest.raises(UserError, match="cannot be written as gpt2: direction is 'bidirectional'"):
        export_huggingface(run, tmp_path / "gpt2", family="gpt2")
    with pytest.raises(UserError, match="did you mean 'roberta'"):
        export_huggingface(run, tmp_path / "x", family="robberta")


def test_a_classifier_tuned_from_gpt2_goes_out_with_a_padding_token_of_its_own(tmp_path):
    """Its only special token ends every text; elsewhere the last token is looked for before the padding."""
    foreign.write("gpt2", tmp_path / "gpt2")
    import_huggingface(tmp_path / "gpt2", tmp_path / "base")
    finetune(
        tiny_runs.files()["classification", "train"], out=tmp_path / "run", start=tmp_path / "base", length=32,
        budget=Budget(steps=2), learning_rate=1e-2, machine=tiny_runs.MACHINE,
    )  # fmt: skip
    run, told = load(tmp_path / "run"), []
    vocab = run.config.model.vocab
    export_huggingface(tmp_path / "run", tmp_path / "out", tell=told.append)
    assert "appended <pad>" in told[0]
    ours, theirs = outputs(_with_row(load(tmp_path / "run")), tmp_path / "out")
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert json.loads((tmp_path / "out/config.json").read_text())["pad_token_id"] == vocab


def _with_row(run):
    """The run with one more row, that padding may be looked up; it is never seen."""
    table = run.model.base.embedding.tokens
    table.weight = torch.nn.Parameter(torch.cat([table.weight.detach(), torch.zeros(1, table.embedding_dim)]))
    return run


def test_what_was_exported_can_be_started_from(tmp_path):
    run = random_runs.write(tmp_path / "run", "tiny", "classification")
    export_huggingface(run.path, tmp_path / "out")
    import_huggingface(tmp_path / "out", tmp_path / "again")
    again = load(tmp_path / "again")
    tokens = torch.randint(7, again.tokenizer.size, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # the classifier's bias has moved into the last norm
        torch.testing.assert_close(again.model(tokens), run.model(tokens), rtol=0, atol=1e-5)
    assert again.config.labels == run.config.labels


def test_a_place_that_is_taken_is_left_alone(tmp_path):
    run = random_runs.write(tmp_path / "run", "gpt2")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    for call in (
        lambda: export_huggingface(run, tmp_path / "out"),
        lambda: import_huggingface(tmp_path / "run", tmp_path / "out"),
    ):
        with pytest.raises(UserError, match="is there already"):
            call()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
