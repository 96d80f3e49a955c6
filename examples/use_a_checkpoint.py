# %% [markdown]
# # Use a checkpoint from the hub, offline
#
# Somebody else has pretrained a model, and its directory is on this machine: `config.json`, `model.safetensors` and the
# files of its tokenizer. This page makes a run of it, without executing anything that is in it, and uses it as any
# other start: for vectors, and under a new head.
#
# Set `HEADSTART_CHECKPOINT` to the directory. On a machine with a network it is made by
# `hf download NAME --local-dir checkpoint`, and then carried here; BERT, RoBERTa and CamemBERT, DistilBERT, GPT-2,
# Marian and Llama-like models are read. Without it the page makes one of random weights with `transformers`, to show
# the way: what it scores then means nothing.

# %%
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import headstart
from headstart.text.demo import reviews

place = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
place.mkdir(parents=True, exist_ok=True)
labelled, test = list(reviews(0, "train"))[:200], list(reviews(0, "test"))[:300]
texts, labels = [one.french for one in labelled], [one.label for one in labelled]
test_texts, test_labels = [one.french for one in test], [one.label for one in test]


def random_checkpoint(directory: Path) -> Path:
    """A BERT that has learned nothing, as `transformers` saves it."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = BertWordPieceTokenizer(lowercase=True)
    words.train_from_iterator(texts, vocab_size=800, show_progress=False)
    directory.mkdir(parents=True, exist_ok=True)
    BertTokenizerFast(tokenizer_object=words._tokenizer).save_pretrained(directory)
    config = BertConfig(
        vocab_size=words.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config).save_pretrained(directory)
    return directory


given = os.environ.get("HEADSTART_CHECKPOINT")
checkpoint = Path(given) if given else random_checkpoint(place / "checkpoint")
about = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
print(f"{checkpoint}: {about['model_type']}, {sorted(path.name for path in checkpoint.iterdir())}")

# %% [markdown]
# ## Import it
#
# The configuration is parsed here, field by field: one that is not known is an error that names it, and a pickle is
# refused. (`headstart import checkpoint --out runs/imported` is the same by command.)

# %%
run = place / "imported"
if not (run / "config.toml").exists():
    headstart.import_huggingface(checkpoint, run, tell=print)
loaded = headstart.load(run)
shape = loaded.config.model
print(f"{shape.depth} layers, {shape.width} wide, {shape.vocab:,} tokens, up to {shape.context} in a text")

# %% [markdown]
# ## Its vectors
#
# The mean over the tokens of each text. Two reviews that say the same should lie closer than two that do not, if the
# checkpoint has learned anything.

# %%
encoder = headstart.TextEncoder(run, precision="fp32")
asked = ["Un roman magnifique.", "Un livre superbe.", "Le train a du retard."]
vectors = encoder.fit_transform(asked)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
for row, text in zip(vectors @ vectors.T, asked, strict=True):
    print(" ".join(f"{cosine:6.3f}" for cosine in row), "", text)

# %% [markdown]
# ## A head of our own
#
# The checkpoint's base under a head for the task: the same call as with a base that you pretrained yourself.

# %%
model = headstart.TextClassifier(
    start=run,
    length=min(96, shape.context),
    epochs=4,
    pooling="mean",
    precision="fp32",
    directory=place / "fits",
)
model.fit(texts, labels)
print(
    f"{model.score(test_texts, test_labels):.1%} of {len(test_texts)} right, learned from {len(texts)} labels"
)

# %% [markdown]
# ## What to do next
#
# * Is it better than what you can do yourself? `headstart study --start runs/imported --train rows.csv` compares it
#   with scratch and TF-IDF, with intervals; with `--corpus` your own pretraining is an arm too.
# * Let it read your text first: `headstart pretrain --start runs/imported --objective masked --corpus texts.txt`.
# * Back out again: `headstart export RUN --to huggingface DIR`, or `--to onnx`.
