# %% [markdown]
# # Classify my own CSV
#
# You have a table with a column of texts and a column of labels. This script checks the data, trains a TF-IDF baseline
# and a small Transformer, compares them, and saves the Transformer. It makes no network requests.
#
# Set `HEADSTART_CSV` to your own file (columns `text` and `label`). Without it the script writes one from the embedded
# corpus: French book reviews, labelled with the author's opinion.

# %%
import csv
import json
import os
import pickle
import tempfile
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import headstart

workdir = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
workdir.mkdir(parents=True, exist_ok=True)
table = Path(os.environ.get("HEADSTART_CSV") or workdir / "reviews.csv")
if "HEADSTART_CSV" not in os.environ:
    headstart.write_demo(workdir / "demo")
    lines = (workdir / "demo" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(json.loads(line) for line in lines[:1200])
print(f"{table}: {table.stat().st_size:,} bytes")

# %% [markdown]
# ## Check the data
#
# How many rows and classes are there, and is anything wrong? Duplicates, contradicting labels and tiny classes are
# cheaper to fix now than after training. (`headstart data check --train reviews.csv` prints the same.)

# %%
report = headstart.check_data({"train": table})
facts = report.sets["train"]
print(f"{facts.rows:,} rows, classes {facts.class_counts}, the largest has {facts.majority_share:.0%}")
for name, warning in report.warnings:
    print(f"{name}: {warning.message}")
print({name: count for name, count in report.leaks.counts.items() if count} or "no duplicate texts")

# %% [markdown]
# ## A baseline: TF-IDF
#
# TF-IDF with logistic regression is often enough. The Transformer has to beat it to be worth its cost.

# %%
with table.open(newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
texts, test_texts, labels, test_labels = train_test_split(
    texts, labels, test_size=0.25, random_state=0, stratify=labels
)
simple = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1_000))
simple.fit(texts, labels)
print(f"TF-IDF and logistic regression: {simple.score(test_texts, test_labels):.1%} of {len(test_texts)} right")

# %% [markdown]
# ## A Transformer from scratch
#
# The interface is the same, because `TextClassifier` is a scikit-learn estimator: it works in `cross_val_score`,
# `GridSearchCV` and pipelines. It trains a tokenizer on the texts first; `overrides` keeps the model small.

# %%
model = headstart.TextClassifier(
    model={"width": 64, "ffn": 128, "heads": 4, "depth": 2},
    vocab=2_000,
    length=96,
    epochs=6,
    learning_rate=2e-3,
    pooling="mean",
    precision="fp32",
)
model.fit(texts, labels)
print(f"{model.result_['parameters']:,} parameters, {model.result_['step']:,} steps")
print(f"Transformer from scratch: {model.score(test_texts, test_labels):.1%} right")

# %% [markdown]
# ## Predict
#
# The probability of each class for three test texts, with their true labels.

# %%
new_texts = test_texts[:3]
for text, label, probabilities in zip(new_texts, test_labels, model.predict_proba(new_texts), strict=False):
    shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(model.classes_, probabilities, strict=True))
    print(f"{shares} (true label {label}): {text[:70]}…")

# %% [markdown]
# ## Save it
#
# A pickle of the estimator holds plain bytes: weights as safetensors, settings as TOML, the tokenizer as JSON.

# %%
saved = workdir / "classifier.pickle"
saved.write_bytes(pickle.dumps(model))
loaded = pickle.loads(saved.read_bytes())
print(
    f"{saved.stat().st_size:,} bytes; the same answers: {(loaded.predict(new_texts) == model.predict(new_texts)).all()}"
)

# %% [markdown]
# ## What to do next
#
# * If you have more text without labels, pretrain on it and start from there: `examples/pretrain_on_a_folder.py`.
# * Is the difference between the two models more than chance? `headstart study --train reviews.csv --corpus texts.txt`
#   repeats the comparison over seeds and label budgets and reports intervals.
# * `TextClassifier(directory="runs")` saves each fit as a run, for `headstart predict`, `evaluate` and `serve`.
