// Drawings of numbers in a grid: small maps on canvas (a hundred and more at once), the enlarged one and the mask in SVG.

import { draw, make } from "./dom.js";
import { percent, plain } from "./numbers.js";
import { visible } from "./tokens.js";

// Between the two schemes' blues and vermilions, so that what is drawn fits by day and by night.
const BLUE = [31, 134, 201];
const VERMILION = [224, 106, 26];
const GREY = [128, 128, 128];

/** How dark a weight is drawn: by its square root, since most weights are small. */
export const darkness = (weight) => Math.sqrt(Math.max(0, weight));

/** Weights as a picture of one dot a cell; what the mask forbids is grey. */
export function smallMap(weights, mask) {
  return picture(weights, (weight, row, column) =>
    mask[row][column] ? [...BLUE, darkness(weight)] : [...GREY, 0.3]);
}

/** Numbers around zero as a picture: blue above, vermilion below. */
export function heatMap(values) {
  const most = Math.max(...values.flat().map(Math.abs), 1e-9);
  const canvas = picture(values, (value) => [...(value < 0 ? VERMILION : BLUE), Math.abs(value) / most]);
  return { canvas, most };
}

function picture(rows, colour) {
  const [width, height] = [rows[0].length, rows.length];
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  rows.forEach((row, y) => row.forEach((value, x) => {
    const [red, green, blue, opacity] = colour(value, y, x);
    image.data.set([red, green, blue, Math.round(255 * opacity)], 4 * (y * width + x));
  }));
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The side of a cell, the size of letters and the room for labels, in pixels. */
function measures({ rows, columns }) {
  const count = Math.max(rows.length, columns.length);
  const cell = count <= 12 ? 30 : count <= 18 ? 24 : count <= 30 ? 17 : count <= 44 ? 13 : 11;
  const size = Math.min(12, cell - 1);
  const room = 12 + 0.68 * size * Math.max(...[...rows, ...columns].map((token) => short(token).length));
  return { cell, size, room };
}

/**
 * One map with its tokens around it. `point(row, column)` hears which cell is pointed at. Gives the element and
 * `mark(row)`, which frames a row.
 */
export function largeMap(map, weights, label, point) {
  const { cell, room, size } = measures(map);
  const [width, height] = [room + cell * map.columns.length, room + cell * map.rows.length];
  const frame = draw("rect", { class: "frame", x: room, width: cell * map.columns.length, height: cell, visibility: "hidden" });
  const cells = weights.flatMap((row, y) => row.map((weight, x) => {
    const isAllowed = map.mask[y][x];
    const words = `${visible(map.rows[y].text)} → ${visible(map.columns[x].text)}: ${isAllowed ? percent(weight) : "forbidden"}`;
    const box = { x: room + x * cell, y: room + y * cell, width: cell - 1, height: cell - 1, "data-row": y, "data-column": x };
    const look = isAllowed ? { class: "cell", style: { "--share": darkness(weight).toFixed(3) } } : { class: "forbidden" };
    return draw("rect", { ...box, ...look }, draw("title", {}, words));
  }));
  const middle = (at) => room + (at + 0.5) * cell;
  const letter = { "dominant-baseline": "central", "font-size": size };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, style: { "--natural": width } },
    hatching("hatch-large"),
    ...map.rows.map((token, y) => draw("text", { ...letter, x: room - 6, y: middle(y), "text-anchor": "end" }, short(token))),
    ...map.columns.map((token, x) => draw("text", { ...letter, transform: `translate(${middle(x)} ${room - 6}) rotate(-90)` }, short(token))),
    ...cells, frame);
  svg.addEventListener("pointerover", ({ target }) => {
    if (target.dataset.row) point(Number(target.dataset.row), Number(target.dataset.column));
  });
  const mark = (row) => {
    frame.setAttribute("y", room + row * cell);
    frame.setAttribute("visibility", "visible");
  };
  const scroll = make("div", { class: "scroll large", tabindex: 0, role: "group", "aria-label": `${label}, scrolls` }, svg);
  return { element: scroll, mark };
}

function short(token) {
  const words = visible(token.text);
  return words.length > 11 ? `${words.slice(0, 10)}…` : words;
}

/** The mask: a filled cell may be looked at, a hatched one may not. */
export function maskPicture(mask) {
  const [height, width] = [mask.length, mask[0].length];
  const cells = mask.flatMap((row, y) => row.map((isAllowed, x) =>
    draw("rect", { class: isAllowed ? "allowed" : "forbidden", x: 8 * x, y: 8 * y, width: 7.4, height: 7.4 })));
  const about = { viewBox: `0 0 ${8 * width} ${8 * height}`, role: "img", "aria-label": maskInWords(mask) };
  return draw("svg", about, hatching("hatch-mask"), ...cells);
}

/** What a mask forbids, in a sentence. */
export function maskInWords(mask) {
  if (mask.every((row) => row.every(Boolean))) return "Nothing is masked: every token attends to all tokens.";
  const isSubsequent = mask.every((row, y) => row.every((isAllowed, x) => isAllowed === x <= y));
  if (isSubsequent) return "The square subsequent mask: a token attends to itself and to earlier tokens, never to later ones.";
  return "Some tokens are masked.";
}

function hatching(id) {
  return draw("defs", {}, draw("pattern", { id, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { class: "hatch", width: 1.2, height: 4 })));
}

/** What the colours of a map stand for. */
export function weightLegend(mask) {
  const isAllAllowed = mask.every((row) => row.every(Boolean));
  const samples = [0.01, 0.1, 0.5, 1].map((weight) =>
    make("span", { class: "swatch", style: { "--share": darkness(weight) } }, make("i"), `${Math.round(100 * weight)} %`));
  const forbidden = make("span", { class: "swatch forbidden" }, make("i"), "forbidden");
  return make("p", { class: "legend" }, ...samples, isAllAllowed ? null : forbidden);
}

/** The same for numbers around zero. */
export function heatLegend(most) {
  const end = (sign) => make("span", {}, sign + plain(Number(most.toPrecision(2))));
  return make("p", { class: "legend heat" }, end("−"), make("i"), end("+"));
}
