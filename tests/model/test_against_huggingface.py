"""With weights copied over, gpt2 and bert-base (small sizes) are Hugging Face's: 1e-10 forward, 1e-8 backward."""

import pytest
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.heads import IGNORED, token_loss
from headstart.model.model import build

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
SMALL = {"width": 24, "depth": 3, "heads": 4, "ffn": 40, "context": 16}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def randomise(model):
    """Every tensor away from its special values, so that a forgotten bias or norm shows."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


def gpt2_names(depth):
    """Our name for each of Hugging Face's; True where their matrix is stored turned."""
    yield "base.embedding.tokens.weight", "transformer.wte.weight", False
    yield "base.embedding.positions.weight", "transformer.wpe.weight", False
    yield "base.stack.final_norm.weight", "transformer.ln_f.weight", False
    yield "base.stack.final_norm.bias", "transformer.ln_f.bias", False
    for i in range(depth):
        for ours, theirs in (
            ("attention.qkv", "attn.c_attn"),
            ("attention.output", "attn.c_proj"),
            ("attention_norm", "ln_1"),
            ("feed_forward.input", "mlp.c_fc"),
            ("feed_forward.output", "mlp.c_proj"),
            ("feed_forward_norm", "ln_2"),
        ):
            block = f"base.stack.blocks.{i}.{ours}"
            yield f"{block}.weight", f"transformer.h.{i}.{theirs}.weight", "norm" not in ours
            yield f"{block}.bias", f"transformer.h.{i}.{theirs}.bias", False


def test_gpt2_is_hugging_faces():
    config = preset("gpt2", vocab=29, **SMALL, **NO_DROPOUT)
    ours = build(config, HeadConfig(kind="lm"))
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=29, n_positions=16, n_embd=24, n_layer=3, n_head=4, n_inner=40,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    )  # fmt: skip
    randomise(ours)
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    mapping = list(gpt2_names(3))
    assert {name for name, _, _ in mapping} == set(own)
    assert {name for _, name, _ in mapping} == set(other)
    with torch.no_grad():
        for mine, name, turned in mapping:
            other[name].copy_(own[mine].T if turned else own[mine])
    tokens = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))

    logits, expected = ours(tokens), theirs(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)
    loss_sum, count = token_loss(logits[:, :-1], tokens[:, 1:])
    # their own loss works in float32
    their_loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    torch.testing.assert_close(loss_sum / count, their_loss, rtol=0, atol=1e-10)
    (loss_sum / count).backward()
    their_loss.backward()
    for mine, name, turned in mapping:
        gradient = other[name].grad
        torch.testing.assert_close(own[mine].grad, gradient.T if turned else gradient, rtol=0, atol=1e-8)


BERT_HEADS = {
    "masked": [
        ("head.transform", "cls.predictions.transform.dense"),
        ("head.transform_norm", "cls.predictions.transform.LayerNorm"),
    ],
    "next-sentence": [("head.pooler", "bert.pooler.dense"), ("head.next_sentence", "cls.seq_relationship")],
    "classification": [("head.pooler", "bert.pooler.dense"), ("head.classifier", "classifier")],
}
BERT_HEADS["masked-nsp"] = BERT_HEADS["masked"] + BERT_HEADS["next-sentence"]


def copy_bert(ours, theirs, depth, kind):
    """Copy ours into theirs; return (our parameter, their gradient's getter) for every one of ours."""
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    pairs = []

    def pair(mine, name, rows=slice(None)):
        with torch.no_grad():
            other[name].copy_(own[mine][rows])
        pairs.append((mine, name, rows))

    for mine, name in (("tokens", "word"), ("positions", "position"), ("segments", "token_type")):
        pair(f"base.embedding.{mine}.weight", f"bert.embeddings.{name}_embeddings.weight")
    modules = [("base.embedding.norm", "bert.embeddings.LayerNorm"), *BERT_HEADS[kind]]
    for i in range(depth):
        block, layer = f"base.stack.blocks.{i}", f"bert.encoder.layer.{i}"
        for part, third in (("query", slice(0, 24)), ("key", slice(24, 48)), ("value", slice(48, 72))):
            for leaf in ("weight", "bias"):
                pair(f"{block}.attention.qkv.{leaf}", f"{layer}.attention.self.{part}.{leaf}", third)
        modules += [
            (f"{block}.attention.output", f"{layer}.attention.output.dense"),
            (f"{block}.attention_norm", f"{layer}.attention.output.LayerNorm"),
            (f"{block}.feed_forward.input", f"{layer}.intermediate.dense"),
            (f"{block}.feed_forward.output", f"{layer}.output.dense"),
            (f"{block}.feed_forward_norm", f"{layer}.output.LayerNorm"),
        ]
    for mine, name in modules:
        pair(f"{mine}.weight", f"{name}.weight")
        pair(f"{mine}.bias", f"{name}.bias")
    if "masked" in kind:
        pair("head.output.bias", "cls.predictions.bias")
    assert {mine for mine, _, _ in pairs} == set(own)
    return pairs


BERT_CLASSES = {
    "masked": "BertForMaskedLM",
    "next-sentence": "BertForNextSentencePrediction",
    "masked-nsp": "BertForPreTraining",
    "classification": "BertForSequenceClassification",
}


@pytest.mark.parametrize("kind", list(BERT_CLASSES))
def test_bert_is_hugging_faces(kind):
    config = preset("bert-base", vocab=29, **SMALL, **NO_DROPOUT)
    ours = build(config, HeadConfig(kind=kind, classes=3))
    theirs = getattr(transformers, BERT_CLASSES[kind])(
        transformers.BertConfig(
            vocab_size=29, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
            max_position_embeddings=16, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3,
        )
    )  # fmt: skip
    randomise(ours)
    pairs = copy_bert(ours, theirs, 3, kind)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 29, (4, 12), generator=generator)  # 0 is their padding, whose row they never train
    present = torch.ones(4, 12, dtype=torch.bool)
    present[1, 7:] = present[3, 2:] = False
    segments = (torch.arange(12) > 5).long().expand(4, 12)
    places = torch.rand(4, 12, generator=generator) < 0.3
    masked_targets = torch.where(places & present, tokens, IGNORED)
    pair_targets = torch.tensor([0, 1, 1, 0])

    reading = {"attention_mask": present, "token_type_ids": segments}
    logits = ours(tokens, present=present, segments=segments)
    if kind == "masked-nsp":
        their = theirs(tokens, labels=masked_targets, next_sentence_label=pair_targets, **reading)
        torch.testing.assert_close(logits.next_sentence, their.seq_relationship_logits, rtol=0, atol=1e-10)
        given, expected = logits.masked, their.prediction_logits
    else:
        targets = masked_targets if kind == "masked" else pair_targets
        their = theirs(tokens, labels=targets, **reading)
        given, expected = logits, their.logits
    visible = present if "masked" in kind else slice(None)
    torch.testing.assert_close(given[visible], expected[visible], rtol=0, atol=1e-10)

    if kind == "masked-nsp":  # BERT's loss is the sum of both means
        means = [token_loss(logits.masked, masked_targets), token_loss(logits.next_sentence, pair_targets)]
    else:
        means = [token_loss(logits, targets)]
    loss = sum(loss_sum / count for loss_sum, count in means)
    torch.testing.assert_close(loss, their.loss, rtol=0, atol=1e-10)
    loss.backward()
    their.loss.backward()
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for mine, name, rows in pairs:
        torch.testing.assert_close(own[mine].grad[rows], other[name].grad, rtol=0, atol=1e-8)


def test_only_the_masked_places_need_the_head():
    config = preset("bert-base", vocab=29, **SMALL, **NO_DROPOUT)
    model = build(config, HeadConfig(kind="masked"))
    tokens = torch.randint(29, (4, 12), generator=torch.Generator().manual_seed(0))
    places = torch.rand(4, 12, generator=torch.Generator().manual_seed(1)) < 0.3
    hidden = model.base(tokens)
    torch.testing.assert_close(model.head(hidden[places]), model.head(hidden)[places])
