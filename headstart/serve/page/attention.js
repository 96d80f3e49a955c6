// Attention: every layer and head as a small map, one of them enlarged, and where each token looks.

import { post } from "./api.js";
import { asking } from "./asking.js";
import { choice, make } from "./dom.js";
import { heatLegend, heatMap, largeMap, maskInWords, maskPicture, smallMap, weightLegend } from "./maps.js";
import { percent } from "./numbers.js";
import { secondOf, secondText } from "./texts.js";
import { quoted, strip } from "./tokens.js";

const KINDS = { self: "Self-attention", encoder: "Encoder over itself", decoder: "Decoder over itself", cross: "Decoder over encoder" };
const CUT = "The text is longer than the run reads or than can be shown; the rest was cut off.";
const POSITIONS = {
  sinusoidal: "Sinusoids of increasing wavelength are added to the embedding of each token (one row per token).",
  learned: "These learned vectors are added to the embedding of each token (one row per token).",
  rotary: "Nothing is added: queries and keys are rotated by these angles, shown by sine and cosine (one row per token).",
};

/** Wire the tab. */
export function attention(panel) {
  const [text, second, target] = panel.querySelectorAll("textarea");
  const asked = asking(panel, async (run, signal, result, say) => {
    const body = { run: run.name, text: text.value, text_b: secondOf(panel) };
    if (run.objective === "translation" && target.value.trim()) body.target = target.value;
    const answer = await post("api/attention", body, signal);
    const [layers, heads] = [answer.maps[0].weights.length, answer.maps[0].weights[0].length];
    const several = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
    say(`${several(layers, "layer")} of ${several(heads, "head")}, ${several(answer.maps[0].rows.length, "token")}.`);
    if (answer.is_cut) result.append(make("p", { class: "note" }, CUT));
    result.append(...pictures(answer));
  });
  return {
    choose(run) {
      secondText(panel, run);
      panel.querySelector(".target").hidden = run.objective !== "translation";
      asked.choose(run);
    },
    ask(words, secondWords) {
      [text.value, second.value] = [words, secondWords ?? ""];
      asked.ask();
    },
  };
}

function pictures(answer) {
  const figure = make("div", { class: "attention" });
  const show = (kind) => figure.replaceChildren(...mapOf(answer.maps.find((map) => map.kind === kind), answer.positions));
  const options = answer.maps.map((map) => [map.kind, KINDS[map.kind] ?? map.kind]);
  show(options[0][0]);
  const kinds = choice("Which attention", "kind", options, options[0][0], show);
  return options.length > 1 ? [make("div", { class: "actions" }, kinds), figure] : [figure];
}

/** The grid of small maps, the enlarged one beside it, mask and positions under the grid. */
function mapOf(map, positions) {
  const one = make("section", { class: "one" });
  const last = { row: map.rows.length - 1 };
  const enlarge = (layer, head) => one.replaceChildren(...enlarged(map, layer, head, last));
  enlarge(0, 0);
  const sides = [maskFigure(map)];
  if (positions.values && map.kind !== "decoder" && map.kind !== "cross") sides.push(positionsFigure(positions));
  return [gridFigure(map, enlarge, one), one, make("div", { class: "sides" }, ...sides)];
}

// ---- all of them ----

function gridFigure(map, enlarge, one) {
  const heads = map.weights[0].length;
  const buttons = map.weights.map((layer, at) => layer.map((weights, head) => mapButton(map, weights, at, head)));
  const all = buttons.flat();
  const chosen = (button) => all.forEach((other) => {
    other.setAttribute("aria-pressed", other === button);
    other.tabIndex = other === button ? 0 : -1;
  });
  buttons.forEach((row, layer) => row.forEach((button, head) => button.addEventListener("click", () => {
    chosen(button);
    enlarge(layer, head);
    one.scrollIntoView({ block: "nearest" });
  })));
  chosen(all[0]);
  const label = "Maps by layer and head; arrow keys move, Enter enlarges";
  const axis = (at) => make("span", { class: "axis", "aria-hidden": "true" }, `${at + 1}`);
  const grid = make("div", { class: "maps", role: "toolbar", "aria-label": label, style: { "--heads": heads } },
    make("span"), ...buttons[0].map((_, head) => axis(head)),
    ...buttons.flatMap((row, layer) => [axis(layer), ...row]));
  grid.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads }[event.key];
    if (at < 0 || !step || !all[at + step]) return;
    event.preventDefault();
    all[at + step].focus();
  });
  const grey = map.mask.every((row) => row.every(Boolean)) ? "" : " Grey is what the mask forbids.";
  const caption = `: a row for each layer, a column for each head. Choose one to enlarge it.${grey}`;
  return make("figure", { class: "all" }, make("figcaption", {}, make("b", {}, KINDS[map.kind] ?? map.kind), caption), grid);
}

function mapButton(map, weights, layer, head) {
  const name = `Layer ${layer + 1}, head ${head + 1}`;
  return make("button", { type: "button", class: "map", "aria-label": name, title: name }, smallMap(weights, map.mask));
}

// ---- one of them ----

/** One map with the strips of its tokens; `last` remembers the row that somebody looks at, from map to map. */
function enlarged(map, layer, head, last) {
  const weights = map.weights[layer][head];
  const isSelf = map.kind !== "cross";
  const told = make("p", { class: "told" });
  const looking = strip("Queries; arrow keys move", map.rows, (row) => look(row));
  const lookedAt = isSelf ? looking : strip("Keys", map.columns, () => {});
  const large = largeMap(map, weights, `Map of layer ${layer + 1}, head ${head + 1}: rows attend to columns`, (row, column) => {
    looking.pointAt(row);
    const number = map.mask[row][column] ? percent(weights[row][column]) : "forbidden";
    told.append(` Here: ${quoted(map.columns[column].text)}, ${number}.`);
  });

  function look(row) {
    last.row = row;
    large.mark(row);
    map.columns.forEach((_, column) => {
      const isAllowed = map.mask[row][column];
      lookedAt.buttons[column].classList.toggle("forbidden", !isAllowed);
      lookedAt.buttons[column].style.setProperty("--share", isAllowed ? weights[row][column] : 0);
      lookedAt.note(column, isAllowed ? whole(weights[row][column]) : "–");
    });
    told.replaceChildren(make("b", {}, quoted(map.rows[row].text)), ` attends to ${most(map, weights, row)}.`);
    looking.name(row, `attends to ${most(map, weights, row)}`);
  }

  looking.element.classList.add("numbered", "looking");
  lookedAt.element.classList.add("numbered", "looking");
  looking.pointAt(Math.min(last.row, map.rows.length - 1));
  return [
    make("h3", {}, `Layer ${layer + 1}, head ${head + 1}`),
    large.element, weightLegend(map.mask),
    make("h4", {}, "Where it looks"),
    make("p", { class: "quiet" }, "Point at a token, or move to it with the arrow keys: the numbers are its row of the map."),
    looking.element, ...(isSelf ? [] : [make("p", { class: "quiet" }, "among the source's tokens:"), lookedAt.element]), told,
  ];
}

const whole = (weight) => (weight < 0.005 ? "0" : `${Math.round(100 * weight)}\u00a0%`);

function most(map, weights, row) {
  const order = weights[row].map((weight, column) => [weight, column]).sort((one, other) => other[0] - one[0]);
  const shown = order.slice(0, 3).filter(([weight]) => weight >= 0.005);
  return shown.map(([weight, column]) => `${quoted(map.columns[column].text)} ${percent(weight)}`).join(", ");
}

// ---- what is around them ----

function maskFigure(map) {
  return make("figure", { class: "side" }, make("h3", {}, "The mask"), maskPicture(map.mask),
    make("figcaption", {}, maskInWords(map.mask), " A row is the token that looks, a column the one that is looked at."));
}

function positionsFigure(positions) {
  const { canvas, most } = heatMap(positions.values);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Heat map of the ${positions.kind} positions`);
  return make("figure", { class: "side" }, make("h3", {}, `Positions: ${positions.kind}`), canvas, heatLegend(most),
    make("figcaption", {}, POSITIONS[positions.kind] ?? ""));
}
