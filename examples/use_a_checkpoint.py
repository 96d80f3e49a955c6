# %% [markdown]
# # Use a checkpoint from the hub, offline
#
# You have the directory of a model that someone else pretrained: `config.json`, `model.safetensors` and its tokenizer
# files. This script imports it as a run, without executing any of its code, and uses it like any other base: for
# vectors, and under a new head.
#
# Set `HEADSTART_CHECKPOINT` to the directory. To get one, run `hf download NAME --local-dir checkpoint` on a machine
# with a network and copy it here. BERT, RoBERTa and CamemBERT, DistilBERT, GPT-2, Marian and Llama-like models are
# supported. Without it the script makes one with random weights, using `transformers`; its scores then mean nothing.

# %%
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import headstart

workdir = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
workdir.mkdir(parents=True, exist_ok=True)
headstart.write_demo(workdir / "demo")


def rows_of(name: str, most: int) -> tuple[list[str], list[str]]:
    """The first texts and labels of a file of the embedded corpus."""
    lines = (workdir / "demo" / name).read_text(encoding="utf-8").splitlines()[:most]
    rows = [json.loads(line) for line in lines]
    return [row["text"] for row in rows], [row["label"] for row in rows]


texts, labels = rows_of("train.jsonl", 200)
test_texts, test_labels = rows_of("test.jsonl", 300)


def random_checkpoint(directory: Path) -> Path:
    """A BERT with random weights, as `transformers` saves it."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(texts, vocab_size=800, show_progress=False)
    directory.mkdir(parents=True, exist_ok=True)
    BertTokenizerFast(tokenizer_object=tokenizer._tokenizer).save_pretrained(directory)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config).save_pretrained(directory)
    return directory


given = os.environ.get("HEADSTART_CHECKPOINT")
checkpoint = Path(given) if given else random_checkpoint(workdir / "checkpoint")
about = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
print(f"{checkpoint}: {about['model_type']}, {sorted(path.name for path in checkpoint.iterdir())}")

# %% [markdown]
# ## Import it
#
# The configuration is parsed field by field; an unknown field is an error that names it, and a pickle is refused. (On
# the command line: `headstart import checkpoint --out runs/imported`.)

# %%
run = workdir / "imported"
if not (run / "config.toml").exists():
    headstart.import_huggingface(checkpoint, run, log=print)
loaded = headstart.load(run)
shape = loaded.config.model
print(f"{shape.depth} layers, {shape.width} wide, {shape.vocab:,} tokens, up to {shape.context} in a text")

# %% [markdown]
# ## Its vectors
#
# The mean over the tokens of each text. With a pretrained checkpoint, texts of similar meaning have similar vectors.

# %%
encoder = headstart.TextEncoder(run, precision="fp32")
sentences = ["Un roman magnifique.", "Un livre superbe.", "Le train a du retard."]
vectors = encoder.fit_transform(sentences)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
for row, text in zip(vectors @ vectors.T, sentences, strict=True):
    print(" ".join(f"{cosine:6.3f}" for cosine in row), "", text)

# %% [markdown]
# ## A new head
#
# The checkpoint's base under a head for the task: the same call as with a base that you pretrained yourself.

# %%
model = headstart.TextClassifier(
    start=run,
    length=min(96, shape.context),
    epochs=4,
    pooling="mean",
    precision="fp32",
    directory=workdir / "fits",
)
model.fit(texts, labels)
print(f"{model.score(test_texts, test_labels):.1%} of {len(test_texts)} right, learned from {len(texts)} labels")

# %% [markdown]
# ## What to do next
#
# * Is it better than the alternatives? `headstart study --start runs/imported --train rows.csv` compares it with
#   scratch and TF-IDF, with intervals; with `--corpus` your own pretraining is an arm too.
# * Continue pretraining on your text: `headstart pretrain --start runs/imported --objective masked --corpus texts.txt`.
# * Export: `headstart export RUN --to huggingface DIR`, or `--to onnx`.
