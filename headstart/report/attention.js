"use strict";
const found = JSON.parse(document.getElementById("found").textContent);
const night = matchMedia("(prefers-color-scheme: dark)");
const RAMPS = {
  day: [[255, 255, 255], [158, 202, 225], [0, 114, 178], [0, 32, 60]],
  night: [[21, 24, 28], [29, 74, 109], [74, 165, 230], [234, 246, 255]],
};
const DOTS = 4; // of a small map on each side of a cell
const painters = [];

// Weights come as ten-thousandths; they are shown by their root, since most of them are small.
const share = (weight) => weight / 10000;
const percent = (weight) => `${(100 * share(weight)).toFixed(1)} %`;

function colour(amount) {
  const ramp = night.matches ? RAMPS.night : RAMPS.day;
  const along = Math.min(Math.max(amount, 0), 1) * (ramp.length - 1);
  const first = Math.min(Math.floor(along), ramp.length - 2);
  return ramp[first].map((low, i) => Math.round(low + (ramp[first + 1][i] - low) * (along - first)));
}

const css = (amount) => `rgb(${colour(amount).join(" ")})`;

function inkOn(amount) {
  const [red, green, blue] = colour(amount).map((part) => (part / 255) ** 2.2);
  return 0.21 * red + 0.72 * green + 0.07 * blue > 0.2 ? "#1c2126" : "#ffffff";
}

function add(parent, tag, words, attributes = {}) {
  const element = document.createElement(tag);
  if (words !== undefined) element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

function paint(canvas, rows, columns, amount) {
  canvas.width = columns * DOTS;
  canvas.height = rows * DOTS;
  const context = canvas.getContext("2d");
  const masked = new Path2D();
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = amount(row, column);
      if (value === null) { masked.rect(column * DOTS, row * DOTS, DOTS, DOTS); continue; }
      context.fillStyle = css(value);
      context.fillRect(column * DOTS, row * DOTS, DOTS, DOTS);
    }
  }
  hatch(canvas, context, masked);
}

function hatch(canvas, context, masked) {
  const apart = Math.max(3, Math.max(canvas.width, canvas.height) / 18);
  context.clip(masked);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--hatch");
  context.lineWidth = apart / 5;
  context.beginPath();
  for (let x = 0; x < canvas.width + canvas.height; x += apart) {
    context.moveTo(x, 0);
    context.lineTo(x - canvas.height, canvas.height);
  }
  context.stroke();
}

function repaint() {
  for (const painter of painters) painter();
}

function tokens(section, words, list, onLook) {
  add(section, "p", words, { class: "strip" });
  const strip = add(section, "ol", undefined, { class: "tokens" });
  return list.map((token, index) => {
    const chip = add(add(strip, "li"), onLook ? "button" : "span", token.label, onLook ? { type: "button" } : {});
    chip.classList.toggle("special", token.is_special);
    for (const event of onLook ? ["pointerenter", "focus", "click"] : []) chip.addEventListener(event, () => onLook(index));
    return chip;
  });
}

function build(section, map) {
  const [layers, heads] = [map.weights.length, map.weights[0].length];
  const chosen = { layer: Math.min(found.layer, layers - 1), head: Math.min(found.head, heads - 1), row: null };
  const weight = (row, column) => map.weights[chosen.layer][chosen.head][row][column];
  const isSelf = map.kind !== "cross";
  const look = (row) => { chosen.row = row; showLook(); };
  const rowChips = tokens(section, isSelf ? "the text, as the run reads it" : "the target looks …", map.rows, look);
  const columnChips = isSelf ? rowChips : tokens(section, "… at the source", map.columns, null);
  const said = add(section, "p", "", { class: "said", "aria-live": "polite" });
  const buttons = [];
  const both = add(section, "div", undefined, { class: "both" });
  const overview = add(add(both, "div", undefined, { class: "scroll", tabindex: 0 }), "table", undefined, { class: "heads" });
  const large = add(both, "div", undefined, { class: "scroll", tabindex: 0 });
  overview.style.setProperty("--heads", heads);
  let lines = [];

  const titles = add(add(overview, "thead"), "tr");
  add(titles, "td");
  map.weights[0].forEach((_, head) => add(titles, "th", `head ${head + 1}`, { scope: "col" }));
  const body = add(overview, "tbody");
  map.weights.forEach((layerWeights, layer) => {
    const line = add(body, "tr");
    add(line, "th", `layer ${layer + 1}`, { scope: "row" });
    layerWeights.forEach((weights, head) => {
      const button = add(add(line, "td"), "button", undefined, { type: "button", "aria-label": `layer ${layer + 1}, head ${head + 1}` });
      const canvas = add(button, "canvas");
      painters.push(() => paint(canvas, map.rows.length, map.columns.length,
        (row, column) => (map.mask[row][column] ? Math.sqrt(share(weights[row][column])) : null)));
      button.addEventListener("click", () => { chosen.layer = layer; chosen.head = head; showMap(); });
      buttons.push({ button, layer, head });
    });
  });

  function showMap() {
    for (const one of buttons) one.button.setAttribute("aria-pressed", one.layer === chosen.layer && one.head === chosen.head);
    large.replaceChildren();
    const longest = Math.max(map.rows.length, map.columns.length);
    const table = add(large, "table", undefined, { class: "map" });
    table.style.setProperty("--cell", longest <= 14 ? "2.4rem" : longest <= 32 ? "1.3rem" : "0.85rem");
    add(table, "caption", `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`);
    const top = add(add(table, "thead"), "tr");
    add(top, "td");
    for (const token of map.columns) {
      const name = add(top, "th", undefined, { scope: "col" });
      add(name, "span", token.label);
      name.classList.toggle("special", token.is_special);
    }
    const rows = add(table, "tbody");
    lines = map.rows.map((token, row) => {
      const line = add(rows, "tr");
      add(line, "th", token.label, { scope: "row" }).classList.toggle("special", token.is_special);
      map.columns.forEach((other, column) => {
        const cell = add(line, "td");
        if (!map.mask[row][column]) { cell.className = "masked"; return; }
        const amount = Math.sqrt(share(weight(row, column)));
        cell.title = `${token.label} looks at ${other.label}: ${percent(weight(row, column))}`;
        cell.style.background = css(amount);
        if (longest <= 14) { cell.textContent = Math.round(100 * share(weight(row, column))); cell.style.color = inkOn(amount); }
      });
      line.addEventListener("pointerenter", () => look(row));
      return line;
    });
    showLook();
  }

  function showLook() {
    const row = chosen.row;
    lines.forEach((line, index) => line.classList.toggle("looking", index === row));
    rowChips.forEach((chip, index) => chip.classList.toggle("looking", index === row));
    if (row === null) return;
    columnChips.forEach((chip, column) => {
      const isSeen = map.mask[row][column];
      const amount = isSeen ? Math.sqrt(share(weight(row, column))) : 0;
      chip.classList.toggle("masked", !isSeen);
      chip.style.background = isSeen ? css(amount) : "";
      chip.style.color = isSeen ? inkOn(amount) : "";
      chip.title = isSeen ? percent(weight(row, column)) : "may not be looked at";
    });
    const best = map.columns.map((token, column) => [weight(row, column), token.label]).sort((a, b) => b[0] - a[0]);
    const most = best.slice(0, 4).filter(([value]) => value > 0).map(([value, label]) => `${label} ${percent(value)}`);
    said.textContent = `${map.rows[row].label} looks at ${most.join(", ")}`;
  }

  painters.push(showMap);
}

function buildPositions(section, positions) {
  const values = positions.values;
  const largest = Math.max(...values.flat().map(Math.abs), 1e-9);
  const frame = add(section, "div", undefined, { class: "scroll", tabindex: 0 });
  const canvas = add(frame, "canvas", undefined, { class: "positions", role: "img", "aria-label": "a row for each token, a column for each number" });
  canvas.style.width = `${Math.max(20, values[0].length * 0.7)}rem`;
  canvas.style.height = `${Math.min(40, Math.max(4, values.length * 0.9))}rem`;
  painters.push(() => paint(canvas, values.length, values[0].length, (row, column) => (values[row][column] / largest + 1) / 2));
  const legend = add(section, "p", undefined, { class: "legend" });
  add(legend, "span", `−${largest.toFixed(2)}`);
  add(legend, "span", undefined, { class: "ramp" });
  add(legend, "span", `+${largest.toFixed(2)}`);
}

for (const section of document.querySelectorAll("[data-map]")) build(section, found.maps[Number(section.dataset.map)]);
buildPositions(document.querySelector("[data-positions]"), found.positions);
repaint();
night.addEventListener("change", repaint);
