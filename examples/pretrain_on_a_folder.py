# %% [markdown]
# # Pretrain on a folder of text, then swap the head
#
# Text without labels is cheap. A base that has read it knows the language before it sees its first label; then its head
# is taken off, and one for the task put on. Whether that pays on your text is a question, and here is the short answer
# to it. Nothing is fetched from anywhere.
#
# Set `HEADSTART_FOLDER` to a folder of `.txt` files of yours; without it the page writes one from the embedded corpus.

# %%
import os
import tempfile
from pathlib import Path

import headstart
from headstart.decoding.search import Sampling
from headstart.text.demo import reviews
from headstart.training.budget import Budget
from headstart.training.generating import generate
from headstart.training.machine import choose
from headstart.training.optimizer import OptimizerConfig

place = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
os.environ.setdefault("HEADSTART_CACHE", str(place / "cache"))
folder = Path(os.environ.get("HEADSTART_FOLDER") or place / "texts")
if "HEADSTART_FOLDER" not in os.environ:
    folder.mkdir(parents=True, exist_ok=True)
    unlabelled = [review.french for review in reviews(0, "unlabelled")][:4_000]
    for number in range(10):
        part = unlabelled[400 * number : 400 * number + 400]
        (folder / f"reviews-{number}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
files = sorted(folder.glob("*.txt"))
print(f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB in {folder}")

# %% [markdown]
# ## Pretrain
#
# `causal` predicts the next token, `masked` hidden ones. A tenth of the documents is kept apart to measure by. The call
# is one run in one directory: killed, it goes on from there; called again, it finds itself finished.

# %%
machine = choose(precision="fp32")
shape = {"width": 96, "ffn": 192, "heads": 4, "depth": 2}
base = headstart.pretrain(
    files,
    out=place / "base",
    objective="causal",
    overrides=shape,
    vocab=2_000,
    length=96,
    budget=Budget(epochs=2),
    optimizer=OptimizerConfig(optimizer="muon"),
    machine=machine,
)
print(f"{base['parameters']:,} parameters after {base['step']:,} steps")
print(
    f"{base['valid']['bits_per_byte']:.2f} bits for each byte of text that it has not seen (8 is knowing nothing)"
)

# %% [markdown]
# ## What has it learned?
#
# Let it write. No label was involved, and yet there is grammar in it, and opinion.

# %%
loaded = headstart.load(place / "base")
for text in generate(
    loaded, "Ce roman", machine, max_tokens=30, count=3, sampling=Sampling(temperature=0.7, seed=1)
):
    print(f"Ce roman{text.text}")

# %% [markdown]
# ## Swap the head
#
# A hundred and fifty labels. Once from the base, once from scratch with the same shape, on the same rows and for as
# many steps.

# %%
labelled, test = list(reviews(0, "train"))[:150], list(reviews(0, "test"))[:500]
texts, labels = [one.french for one in labelled], [one.label for one in labelled]
test_texts, test_labels = [one.french for one in test], [one.label for one in test]
settings = {"length": 96, "epochs": 12, "pooling": "mean", "precision": "fp32"}
tuned = headstart.TextClassifier(start=place / "base", **settings).fit(texts, labels)
scratch = headstart.TextClassifier(overrides=shape, vocab=2_000, **settings).fit(texts, labels)
right = {
    "from the base": tuned.score(test_texts, test_labels),
    "from scratch": scratch.score(test_texts, test_labels),
}
for name, share in right.items():
    print(f"{name:<14} {share:.1%} of {len(test)} right")

# %% [markdown]
# ## Or leave the base as it is
#
# Its vectors alone, and a line drawn through them.

# %%
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

pipeline = make_pipeline(
    headstart.TextEncoder(place / "base", precision="fp32"), LogisticRegression(max_iter=2_000)
).fit(texts, labels)
print(f"{'frozen base':<14} {pipeline.score(test_texts, test_labels):.1%} of {len(test)} right")

# %% [markdown]
# ## What to do next
#
# * One seed and one number of labels prove nothing. `headstart study --corpus texts/*.txt --train rows.csv` repeats
#   this over seeds and budgets, with TF-IDF and a control beside it, and ends with a verdict.
# * More text, more epochs, a larger preset: `headstart plan --preset small` says what it costs before it starts.
# * `headstart pretrain --corpus texts/*.txt --objective masked --minutes 30 --out runs/base` is the same by command.
