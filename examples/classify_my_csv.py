# %% [markdown]
# # Classify my own CSV
#
# You have a table with a column of texts and a column of labels. This page looks at it, asks what a simple model makes
# of it, trains a small Transformer on it, and keeps that for later. Nothing is fetched from anywhere.
#
# Set `HEADSTART_CSV` to your own file (columns `text` and `label`); without it the page writes one from the embedded
# corpus: French book reviews, each with what its author thought of the book.

# %%
import csv
import os
import pickle
import tempfile
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import headstart
from headstart.text.check import check_data
from headstart.text.demo import reviews
from headstart.text.labelled import read_labelled

place = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
place.mkdir(parents=True, exist_ok=True)
table = Path(os.environ.get("HEADSTART_CSV") or place / "reviews.csv")
if "HEADSTART_CSV" not in os.environ:
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows((review.french, review.label) for review in list(reviews(0, "train"))[:1200])
print(f"{table}: {table.stat().st_size:,} bytes")

# %% [markdown]
# ## Look before training
#
# How many rows and classes, and is anything wrong? A text that stands twice, with two labels, or under a class that has
# hardly any rows, is cheaper to mend now than to wonder about later. (`headstart data check --train reviews.csv` prints
# the same.)

# %%
report = check_data({"train": table})
facts = report.sets["train"]
print(f"{facts.rows:,} rows, classes {facts.class_counts}, the largest has {facts.majority_share:.0%}")
for name, warning in report.warnings:
    print(f"{name}: {warning.message}")
print({name: count for name, count in report.leaks.counts.items() if count} or "no text stands twice")

# %% [markdown]
# ## What would a simple model do?
#
# Words counted, and a line drawn through them: often enough. Whatever comes next has to beat it to be worth its while.

# %%
rows = read_labelled(table)
texts, test_texts, labels, test_labels = train_test_split(
    rows.texts, [str(label) for label in rows.labels], test_size=0.25, random_state=0, stratify=rows.labels
)
simple = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1_000))
simple.fit(texts, labels)
print(
    f"TF-IDF and logistic regression: {simple.score(test_texts, test_labels):.1%} of {len(test_texts)} right"
)

# %% [markdown]
# ## A Transformer from scratch
#
# The same interface, since it is an estimator of scikit-learn: it works in `cross_val_score`, `GridSearchCV` and
# pipelines. A tokenizer is trained on the texts first; `overrides` makes the base small enough for a short wait.

# %%
model = headstart.TextClassifier(
    overrides={"width": 64, "ffn": 128, "heads": 4, "depth": 2},
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
# ## Ask it something
#
# A probability for each class, for three texts that it has not seen, with what their authors said.

# %%
asked = test_texts[:3]
for text, label, probabilities in zip(asked, test_labels, model.predict_proba(asked), strict=False):
    shares = ", ".join(
        f"{name} {share:.0%}" for name, share in zip(model.classes_, probabilities, strict=True)
    )
    print(f"{shares} (in truth {label}): {text[:70]}…")

# %% [markdown]
# ## Keep it
#
# A pickle of the estimator holds plain bytes: weights as safetensors, settings as TOML, the tokenizer as JSON.

# %%
kept = place / "classifier.pickle"
kept.write_bytes(pickle.dumps(model))
again = pickle.loads(kept.read_bytes())
print(
    f"{kept.stat().st_size:,} bytes; the same answers: {(again.predict(asked) == model.predict(asked)).all()}"
)

# %% [markdown]
# ## What to do next
#
# * You have much more text without labels? Pretrain on it and start from there: `examples/pretrain_on_a_folder.py`.
# * Is the difference between the two models more than luck? `headstart study --train reviews.csv --corpus texts.txt`
#   repeats all of it over seeds and numbers of labels, and says so with intervals.
# * `TextClassifier(directory="runs")` keeps each fit as a run, for `headstart predict`, `evaluate` and `serve`.
