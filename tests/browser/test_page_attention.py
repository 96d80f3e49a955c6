"""The tab Attention: the maps, the mask and the positions are those that the model used."""

import pytest
import tiny_runs

from headstart.inference.attention_maps import attention_of

TEXT = "la fin est triste."
ENTER, RIGHT, DOWN = "\ue007", "\ue014", "\ue015"


def shown_row(browser):
    """The numbers under the tokens, as whole percents; None where a token may not be looked at."""
    notes = browser.texts("#attention .looking:last-of-type small")
    return [None if note == "–" else int(note.split()[0]) for note in map(str, notes)]


def test_a_token_looks_where_the_model_looked(page):
    browser = page.open("attention", "classification")
    page.submit("attention", TEXT)
    (found,) = attention_of(tiny_runs.run_of("classification"), TEXT, tiny_runs.MACHINE).maps
    layers, heads, rows, _ = found.weights.shape
    assert len(browser.texts("#attention .map")) == layers * heads
    for layer, head, row in [(0, 0, rows - 1), (1, 1, 2)]:
        browser.click(f"#attention .map[aria-label='Layer {layer + 1}, head {head + 1}']")
        browser.hover(f"#attention .looking .token:nth-of-type({row + 1})")
        shown = shown_row(browser)
        assert [value is not None for value in shown] == found.mask[row].tolist()
        percents = [100 * weight for weight in found.weights[layer, head, row, : row + 1]]
        assert shown[: row + 1] == pytest.approx(percents, abs=0.51)


def test_small_maps_are_pictures_of_the_weights(page):
    browser = page.open("attention", "classification")
    page.submit("attention", TEXT)
    (found,) = attention_of(tiny_runs.run_of("classification"), TEXT, tiny_runs.MACHINE).maps
    dots = browser.ask("""(() => { const canvas = document.querySelectorAll('#attention .map canvas')[3];
      const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return [width, height, [...data].filter((_, at) => at % 4 === 3)] })()""")
    count = len(found.rows)
    assert dots[:2] == [count, count]
    expected = [
        255 * (float(found.weights[1, 1, row, column]) ** 0.5 if found.mask[row, column] else 0.3)
        for row in range(count)
        for column in range(count)
    ]
    assert dots[2] == pytest.approx(expected, abs=1)


def test_the_mask_is_shown_as_what_it_is(page):
    browser = page.open("attention", "classification")
    page.submit("attention", TEXT)
    count = len(browser.texts("#attention .looking .token"))
    assert len(browser.texts("#attention .side .forbidden")) == count * (count - 1) // 2
    assert len(browser.texts("#attention .side .allowed")) == count * (count + 1) // 2
    assert "subsequent mask" in browser.texts("#attention .side figcaption")[0]
    assert "Grey is what the mask forbids" in browser.texts("#attention .all figcaption")[0]
    fills = "getComputedStyle(document.querySelector('#attention .side .forbidden')).fill"
    assert "hatch-mask" in browser.ask(fills)


@pytest.mark.parametrize(("kind", "words"), [("causal", "sinusoidal"), ("rotary", "rotary")])
def test_positions_are_a_heat_map(page, kind, words):
    browser = page.open("attention", kind)
    page.submit("attention", TEXT)
    assert browser.texts("#attention .side h3")[1] == f"Positions: {words}"
    found = attention_of(tiny_runs.run_of(kind), TEXT, tiny_runs.MACHINE).positions
    size = browser.ask("(canvas => [canvas.height, canvas.width])(document.querySelector('#attention .side canvas'))")
    assert size == list(found.values.shape)


def test_maps_are_chosen_by_keyboard(page):
    browser = page.open("attention", "classification")
    page.submit("attention", TEXT)
    assert browser.texts("#attention .one h3") == ["Layer 1, head 1"]
    browser.ask("document.querySelector('#attention .map').focus()")
    browser.press(RIGHT, DOWN, ENTER)
    assert browser.texts("#attention .one h3") == ["Layer 2, head 2"]
    assert browser.ask("document.querySelectorAll('#attention .map[aria-pressed=true]').length") == 1


def test_a_cell_of_the_large_map_tells_its_number(page):
    browser = page.open("attention", "classification")
    page.submit("attention", TEXT)
    browser.ask(
        """document.querySelector('#attention .large [data-row="2"][data-column="1"]')
        .dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"""
    )
    assert "Here: " in browser.find("#attention .told").text
    assert browser.texts("#attention .looking .pointed span") == browser.texts(
        "#attention .looking .token:nth-of-type(3) span"
    )


def test_a_translation_has_three_attentions(page):
    browser = page.open("attention", "translator-joint")
    page.submit("attention", TEXT)
    assert browser.texts("#attention .choice label") == [
        "Encoder over itself",
        "Decoder over itself",
        "Decoder over encoder",
    ]
    allowed = {}
    for kind in ("encoder", "decoder", "cross"):
        browser.click(f"#attention input[value={kind}]")
        allowed[kind] = len(browser.texts("#attention .side .forbidden"))
    assert allowed["encoder"] == allowed["cross"] == 0 < allowed["decoder"]
    browser.click("#attention .looking .token:nth-of-type(2)")
    assert len(browser.texts("#attention .looking")) == 2
    browser.write("#attention-target", "triste est fin la!")
    browser.click("#attention .go")
    page.answered("attention")
    browser.click("#attention input[value=decoder]")
    written = "".join(browser.texts("#attention .looking .token:not(.special) span"))
    assert written.replace("␣", "") == "tristeestfinla!"
