"""Attention as a picture and as a page: true to the numbers, readable at every size, harmless with hostile tokens."""

import base64
import hashlib
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET

import matplotlib.image
import numpy as np
import page_reading
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.inference.attention_maps import AttentionMap, AttentionMaps, Positions
from headstart.report.attention import attention_chart, attention_page, label_of, shades
from headstart.tokenizers.token_texts import ShownToken

SVG = "{http://www.w3.org/2000/svg}"
PAYLOAD = "</script><script>window.ran=1</script><img src=x onerror=alert(1)>\"'&]]>\u202e\x00"


def made_up(rows=6, columns=None, layers=2, heads=3, kind="self", words=None, is_cut=False):
    columns = columns or rows
    draws = np.random.default_rng(rows)
    mask = np.tril(np.ones((rows, columns), bool)) if kind in ("self", "decoder") else np.ones((rows, columns), bool)
    scores = np.where(mask, draws.normal(size=(layers, heads, rows, columns)) * 2, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    named = [
        ShownToken((words or f" mot{position}") if position else "<s>", not position)
        for position in range(max(rows, columns))
    ]
    positions = Positions("sinusoidal", draws.normal(size=(rows, 8)).astype(np.float32), list(range(8)))
    one = AttentionMap(kind, named[:rows], named[:columns], weights.astype(np.float32), mask)
    return AttentionMaps([one], positions, is_cut, rows)


def drawn(found, **options):
    svg = attention_chart(found, "Where it looks", **options)
    root = ET.fromstring(svg)
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {
        "svg", "defs", "pattern", "path", "rect", "text", "g", "title", "image", "use",
    }  # fmt: skip
    return root


def texts(root):
    return [node.text for node in root.iter(f"{SVG}text")]


def pictures(root):
    """The dots of every map, (rows, columns, 4), one for each cell."""
    found = []
    for node in root.iter(f"{SVG}image"):
        kind, _, data = node.get("href").partition(",")
        assert kind == "data:image/png;base64"
        found.append(
            (np.asarray(matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))) * 255).round().astype(int)
        )
    return found


# ---- the picture --------------------------------------------------------------------------------------------


def test_there_is_a_map_for_each_layer_and_head_and_every_dot_is_its_weight():
    found = made_up()
    maps = pictures(drawn(found))
    (one,) = found.maps
    assert len(maps) == 6
    for dots, weights in zip(maps, one.weights.reshape(6, 6, 6), strict=True):
        side = len(dots) // 6
        cells = dots.reshape(6, side, 6, side, 4)
        assert (cells == cells[:, :1, :, :1]).all(), "a cell has one colour"
        cells = cells[:, 0, :, 0]
        assert np.array_equal(cells[..., 3] == 255, one.mask)
        assert np.array_equal(cells[one.mask][:, :3], shades(weights[one.mask]))


def test_what_is_masked_is_hatched_and_nothing_else():
    root = drawn(made_up(rows=3))
    (path,) = [node.get("d") for node in root.iter(f"{SVG}path")]
    bars = re.findall(r"M(\S+) (\S+)h(\S+)v(\S+)h-", path)
    cell = float(bars[0][3])
    assert [(round(float(x) / cell), round(float(y) / cell), round(float(w) / cell)) for x, y, w, _ in bars] == [
        (1, 0, 2),
        (2, 1, 1),
    ]
    assert "may not be looked at: the mask" in texts(root)
    assert "may not be looked at: the mask" not in texts(drawn(made_up(kind="cross")))


def test_more_weight_is_darker_in_grey_too():
    colours = shades(np.linspace(0, 1, 200)) / 255
    light = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(light) < 1e-9).all()
    assert light[0] == 1
    assert light[-1] < 0.15


def test_one_layer_and_one_head_are_one_large_map_with_its_numbers():
    found = made_up()
    root = drawn(found, layers=[1], heads=[2])
    assert len(pictures(root)) == 1
    weights = found.maps[0].weights[1, 2]
    shown = [text for text in texts(root) if re.fullmatch(r"\d+|<1", text)]
    expected = ["<1" if 0 < w < 0.005 else f"{100 * w:.0f}" for w in weights[found.maps[0].mask]]
    assert shown[: len(expected)] == expected
    titles = [node.text for node in root.iter(f"{SVG}title")]
    assert titles[0] == "layer 2, head 3"
    assert titles[1].startswith("<s> looks at <s> 100.0")
    assert {"layer 2", "head 3"} <= set(texts(root))
    assert "layer 1" not in texts(root)


def test_a_layer_alone_has_all_its_heads():
    assert len(pictures(drawn(made_up(), layers=[1]))) == 3
    assert len(pictures(drawn(made_up(), heads=[0]))) == 2


def test_a_stack_that_has_no_such_layer_is_left_out():
    both = AttentionMaps(
        made_up(layers=1, kind="encoder").maps + made_up(layers=2, kind="decoder").maps,
        made_up().positions,
        False,
        6,
    )
    root = drawn(both, layers=[1], heads=[0])
    assert len(pictures(root)) == 1
    assert "Decoder: the target over itself" in texts(root)
    assert "Encoder: the source over itself" not in texts(root)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 5), (14, 9), (33, 12), (64, 64)])
@pytest.mark.parametrize("single", [False, True])
def test_labels_never_stand_on_each_other_and_nothing_leaves_the_picture(rows, columns, single):
    found = made_up(rows, columns, kind="cross", words=" extraordinairement")
    root = drawn(found, **({"layers": [0], "heads": [0]} if single else {}))
    wide, high = float(root.get("width")), float(root.get("height"))
    labels = [node for node in root.iter(f"{SVG}text") if node.get("text-anchor") == "end"]
    heights = sorted({float(node.get("y")) for node in labels})
    assert all(b - a >= 10.5 for a, b in itertools.pairwise(heights))
    assert (len(labels) == rows) or not single, "a large map names every token"
    heads = [float(node.get("x")) for node in root.iter(f"{SVG}text") if node.text.startswith("head ")]
    layers = [
        float(re.findall(r"[\d.]+", node.get("transform"))[1])
        for node in root.iter(f"{SVG}text")
        if node.text.startswith("layer ")
    ]
    for places in (heads, layers):
        assert all(b - a >= 40 for a, b in itertools.pairwise(places)), "which is how wide a name is"
    for node in root.iter(f"{SVG}text"):
        if node.get("x"):
            assert 0 <= float(node.get("x")) <= wide
            assert 0 <= float(node.get("y")) <= high
    for group in root.iter(f"{SVG}g"):
        x, y = map(float, re.findall(r"[\d.]+", group.get("transform")))
        image = group.find(f"{SVG}image")
        assert x + float(image.get("width")) <= wide
        assert y + float(image.get("height")) <= high


def test_a_text_that_was_cut_says_so():
    assert "The text is longer: 6 tokens of it are shown." in texts(drawn(made_up(is_cut=True)))


def test_the_same_weights_give_the_same_bytes():
    assert attention_chart(made_up(), "a") == attention_chart(made_up(), "a")


# ---- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" livre", "livre"), (" ", "␣"), ("\n\n", "↵↵"), ("\t", "⇥"), ("", "∅"), ("a\nb", "a b"),
        ("中" * 9, "中中中中中中…"), ("x" * 40, "x" * 12 + "…"), ("\u202ea", "\\u202ea"), ("\ufffe", "\ufffd"),
        ("$x^2$", "$x^2$"),
    ],
)  # fmt: skip
def test_a_token_is_shown_in_a_line_and_never_blank(text, label):
    assert label_of(ShownToken(text, False)) == label


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=20))
def test_any_token_gives_a_picture_and_a_page_that_can_be_read(text):
    found = made_up(rows=3, layers=1, heads=1, words=text)
    assert drawn(found).tag == f"{SVG}svg"
    page = attention_page(found, text, text)
    assert not page_reading.Page(page).unclosed
    page.encode()


def test_hostile_tokens_are_text_in_the_picture():
    root = drawn(made_up(words=PAYLOAD))
    assert any("</script>" in (node.text or "") for node in root.iter(f"{SVG}text"))
    for node in root.iter():
        assert not any(name.startswith("on") for name in node.attrib)
        assert not node.get("href", "#").startswith(("http", "javascript"))


def test_hostile_tokens_add_no_element_to_the_page():
    plain, hostile = (
        page_reading.Page(attention_page(made_up(words=words), title, title))
        for words, title in ((None, "title"), (PAYLOAD, PAYLOAD))
    )
    assert plain.tags == hostile.tags
    assert not hostile.unclosed


def test_the_page_runs_its_own_script_alone_and_fetches_nothing():
    page = attention_page(made_up(), "Where it looks", "facts")
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    (policy,) = [tag["content"] for tag in page_reading.Page(page).all("meta") if "http-equiv" in tag]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "http:" not in page
    assert "https:" not in page


def test_the_data_of_the_page_are_the_weights():
    found = made_up(words="</script>")
    page = attention_page(found, "a", "b", layer=1, head=2)
    (block,) = re.findall(r'<script type="application/json" id="found">(.*?)</script>', page, re.DOTALL)
    data = json.loads(block)
    assert (data["layer"], data["head"]) == (1, 2)
    (one,) = data["maps"]
    np.testing.assert_allclose(np.array(one["weights"]) / 1e4, found.maps[0].weights, atol=5.1e-5)
    assert np.array_equal(one["mask"], found.maps[0].mask)
    assert one["rows"][0] == {"label": "<s>", "is_special": True}
    assert one["columns"][1]["label"] == "</script>"
