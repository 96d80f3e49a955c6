# %% [markdown]
# # Translate
#
# The Transformer of 2017: an encoder reads the source, and a decoder writes the target while it attends to the source.
# Here a small one learns English to French from the embedded corpus of short book reviews. No network is needed.
#
# Set `HEADSTART_PAIRS` to your own `.tsv`: source, tab, target; no header.

# %%
import os
import tempfile
from pathlib import Path

import headstart

workdir = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
workdir.mkdir(parents=True, exist_ok=True)
table = Path(os.environ.get("HEADSTART_PAIRS") or workdir / "pairs.tsv")
if "HEADSTART_PAIRS" not in os.environ:
    headstart.write_demo(workdir / "demo")
    pairs = (workdir / "demo" / "pairs.train.tsv").read_text(encoding="utf-8").splitlines()
    chosen = sorted(pairs, key=lambda pair: len(pair.split("\t")[0]))[:4_000]  # the short ones
    table.write_text("".join(f"{pair}\n" for pair in chosen), encoding="utf-8")
lines = table.read_text(encoding="utf-8").splitlines()
print(f"{len(lines):,} pairs; the last: {lines[-1]!r}")

# %% [markdown]
# ## Train
#
# A joint vocabulary, label smoothing, warm-up with inverse-square-root decay, and averaged weights over the last fifth
# of the steps: as in the paper, but small. A tenth of the pairs is held out and scored with sacreBLEU.

# %%
result = headstart.train_translator(
    table,
    out=workdir / "translator",
    model={"width": 96, "ffn": 192, "heads": 4, "depth": 1, "decoder_depth": 1},
    vocab=1_500,
    epochs=5,
    learning_rate=3e-3,
    schedule="inverse-sqrt",
    warmup=0.1,
    average="tail",
    beam=2,
    precision="fp32",
)
print(f"{result['parameters']:,} parameters, {result['step']:,} steps")
print({name: round(value, 2) for name, value in result["valid"].items()})

# %% [markdown]
# ## Translate
#
# Beam search keeps several partial translations and returns the most likely sentence.

# %%
run = headstart.load(workdir / "translator", precision="fp32")
sentences = [
    "I loved this novel.",
    "The plot is weak.",
    "It is a disappointment: I found the ending hollow.",
]
for text, translation in zip(sentences, run.translate(sentences, beam=5), strict=True):
    print(f"{text:<52} {translation}")

# %% [markdown]
# ## Alternatives
#
# The other candidates of the beam with their scores: the mean log-probability of a token.

# %%
for candidate in run.translations(sentences[:1], beam=5, count=3)[0].candidates:
    print(f"{candidate.score:7.3f}  {candidate.text}")

# %% [markdown]
# ## What to do next
#
# * On the command line: `headstart finetune --task translation --train pairs.tsv --epochs 10 --out runs/fr`, then
#   `headstart translate runs/fr letter.txt`.
# * Start from a base that was pretrained on one of the languages: `--start RUN --start-into encoder` (or `decoder`, or
#   `both`).
# * `headstart explain attention runs/fr "I loved this novel."` draws the cross-attention.
