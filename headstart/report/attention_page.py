"""Where a run looks, as one HTML file: point at a token and see; nothing is fetched, and only its own script runs.

What comes from the text stands in a block of data that the script reads, and is put on the page as text alone; the
page's own rule (its Content-Security-Policy) lets no other script run.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from headstart.report.attention_charts import KINDS, label_of
from headstart.report.wording import one_line
from headstart.text.token_texts import ShownToken
from headstart.training.attending import AttentionMap, AttentionMaps

_HERE = Path(__file__).parent
_LONGEST_LABEL = 24
_POSITIONS = {
    "sinusoidal": "What is added to the embedding of each token: sines and cosines, from fast to slow.",
    "learned": "What is added to the embedding of each token: a row of a table that was trained.",
    "rotary": "By which angles the queries and keys of each token are turned: their sines and cosines, from fast "
    "to slow.",
}


def attention_page(found: AttentionMaps, title: str, facts: str, layer: int = 0, head: int = 0) -> str:
    """The page as text; `facts` is a line below the title, layer and head (from 0) are those shown at first."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    script = (_HERE / "attention.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("attention.html").render(
        title=one_line(title, 120), facts=one_line(facts, 300), found=found, kinds=KINDS,
        has_mask=any(not one.mask.all() for one in found.maps),
        positions_words=_POSITIONS[found.positions.kind], data=_data(found, layer, head),
        style=Markup((_HERE / "attention.css").read_text(encoding="utf-8")), script=Markup(script),
        script_hash=Markup(f"'sha256-{digest}'"),
    )  # fmt: skip


def _data(found: AttentionMaps, layer: int, head: int) -> Markup:
    """What the script draws, as JSON that ends no element it may stand in; weights in ten-thousandths."""
    positions = np.round(found.positions.values.astype(float), 3).tolist()
    plain: dict[str, Any] = {"maps": [_map(one) for one in found.maps], "positions": {"values": positions}}
    plain |= {"layer": layer, "head": head}
    return htmlsafe_json_dumps(plain, dumps=json.dumps, separators=(",", ":"))


def _map(one: AttentionMap) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "rows": _labels(one.rows),
        "columns": _labels(one.columns),
        "weights": np.round(one.weights.astype(float) * 1e4).astype(int).tolist(),
        "mask": one.mask.astype(int).tolist(),
    }


def _labels(tokens: list[ShownToken]) -> list[dict[str, Any]]:
    return [{"label": label_of(token, _LONGEST_LABEL), "is_special": token.is_special} for token in tokens]
