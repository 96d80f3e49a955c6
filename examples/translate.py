# %% [markdown]
# # Translate
#
# The Transformer of 2017: an encoder reads the source, a decoder writes the target and looks back at the source at
# every step. Here a small one learns English to French from the embedded corpus, book reviews of a few sentences.
# Nothing is fetched from anywhere.
#
# Set `HEADSTART_PAIRS` to a `.tsv` of your own: source, tab, target; no header.

# %%
import os
import tempfile
from pathlib import Path

import headstart
from headstart.decoding.beam import Beam
from headstart.text.demo import pairs
from headstart.training.budget import Budget
from headstart.training.loop import LoopConfig
from headstart.training.machine import choose
from headstart.training.translating import Search

place = Path(os.environ.get("HEADSTART_EXAMPLES") or tempfile.mkdtemp(prefix="headstart-"))
place.mkdir(parents=True, exist_ok=True)
table = Path(os.environ.get("HEADSTART_PAIRS") or place / "pairs.tsv")
if "HEADSTART_PAIRS" not in os.environ:
    chosen = sorted(pairs(0, "train"), key=lambda pair: len(pair.english))[:4_000]  # the short ones
    table.write_text("".join(f"{pair.english}\t{pair.french}\n" for pair in chosen), encoding="utf-8")
lines = table.read_text(encoding="utf-8").splitlines()
print(f"{len(lines):,} pairs; the last: {lines[-1]!r}")

# %% [markdown]
# ## Train
#
# One vocabulary for both languages, label smoothing, a warm-up and then a rate that falls with the root of the steps,
# and at the end the mean of the weights over the last fifth: as in the paper, but small. A tenth of the pairs is kept
# apart and scored by sacreBLEU.

# %%
machine = choose(precision="fp32")
result = headstart.train_translator(
    table,
    out=place / "translator",
    overrides={"width": 96, "ffn": 192, "heads": 4, "depth": 1, "decoder_depth": 1},
    vocab=1_500,
    budget=Budget(epochs=5),
    learning_rate=3e-3,
    search=Search(beam=Beam(beams=2)),
    loop=LoopConfig(schedule="inverse-sqrt", warmup=0.1, average="tail"),
    machine=machine,
)
print(f"{result['parameters']:,} parameters, {result['step']:,} steps")
print({name: round(value, 2) for name, value in result["valid"].items()})

# %% [markdown]
# ## Translate
#
# Beam search keeps several beginnings open and writes out the likeliest whole sentence.

# %%
run = headstart.load(place / "translator")
asked = ["I loved this novel.", "The plot is weak.", "It is a disappointment: I found the ending hollow."]
for text, found in zip(
    asked, headstart.translate(run, asked, machine, Search(beam=Beam(beams=5))), strict=True
):
    print(f"{text:<52} {found.candidates[0].text}")

# %% [markdown]
# ## More than one way to say it
#
# The other candidates of the beam, with their scores: the mean log-probability of a token.

# %%
several = Search(beam=Beam(beams=5, n_best=3))
for candidate in next(iter(headstart.translate(run, asked[:1], machine, several))).candidates:
    print(f"{candidate.score:7.3f}  {candidate.text}")

# %% [markdown]
# ## What to do next
#
# * `headstart finetune --task translation --train pairs.tsv --epochs 10 --out runs/fr` is the same by command, and
#   `headstart translate runs/fr letter.txt` its use.
# * Start from a base that has read one of the languages: `--start RUN --start-into encoder` (or `decoder`, or `both`).
# * `headstart explain attention runs/fr "I loved this novel."` draws where each written word looked.
