"""Small checkpoints of every family as `transformers` writes them, with tokenizers made here."""

from functools import cache

import small
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "Le livre est très long.", "une histoire DRÔLE, vraiment ?", "style", "la fin était triste\nun peu", "x  y 42 €",
]  # fmt: skip
CONTEXT = 40


@cache
def wordpiece():
    """As BERT's: lower case, without accents, [CLS] and [SEP]."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        small.sentences(300), trainers.WordPieceTrainer(vocab_size=120, special_tokens=specials, show_progress=False)
    )  # fmt: skip
    made.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    return made, {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}


def _byte_pairs(specials):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(small.sentences(300), trainer)
    return made


@cache
def roberta_pairs():
    """As RoBERTa's: bytes, <s> and </s>, two of them between texts."""
    made = _byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    named = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>"}
    return made, {**named, "mask": "<mask>"}


@cache
def gpt2_pairs():
    """As GPT-2's: bytes, and one special token for all that there is."""
    made = _byte_pairs(["<|endoftext|>"])
    return made, {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}


@cache
def llama_pieces():
    """As Llama's: ▁ before words, bytes for what is unknown, <s> in front, no padding."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=specials, show_progress=False)
    made.train_from_iterator(small.sentences(300), trainer)
    plain = tokenizers.Tokenizer.from_str(made.to_str())
    spec = plain.to_str().replace('"special":true', '"special":false')
    made = tokenizers.Tokenizer.from_str(spec)
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return made, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}


def _encoder(vocab, **more):
    return {
        "vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": CONTEXT, **more,
    }  # fmt: skip


def _distil(vocab):
    return {"vocab_size": vocab, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "pad_token_id": 0,
            "max_position_embeddings": CONTEXT}  # fmt: skip


def _llama(vocab, **more):
    return _encoder(vocab, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, **more)


LABELS = {"id2label": {0: "non", 1: "oui", 2: "peut-être"}, "label2id": {"non": 0, "oui": 1, "peut-être": 2}}
ROBERTA = {"max_position_embeddings": CONTEXT + 2, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0,
           "eos_token_id": 2}  # fmt: skip
# Family and head: the class, its configuration, the tokenizer.
CASES = {
    "bert-masked": ("BertForMaskedLM", "BertConfig", _encoder, {}, wordpiece),
    "bert-pretraining": ("BertForPreTraining", "BertConfig", _encoder, {}, wordpiece),
    "bert-classifier": ("BertForSequenceClassification", "BertConfig", _encoder, LABELS, wordpiece),
    "bert-base": ("BertModel", "BertConfig", _encoder, {"hidden_act": "relu"}, wordpiece),
    "roberta-masked": ("RobertaForMaskedLM", "RobertaConfig", _encoder, ROBERTA, roberta_pairs),
    "roberta-classifier": (
        "RobertaForSequenceClassification", "RobertaConfig", _encoder, {**ROBERTA, **LABELS}, roberta_pairs,
    ),
    "roberta-base": ("RobertaModel", "RobertaConfig", _encoder, ROBERTA, roberta_pairs),
    "xlm_roberta-masked": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", _encoder, ROBERTA, roberta_pairs),
    "camembert-masked": ("CamembertForMaskedLM", "CamembertConfig", _encoder, ROBERTA, roberta_pairs),
    "distilbert-masked": ("DistilBertForMaskedLM", "DistilBertConfig", lambda v, **_: _distil(v), {}, wordpiece),
    "distilbert-regression": (
        "DistilBertForSequenceClassification", "DistilBertConfig", lambda v, **m: {**_distil(v), **m},
        {"num_labels": 1}, wordpiece,
    ),
    "gpt2": (
        "GPT2LMHeadModel", "GPT2Config",
        lambda v, **_: {"vocab_size": v, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT,
                        "bos_token_id": 0, "eos_token_id": 0}, {}, gpt2_pairs,
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _llama, {"rope_theta": 5e5}, llama_pieces),
    "llama-tied": ("LlamaForCausalLM", "LlamaConfig", _llama, {"tie_word_embeddings": True}, llama_pieces),
    "mistral": ("MistralForCausalLM", "MistralConfig", _llama, {"sliding_window": None}, llama_pieces),
    "gpt-neox": (
        "GPTNeoXForCausalLM", "GPTNeoXConfig", _encoder,
        {"rotary_pct": 1.0, "use_parallel_residual": False, "bos_token_id": 0, "eos_token_id": 0}, gpt2_pairs,
    ),
}  # fmt: skip


def model_of(name):
    """A random model, every tensor away from its special values."""
    import transformers

    cls, config_cls, shape, more, make = CASES[name]
    vocab = make()[0].get_vocab_size()
    config = getattr(transformers, config_cls)(**shape(vocab, **more))
    model = getattr(transformers, cls)(config).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def write(name, directory, model=None):
    """The checkpoint in a directory, as `save_pretrained` leaves it; returns the model."""
    import transformers

    model = model or model_of(name)
    model.save_pretrained(directory)
    made, named = CASES[name][4]()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{role}_token": spelling for role, spelling in named.items()}
    )
    wrapped.save_pretrained(directory)
    return model
