"""Marian in and out: the same logits as `transformers`, the same greedy tokens, and nothing passed over in silence."""

import dataclasses
import json
import shutil
from functools import cache

import marian_models
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused
from marian_models import transformers
from safetensors.torch import load_file, save_file

from headstart.cli.main import run as headstart
from headstart.config.defaults import VALID_SHARE
from headstart.config.generation import GenerationConfig
from headstart.config.presets import preset
from headstart.data.labelled import read_pairs
from headstart.data.splits import split_by_hash
from headstart.errors import HeadstartError, IntegrityError
from headstart.inference.translate import Translator
from headstart.interop.families.marian import Marian, marian_order, marian_positions, our_order
from headstart.interop.huggingface import export_huggingface, import_huggingface
from headstart.runs.load import load
from headstart.tokenizers.templates import pad

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
KINDS = ["joint", "separate", "untied", "languages"]
GREEDY = GenerationConfig(beam=1, max_tokens=20)


@cache
def imported(kind="joint"):
    out = tiny_runs.directory() / f"imported-marian-{kind}"
    import_huggingface(marian_models.path_of(kind), out)
    return out


@cache
def exported(run):
    out = run.parent / f"exported-{run.name}"
    export_huggingface(run, out)
    return out


def batch_of(run, texts):
    """The texts as the run reads them."""
    translator = Translator.of(run, tiny_runs.MACHINE)
    framed = [translator.frames[0].one(ids, 128).tokens for ids in run.tokenizer.encode_many(texts)]
    tokens, present = pad(framed, run.tokenizer.id_of("pad"))
    return torch.from_numpy(tokens), torch.from_numpy(present)


def assert_same_model(run, folder, texts, targets):
    """The ids of the sources, the logits over padded batches, the greedy tokens and their text."""
    model, tokenizer = marian_models.theirs(folder)
    tokens, present = batch_of(run, texts)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    assert torch.equal(batch.input_ids[present], tokens[present])
    assert torch.equal(batch.attention_mask.bool(), present)
    assert not present.all()
    start = run.vocabularies.target.encode_many(targets)
    begin = Translator.of(run, tiny_runs.MACHINE).frames[1].first
    written = torch.from_numpy(pad([[begin, *ids] for ids in start], 0)[0])
    with torch.no_grad():
        expected = model(**batch, decoder_input_ids=written).logits
        found = run.model(tokens, written, source_present=present)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    translations = list(Translator.of(run, tiny_runs.MACHINE).translate(texts, GREEDY))
    assert [one.candidates[0].ids for one in translations] == greedy(model, batch, run.vocabularies)
    return translations


def greedy(model, batch, words, **options):
    """What `generate` writes, without start, end and padding."""
    never = [[i] for i in sorted(words.target.special_ids - {model.generation_config.eos_token_id})]
    rows = model.generate(
        **batch, num_beams=1, do_sample=False, max_new_tokens=21, bad_words_ids=never, **options
    ).tolist()
    end = model.generation_config.eos_token_id
    return [row[1 : row.index(end, 1)] for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_run_is_the_model_it_came_from(kind):
    french, english = marian_models.sentences()
    assert_same_model(load(imported(kind)), marian_models.path_of(kind), french[:5], english[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_in_and_out_again_gives_the_same_files(kind):
    before, after = marian_models.path_of(kind), exported(imported(kind))
    french, english = marian_models.sentences()
    assert_same_model(load(imported(kind)), after, french[5:9], english[5:9])
    old, new = load_file(before / "model.safetensors"), load_file(after / "model.safetensors")
    assert {name: tensor.shape for name, tensor in old.items()} == {name: t.shape for name, t in new.items()} or (
        kind == "untied" and set(old) - set(new) == {"model.shared.weight"}  # which nothing reads
    )
    assert all(torch.equal(old[name], new[name]) for name in new)


def test_a_translation_of_an_imported_run_is_marians():
    run, folder = load(imported("joint")), exported(imported("joint"))
    _, tokenizer = marian_models.theirs(folder)
    found = assert_same_model(run, folder, marian_models.sentences()[0][:3], marian_models.sentences()[1][:3])
    for one in found:
        assert one.candidates[0].text == tokenizer.decode(one.candidates[0].ids, skip_special_tokens=True)


def test_the_order_of_the_columns_is_that_of_the_sinusoids():
    assert marian_order(6).tolist() == [0, 2, 4, 1, 3, 5]
    assert marian_order(5).tolist() == [0, 2, 4, 1, 3]
    for width in (5, 6, 16):
        assert our_order(width)[marian_order(width)].tolist() == list(range(width))
        theirs = transformers.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding(40, width)
        torch.testing.assert_close(marian_positions(40, width), theirs.create_weight(), rtol=0, atol=1e-6)


# ---- our own translators out --------------------------------------------------------------------------------

SMALL = {**translators.SHAPE, "context": 64}
OURS = {
    "2017": {},
    "own output": {"tied": False, "output_bias": True},
    "no bias, gelu": {"bias": False, "activation": "gelu", "scale_embedding": False},
    "tanh, odd width": {"activation": "gelu-tanh", "width": 15, "heads": 3},
}


@pytest.mark.parametrize("kind", [*OURS, "separate"])
def test_a_translator_of_ours_goes_out_and_comes_back(kind, tmp_path):
    path = tmp_path / "run"
    if kind == "separate":
        path = translators.path_of("separate")
    else:
        translators.train(path, model={**SMALL, **OURS[kind]}, steps=2, beam=1)
    export_huggingface(path, tmp_path / "out")
    texts = [text[:25] for text in small.sentences(4, seed=8)]
    assert_same_model(load(path), tmp_path / "out", texts, texts)
    import_huggingface(tmp_path / "out", tmp_path / "again")
    assert_same_model(load(tmp_path / "again"), tmp_path / "out", texts, texts)


def test_a_translator_that_was_pretrained_with_masks_keeps_its_frame(tmp_path):
    run = translators.run_of("joint")
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, frame="masked"))
    export_huggingface(run, tmp_path / "out")
    texts = [text[:25] for text in small.sentences(4, seed=8)]
    assert_same_model(run, tmp_path / "out", texts, texts)
    import_huggingface(tmp_path / "out", tmp_path / "again")
    assert_same_model(load(tmp_path / "again"), tmp_path / "out", texts, texts)


def test_a_target_of_its_own_has_its_tokenizer_beside():
    run, folder = load(translators.path_of("separate")), exported(translators.path_of("separate"))
    target = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.target.json"))
    text = small.sentences(1, seed=5)[0]
    ids = run.vocabularies.target.encode(text).tolist()
    assert target(text).input_ids == ids
    assert target.decode([*ids, run.vocabularies.target.id_of("end")], skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"positions": "learned"}, "positions is 'learned'"),
        ({"norm": "rms"}, "norm is 'rms'"),
        ({"norm_place": "pre"}, "norm_place is 'pre'"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon is 1e-06"),
        ({"embedding_norm": True}, "embedding_norm is True"),
        ({"segments": 2}, "segments is 2"),
        ({"heads": 4, "kv_heads": 2}, "kv_heads is 2"),
        ({"activation": "swiglu"}, "activation is 'swiglu'"),
    ],
)
def test_an_option_that_marian_has_not_is_named(overrides, message):
    run = translators.run_of("joint")
    model = preset("transformer-tiny", **{**SMALL, "vocab": 320, **overrides})
    changed = dataclasses.replace(run, config=dataclasses.replace(run.config, model=model))
    assert message in (Marian().obstacle(changed, {}) or "")
    assert Marian().obstacle(run, {}) is None


# ---- what is in a configuration -----------------------------------------------------------------------------


def changed(tmp_path, **fields):
    """A copy of the directory with other fields; None takes one out."""
    folder = tmp_path / "changed"
    shutil.copytree(marian_models.path_of("joint"), folder)
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in {**config, **fields}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


OF_OLD = {
    "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "bad_words_ids": [[164]],
    "classif_dropout": 0.0, "classifier_dropout": 0.0, "extra_pos_embeddings": 165, "gradient_checkpointing": False,
    "max_length": 512, "normalize_before": False, "normalize_embedding": False, "num_beams": 6,
    "num_hidden_layers": 2, "static_position_embeddings": True, "encoder_layerdrop": 0.1,
}  # fmt: skip


def test_a_configuration_as_they_were_written_of_old_is_read(tmp_path):
    folder = changed(tmp_path, **OF_OLD)
    told = import_huggingface(folder, tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.config.translation.beam == 6
    assert "encoder_layerdrop" in str(told)
    french, english = marian_models.sentences()
    assert_same_model(run, marian_models.path_of("joint"), french[:3], english[:3])


@pytest.mark.parametrize(
    ("fields", "message", "code"),
    [
        ({"normalize_before": True}, "normalize_before is True", "unsupported"),
        ({"normalize_embedding": True}, "normalize_embedding is True", "unsupported"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm is True", "unsupported"),
        ({"static_position_embeddings": False}, "static_position_embeddings is False", "unsupported"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False", "unsupported"),
        ({"decoder_ffn_dim": 32}, "decoder_ffn_dim is 32", "unsupported"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads is 2", "unsupported"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3", "unsupported"),
        ({"activation_function": "mish"}, "activation_function is 'mish'", "unsupported"),
        ({"decoder_start_token_id": 7}, "decoder_start_token_id is 7", "unsupported"),
        ({"eos_token_id": 7}, "eos_token_id is 7", "unsupported"),
        ({"decoder_vocab_size": 20}, "decoder_vocab_size is 20", "unsupported"),
        ({"d_model": None}, "d_model", "missing"),
        ({"sparse_experts": 4}, "sparse_experts is 4", "unknown-name"),
        ({"encoder_layers": 3, "num_hidden_layers": None}, "encoder.layers.2", "mismatch"),
        ({"vocab_size": 160, "decoder_vocab_size": 160}, "vocab.json", "bad-format"),
    ],
)
def test_a_field_that_we_cannot_compute_with_is_named(fields, message, code, tmp_path):
    with refused(code, message, by=HeadstartError):
        import_huggingface(changed(tmp_path, **fields), tmp_path / "run")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_positions_that_are_not_sinusoids_are_refused(tmp_path):
    folder = changed(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    for table, is_other in ((marian_positions(128, 16), False), (torch.zeros(128, 16), True)):
        save_file({**tensors, "model.encoder.embed_positions.weight": table}, folder / "model.safetensors")
        if not is_other:
            import_huggingface(folder, tmp_path / "run")
            continue
        with refused("unsupported", "embed_positions.weight", by=IntegrityError):
            import_huggingface(folder, tmp_path / "other")


def test_the_embedding_is_found_under_any_of_its_names(tmp_path):
    folder = changed(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors.pop("model.shared.weight")
    save_file({**tensors, "lm_head.weight": embedding}, folder / "model.safetensors")
    import_huggingface(folder, tmp_path / "run")
    ours, before = load(tmp_path / "run"), load(imported("joint"))
    assert ours.digest == before.digest
    other = {**tensors, "lm_head.weight": embedding, "model.shared.weight": embedding + 1}
    save_file(other, folder / "model.safetensors")
    with refused("mismatch", "lm_head.weight", by=IntegrityError):
        import_huggingface(folder, tmp_path / "third")


# ---- used like any other run --------------------------------------------------------------------------------


def test_an_imported_run_is_translated_with_and_evaluated(tmp_path, capsys):
    french, english = marian_models.sentences()
    lines, pairs = tmp_path / "lines.txt", tmp_path / "pairs.tsv"
    lines.write_text("\n".join(french[:3]) + "\n", encoding="utf-8")
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(french[:4], english[:4], strict=True)), encoding="utf-8")
    assert headstart(["translate", str(imported("joint")), str(lines), "--beam", "1", "--threads", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert (
        headstart(
            [
                "evaluate",
                str(imported("joint")),
                "--data",
                str(pairs),
                "--beam",
                "1",
                "--json",
                "--threads",
                "1",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["count"] == 4


def trained_further(folder, steps, **options):
    """A few steps from the imported run on pairs of its own languages; the result."""
    french, english = marian_models.sentences()
    pairs = folder / "pairs.tsv"
    lines = [f"{a}\t{b}\n" for a, b in zip(french[:40], english[:40], strict=True)]
    pairs.write_text("".join(lines), encoding="utf-8")
    return translators.train_translator(
        pairs, out=folder / "run", start=imported("joint"), steps=steps, batch_tokens=600,
        machine=tiny_runs.MACHINE, beam=1, **options,
    )  # fmt: skip


def test_an_imported_run_is_trained_further_and_stays_marians(tmp_path):
    result = trained_further(tmp_path, 3)
    assert trained_further(tmp_path, 3) == result  # finished: found, not trained again
    run, before = load(tmp_path / "run"), load(imported("joint"))
    assert run.config.frame == "marian"
    assert run.config.model.target_vocab == 0
    assert run.config.start == before.digest
    assert run.vocabularies.fingerprint == before.vocabularies.fingerprint
    assert run.digest != before.digest
    export_huggingface(tmp_path / "run", tmp_path / "out")
    french, english = marian_models.sentences()
    assert_same_model(run, tmp_path / "out", french[50:54], english[50:54])


def test_the_loss_is_that_of_marian(tmp_path):
    result = trained_further(tmp_path, 1, learning_rate=1e-12, label_smoothing=0.0)
    pairs = read_pairs(tmp_path / "pairs.tsv")
    held = pairs.subset(split_by_hash(pairs.sources, [0.0] * len(pairs), VALID_SHARE, 0).held_out)
    model, tokenizer = marian_models.theirs(marian_models.path_of("joint"))
    loss_sum = count = 0
    for source, target in zip(held.sources, held.targets, strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():
            loss_sum += model(**batch).loss.item() * batch["labels"].numel()
        count += batch["labels"].numel()
    assert result["valid"]["loss"] == pytest.approx(loss_sum / count, abs=1e-5)


@pytest.mark.slow
def test_an_imported_run_learns(tmp_path):
    before = trained_further(tmp_path, 1, learning_rate=1e-12)["valid"]["loss"]
    (tmp_path / "more").mkdir()
    after = trained_further(tmp_path / "more", 150, learning_rate=3e-3)["valid"]["loss"]
    assert after < before - 1
