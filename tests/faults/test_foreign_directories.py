"""Checkpoints made to harm, or not what they say: refused with a message, nothing runs, nothing is written."""

import json
import pickle
import shutil
import struct

import pytest
import random_runs
import torch
from canary import Canary
from commands import invoke
from safetensors.torch import load_file, save_file

from headstart.interop.huggingface import export_huggingface, import_huggingface
from headstart.runs.load import load

KINDS = {
    "bert": ("bert-base", "masked"), "gpt2": ("gpt2", "causal"), "llama": ("modern-small", "causal"),
    "classifier": ("bert-base", "classification"), "neox": ("tiny", "causal"), "scored": ("gpt2", "classification"),
    "roberta": ("bert-base", "masked", {"segments": 0, "context": 400}),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound_checkpoint(tmp_path_factory):
    """A sound checkpoint of each kind, made once."""
    path, made = tmp_path_factory.mktemp("sound"), {}

    def of(kind):
        if kind not in made:
            preset, objective, *fields = KINDS[kind]
            run = random_runs.write(path / f"{kind}-run", preset, objective, **dict(*fields))
            made[kind] = export_huggingface(run, path / kind).directory
        return made[kind]

    return of


@pytest.fixture
def checkpoint_copy(sound_checkpoint, tmp_path):
    """A copy of one, to be spoilt."""

    def of(kind="bert"):
        return shutil.copytree(sound_checkpoint(kind), tmp_path / "copy")

    return of


def refused(capsys, directory, code, *words):
    """The command says why, in these words, and leaves nothing behind."""
    out = directory.parent / "run"
    answer = invoke(capsys, ["import", str(directory), "--out", str(out)])
    assert answer.code == code, answer
    said = " ".join(answer.err.split())
    for word in words:
        assert word in said
    assert "fix:" in said
    assert not out.exists()
    assert not list(directory.parent.glob(".tmp-*"))


def change(directory, file="config.json", **fields):
    path = directory / file
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "gone"}))


def tensors(directory, changed):
    file = directory / "model.safetensors"
    save_file(changed(load_file(file)), file)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sound_ones_come_in(sound_checkpoint, tmp_path, kind):
    result = import_huggingface(sound_checkpoint(kind), tmp_path / "run")
    assert result["steps"] == 0
    assert load(tmp_path / "run").finished


# ---- code ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"])
def test_code_that_a_checkpoint_brings_is_refused_by_name(checkpoint_copy, tmp_path, capsys, file):
    directory, canary = checkpoint_copy(), tmp_path / "canary"
    (directory / "modeling.py").write_text(f"open({str(canary)!r}, 'w')")
    (directory / "tokenization.py").write_text(f"open({str(canary)!r}, 'w')")
    change(directory, file, auto_map={"AutoModel": "modeling.Model", "AutoTokenizer": ["tokenization.T", None]})
    refused(capsys, directory, 2, "auto_map asks to run code", file)
    assert not canary.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "adapter.bin", "MODEL.BIN", "last.ckpt", "a.pkl"])
@pytest.mark.parametrize("way", ["pickle", "torch"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(checkpoint_copy, tmp_path, capsys, name, way):
    directory, canary = checkpoint_copy(), tmp_path / "canary"
    (directory / "model.safetensors").unlink()
    if way == "pickle":
        (directory / name).write_bytes(pickle.dumps(Canary(canary)))
    else:
        torch.save(Canary(canary), directory / name)
    refused(capsys, directory, 2, f"{name} is a pickle, which can run code", "safe_serialization=True")
    assert not canary.exists()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pickle_under_another_name_is_refused(checkpoint_copy, tmp_path, capsys, file):
    directory, canary = checkpoint_copy(), tmp_path / "canary"
    (directory / file).write_bytes(pickle.dumps(Canary(canary)))
    refused(capsys, directory, 3 if file == "model.safetensors" else 2, file, "a pickle, which can run code")
    assert not canary.exists()


def test_the_canary_can_sing(tmp_path):
    pickle.loads(pickle.dumps(Canary(tmp_path / "canary"))).close()
    assert (tmp_path / "canary").exists()


# ---- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["../outside.safetensors", "/etc/outside.safetensors", "a/b.safetensors", "..", "a\\b.safetensors"],
)
def test_an_index_that_leads_elsewhere_is_refused(checkpoint_copy, tmp_path, capsys, target):
    directory = checkpoint_copy()
    (directory / "model.safetensors").rename(tmp_path / "outside.safetensors")
    names = dict.fromkeys(load_file(tmp_path / "outside.safetensors"), target)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    refused(capsys, directory, 2, "which is no" if target == ".." else "not a plain name")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_link_out_of_the_directory_is_refused(checkpoint_copy, tmp_path, capsys, file):
    directory = checkpoint_copy()
    (directory / file).rename(tmp_path / file)
    (directory / file).symlink_to(tmp_path / file)
    refused(capsys, directory, 2, f"{file} is a link that leads out of the directory")


def test_links_to_the_blobs_of_a_download_are_followed(sound_checkpoint, tmp_path):
    """The cache of the hub keeps `snapshots/X/config.json` as a link to `blobs/Y`."""
    snapshot, blobs = tmp_path / "models--x/snapshots/abc", tmp_path / "models--x/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(sound_checkpoint("bert").iterdir())):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    import_huggingface(snapshot, tmp_path / "run")


def test_an_index_of_pickles_is_refused(checkpoint_copy, tmp_path, capsys):
    directory, canary = checkpoint_copy(), tmp_path / "canary"
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model-1.bin").write_bytes(pickle.dumps(Canary(canary)))
    index = {"weight_map": {"bert.x": "pytorch_model-1.bin"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(capsys, directory, 2, "no .safetensors file")
    assert not canary.exists()


# ---- weights ------------------------------------------------------------------------------------------------


def lying(header, body=b"\0" * 64):
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def entry(shape, start, end, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


LIES = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a header longer than the file": struct.pack("<Q", 10**6) + b"{}",
    "tensors that overlap": lying({"a": entry([8], 0, 32), "b": entry([8], 16, 48)}),
    "an end behind the file": lying({"a": entry([2**20], 0, 2**22)}),
    "a shape over 64 bits": lying({"a": entry([2**40, 2**40], 0, 64)}),
    "nothing": b"",
}


@pytest.mark.parametrize("raw", LIES.values(), ids=LIES)
def test_a_lying_header_exits_3(checkpoint_copy, capsys, raw):
    directory = checkpoint_copy()
    (directory / "model.safetensors").write_bytes(raw)
    refused(capsys, directory, 3, "model.safetensors")


def test_numbers_that_are_not_finite_exit_3(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    name = "bert.embeddings.word_embeddings.weight"
    tensors(directory, lambda found: found | {name: found[name] * float("nan")})
    refused(capsys, directory, 3, f"{name} holds numbers that are not finite")


def test_a_tensor_that_is_missing_is_named(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    tensors(directory, lambda found: {n: t for n, t in found.items() if not n.endswith("0.output.dense.bias")})
    refused(capsys, directory, 3, "lacks tensors", "encoder.layer.0.output.dense.bias")


def test_a_tensor_that_nobody_knows_is_named(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    tensors(directory, lambda found: found | {"bert.encoder.layer.0.adapter.weight": torch.zeros(2)})
    refused(capsys, directory, 3, "encoder.layer.0.adapter.weight")


def test_a_tensor_of_another_shape_is_named(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    tensors(directory, lambda found: found | {name: found[name][:-1].contiguous()})
    refused(capsys, directory, 3, "blocks.1.feed_forward.input.weight is (23, 16), not (24, 16)")


def test_an_output_that_is_not_tied_although_it_says_so_is_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy("llama")
    tensors(directory, lambda found: found | {"lm_head.weight": found["model.embed_tokens.weight"] + 1})
    refused(capsys, directory, 3, "lm_head.weight should repeat")


@pytest.mark.parametrize("part", ["query", "output.dense"])
def test_weights_that_are_whole_numbers_are_named(checkpoint_copy, capsys, part):
    """Joined with floats of the same layer they would become floats in silence."""
    directory = checkpoint_copy()
    layer = "attention.self.query" if part == "query" else "output.dense"
    name = f"bert.encoder.layer.0.{layer}.weight"
    tensors(directory, lambda found: found | {name: found[name].to(torch.int8)})
    refused(capsys, directory, 3, f"encoder.layer.0.{layer}.weight is of int8")


@pytest.mark.parametrize(
    ("kind", "name", "as_well"),
    [("gpt2", "transformer.wte.weight", "wte.weight"),
     ("bert", "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma")],
)  # fmt: skip
def test_two_tensors_for_one_place_are_refused(checkpoint_copy, capsys, kind, name, as_well):
    directory = checkpoint_copy(kind)
    tensors(directory, lambda found: found | {as_well: found[name] + 1})
    refused(capsys, directory, 3, name, as_well, "the same tensor")


def test_a_configuration_of_more_layers_than_any_model_has_is_refused_by_name(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    change(directory, num_hidden_layers=10**9)
    refused(capsys, directory, 2, "depth is 1000000000", str(directory))


@pytest.mark.parametrize("depth", [3, 1_000])
def test_a_configuration_of_more_layers_than_there_are_is_refused_at_once(checkpoint_copy, capsys, depth):
    directory = checkpoint_copy()
    change(directory, num_hidden_layers=depth)
    refused(capsys, directory, 3, "encoder.layer.2.")


# ---- configuration ------------------------------------------------------------------------------------------

# What is written into config.json, of which kind, and what the refusal must say.
FIELDS = {
    "an unknown field": ("bert", {"alibi": True}, "alibi is True, a field that Headstart does not know"),
    "relative positions": (
        "bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'",
    ),
    "an unknown activation": ("bert", {"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
    "a decoder": ("bert", {"is_decoder": True}, "is_decoder is True"),
    "pruned heads": ("bert", {"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}"),
    "another head": ("bert", {"architectures": ["BertForTokenClassification"]}, "architectures is ['BertForTokenCl"),
    "a word for a number": ("bert", {"hidden_size": "16"}, "hidden_size is '16'"),
    "a negative number": ("bert", {"hidden_size": -16}, "hidden_size is -16"),
    "no width": ("bert", {"hidden_size": "gone"}, "has no hidden_size"),
    "a huge number": ("bert", {"vocab_size": 10**30}, "vocab_size is 1000"),
    "heads that do not divide": ("bert", {"num_attention_heads": 3}, "3 heads do not divide"),
    "another family": ("bert", {"model_type": "t5"}, "model_type is 't5'"),
    "no family": ("bert", {"model_type": "gone"}, "has no model_type"),
    "quantized": ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
    "scaled positions": (
        "llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling is {'rope_type': 'llama3'",
    ),
    "positions scaled by a list": ("llama", {"rope_scaling": {"type": ["yarn"]}}, "rope_scaling is {'type': ['yarn']}"),
    "scaled positions of today": (
        "llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        "rope_parameters is {'rope_type': 'yarn'",
    ),
    "biases": ("llama", {"attention_bias": True}, "attention_bias is True"),
    "wide heads": ("llama", {"head_dim": 32}, "head_dim is 32"),
    "another gate": ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "a sliding window": (
        "llama", {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16,
                  "attention_bias": "gone", "mlp_bias": "gone"}, "sliding_window is 16",
    ),
    "a sliding window by default": (
        "llama", {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "attention_bias": "gone",
                  "mlp_bias": "gone"}, "sliding_window is missing, which means 4096",
    ),
    "two bases of positions": (
        "llama", {"rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "gives the base of rotary positions more than once",
    ),
    "two tables of positions": (
        "llama", {"rope_theta": "gone", "rope_scaling": {"type": "default", "rope_theta": 7.0},
                  "rope_parameters": {"rope_theta": 1e4}}, "gives the base of rotary positions more than once",
    ),
    "a base that nobody reads": ("neox", {"rotary_emb_base": "gone", "rope_theta": 77.0}, "more than once"),
    "a part turned by one of two": (
        "neox", {"rotary_pct": 0.25, "rope_parameters": {"partial_rotary_factor": 1.0}}, "rotary_pct is 0.25",
    ),
    "a list for a name": ("bert", {"architectures": [["BertModel"]]}, "architectures is [['BertModel']]"),
    "padding that is a word": ("roberta", {"pad_token_id": 300}, "pad_token_id is 300"),
    "padding that ends a text": ("roberta", {"pad_token_id": 3}, "pad_token_id is 3"),
    "a negative epsilon": ("bert", {"layer_norm_eps": -1.0}, "layer_norm_eps is -1.0"),
    "scores by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    "sublayers side by side": ("neox", {"use_parallel_residual": True}, "use_parallel_residual is True"),
    "a quarter turned": ("neox", {"rotary_pct": 0.25}, "rotary_pct is 0.25"),
    "labels that are none": ("classifier", {"id2label": {"0": "a", "1": "a", "2": "b"}}, "id2label is no table"),
    "an unknown problem": ("classifier", {"problem_type": "ranking"}, "problem_type is 'ranking'"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "words"), FIELDS.values(), ids=FIELDS)
def test_a_field_that_we_cannot_compute_with_is_named_with_its_value(checkpoint_copy, capsys, kind, fields, words):
    directory = checkpoint_copy(kind)
    change(directory, **fields)
    refused(capsys, directory, 2, words)


def test_fields_that_change_nothing_are_passed_over(checkpoint_copy, tmp_path):
    directory = checkpoint_copy("llama")
    change(directory, transformers_version="4.8.2", _name_or_path="x", torch_dtype="float32", use_cache=True,
           rope_scaling=None, pretraining_tp=1, head_dim=8, temperature=0.6)  # fmt: skip
    import_huggingface(directory, tmp_path / "run")


@pytest.mark.parametrize("raw", [b"", b"[]", b"7", b"{", b"[" * 10**5, b"\xff\xfe{}", b'{"a": 1}'])
def test_a_config_that_is_none_is_refused(checkpoint_copy, capsys, raw):
    directory = checkpoint_copy()
    (directory / "config.json").write_bytes(raw)
    refused(capsys, directory, 2, "config.json")


def test_a_key_that_is_there_twice_is_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    path = directory / "config.json"
    path.write_text(path.read_text().replace("{", '{"hidden_act": "relu",', 1))
    refused(capsys, directory, 2, "config.json", "the key 'hidden_act' is there twice")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(checkpoint_copy, capsys, file):
    directory = checkpoint_copy()
    (directory / file).unlink()
    refused(capsys, directory, 2, f"has no {file}")


# ---- tokenizers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"added_tokens": 7}, {"added_tokens": ["x"]}, {"added_tokens": [{"content": "x"}]}, {"model": {}}, {"model": 7},
        {"model": {"type": "BPE", "vocab": [], "merges": 3}}, {"post_processor": {"type": "Template"}},
        {"roles": {"pad": "nobody"}}, {"roles": 7}, {"normalizer": {"type": "BertNormalizer"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_tokenizer_that_is_none_is_refused(checkpoint_copy, capsys, fields):
    directory = checkpoint_copy()
    change(directory, "tokenizer.json", **fields)
    refused(capsys, directory, 2, "tokenizer.json")


@pytest.mark.parametrize("field", ["vocab", "added_tokens"])
def test_an_id_far_beyond_the_others_is_refused_before_memory_is_taken_for_it(checkpoint_copy, capsys, field):
    directory = checkpoint_copy()
    spec = json.loads((directory / "tokenizer.json").read_text())
    if field == "vocab":
        spec["model"]["vocab"][max(spec["model"]["vocab"])] = 2**32 - 2
    else:
        spec["added_tokens"].append({**spec["added_tokens"][-1], "content": "<far>", "id": 2**32 - 2})
    (directory / "tokenizer.json").write_text(json.dumps(spec))
    refused(capsys, directory, 2, "tokenizer.json", "the id 4,294,967,294")


def test_an_added_token_with_a_number_of_thousands_of_digits_is_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    change(directory, "tokenizer_config.json", added_tokens_decoder={"9" * 5000: {"content": "x"}})
    refused(capsys, directory, 2, "tokenizer_config.json has the token 'x'")


def test_no_tokenizer_at_all_is_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    (directory / "tokenizer.json").unlink()
    refused(capsys, directory, 2, "has no tokenizer.json", "save_pretrained")


def test_a_tokenizer_that_is_larger_than_the_embedding_exits_3(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    change(directory, vocab_size=300)
    names = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    tensors(directory, lambda found: found | {name: found[name][:300].contiguous() for name in names})
    refused(capsys, directory, 3, "the tokenizer has 320 tokens, and the embedding 300 rows")


def test_a_token_that_the_tokenizer_does_not_have_is_named(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    change(directory, "tokenizer_config.json", added_tokens_decoder={"320": {"content": "<new>"}})
    refused(capsys, directory, 2, "has the token '<new>' as 320")


def test_special_tokens_around_a_text_that_we_have_no_frame_for_are_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    spec = json.loads((directory / "tokenizer.json").read_text())
    spec["post_processor"]["single"].append(spec["post_processor"]["single"][-1])
    change(directory, "tokenizer.json", post_processor=spec["post_processor"])
    refused(capsys, directory, 2, "puts other special tokens around a text")


def test_a_causal_classifier_that_reads_texts_without_an_end_is_refused(checkpoint_copy, capsys):
    directory = checkpoint_copy("scored")
    change(directory, "tokenizer.json", post_processor=None)
    refused(capsys, directory, 2, "does not put a begin and an end token around a text")


def test_terminal_codes_in_a_config_are_shown_and_not_obeyed(checkpoint_copy, capsys):
    directory = checkpoint_copy()
    change(directory, model_type="\x1b]0;gotcha\x07")
    out = directory.parent / "run"
    answer = invoke(capsys, ["import", str(directory), "--out", str(out)])
    assert answer.code == 2
    assert "\x1b" not in answer.err


def test_pairs_without_a_classifier_are_refused(sound_checkpoint, tmp_path, capsys):
    answer = invoke(capsys, ["import", str(sound_checkpoint("bert")), "--pairs", "--out", str(tmp_path / "run")])
    assert answer.code == 2
    assert "--pairs without a classifier" in answer.err


# ---- what was imported and then damaged ---------------------------------------------------------------------------


def a_bit(file):
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def nothing(file):
    file.write_bytes(b"")


def without_file(file):
    file.unlink()


@pytest.mark.parametrize("damage", [a_bit, nothing, without_file])
@pytest.mark.parametrize("name", ["config.toml", "tokenizer.json", "weights.safetensors", "result.json"])
def test_a_damaged_part_of_an_imported_run_is_mended_by_another_import(
    capsys, checkpoint_copy, tmp_path, name, damage
):  # fmt: skip
    """No training makes it again."""
    run = tmp_path / "run"
    take_in, read = ["import", str(checkpoint_copy("gpt2")), "--out", str(run)], ["generate", str(run), "le", "--json"]
    assert invoke(capsys, take_in).code == 0
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    damage(run / name)
    for command in (read, take_in):
        answer = invoke(capsys, command)
        said = " ".join(answer.err.split())
        if command is read or "is there already" not in said:
            assert answer.code == 3
            assert f"fix: delete {run}, and import it again" in said
    shutil.rmtree(run)
    assert invoke(capsys, take_in).code == 0
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
