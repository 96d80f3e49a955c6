# %% [markdown]
# # Pretrain on a folder of text, then swap the head
#
# Text without labels is cheap. A base that is pretrained on it knows the language before it sees a label; then you swap
# its head for one that fits the task. Does that pay on your text? This script gives a first answer. It makes no network
# requests.
#
# Set `HEADSTART_FOLDER` to a folder of `.txt` files. Without it the script writes one from the embedded corpus.

# %%
import json
import os
import tempfile
from pathlib import Path

import headstart

workdir = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
os.environ.setdefault("HEADSTART_CACHE", str(workdir / "cache"))
demo = workdir / "demo"
headstart.write_demo(demo)
folder = Path(os.environ.get("HEADSTART_FOLDER") or workdir / "texts")
if "HEADSTART_FOLDER" not in os.environ:
    folder.mkdir(parents=True, exist_ok=True)
    unlabelled = (demo / "unlabelled.txt").read_text(encoding="utf-8").splitlines()[:4_000]
    for number in range(10):
        part = unlabelled[400 * number : 400 * number + 400]
        (folder / f"reviews-{number}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
files = sorted(folder.glob("*.txt"))
print(f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB in {folder}")

# %% [markdown]
# ## Pretrain
#
# `causal` predicts the next token, `masked` predicts masked tokens. A tenth of the documents is held out for
# validation. A run is one directory: after a kill the same call resumes it; a finished run returns at once.

# %%
shape = {"width": 96, "ffn": 192, "heads": 4, "depth": 2}
base = headstart.pretrain(
    files,
    out=workdir / "base",
    objective="causal",
    model=shape,
    vocab=2_000,
    length=96,
    epochs=2,
    optimizer="muon",
    precision="fp32",
)
print(f"{base['parameters']:,} parameters after {base['step']:,} steps")
print(f"{base['valid']['bits_per_byte']:.2f} bits per byte of held-out text (8 means nothing learned)")

# %% [markdown]
# ## What has it learned?
#
# Generate some text. The base has seen no label, yet it has learned grammar, and that reviews have opinions.

# %%
run = headstart.load(workdir / "base", precision="fp32")
print(run)
for text in run.generate("Ce roman", max_tokens=30, count=3, temperature=0.7, seed=1):
    print(f"Ce roman{text}")

# %% [markdown]
# ## Swap the head
#
# Fine-tune on 150 labels: once from the base, once from scratch with the same shape, rows and number of steps.

# %%


def rows_of(name: str, most: int) -> tuple[list[str], list[str]]:
    """The first texts and labels of a file of the embedded corpus."""
    rows = [json.loads(line) for line in (demo / name).read_text(encoding="utf-8").splitlines()[:most]]
    return [row["text"] for row in rows], [row["label"] for row in rows]


texts, labels = rows_of("train.jsonl", 150)
test_texts, test_labels = rows_of("test.jsonl", 500)
settings = {"length": 96, "epochs": 12, "pooling": "mean", "precision": "fp32"}
tuned = headstart.TextClassifier(start=workdir / "base", **settings).fit(texts, labels)
scratch = headstart.TextClassifier(model=shape, vocab=2_000, **settings).fit(texts, labels)
accuracies = {
    "from the base": tuned.score(test_texts, test_labels),
    "from scratch": scratch.score(test_texts, test_labels),
}
for name, share in accuracies.items():
    print(f"{name:<14} {share:.1%} of {len(test_texts)} right")

# %% [markdown]
# ## Or freeze the base
#
# Use only its vectors, with logistic regression on top.

# %%
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

pipeline = make_pipeline(
    headstart.TextEncoder(workdir / "base", precision="fp32"), LogisticRegression(max_iter=2_000)
).fit(texts, labels)
print(f"{'frozen base':<14} {pipeline.score(test_texts, test_labels):.1%} of {len(test_texts)} right")

# %% [markdown]
# ## What to do next
#
# * One seed and one label budget prove nothing. `headstart study --corpus texts/*.txt --train rows.csv` repeats the
#   comparison over seeds and budgets, with TF-IDF and the majority class beside it, and ends with a verdict.
# * More text, more epochs, a larger preset: `headstart plan --preset modern-small` shows the cost beforehand.
# * On the command line: `headstart pretrain --corpus texts/*.txt --objective masked --time 30m --out runs/base`.
