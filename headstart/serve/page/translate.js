// Translate: source and target with the attention between them as lines, as thick as the weight.

import { post } from "./api.js";
import { asking } from "./asking.js";
import { draw, make } from "./dom.js";
import { percent } from "./numbers.js";
import { cutInWords } from "./texts.js";
import { quoted, strip } from "./tokens.js";

const LEAST = 0.05; // thinner lines are only shown for the token that is pointed at
const FAINTEST = 0.01; // and these never: a long text has tens of thousands of them
const THICKEST_PIXELS = 9;

/** Wire the tab; `go(tab, text)` leads on to another one with the same text. */
export function translate(panel, go) {
  const form = panel.querySelector("form");
  const text = panel.querySelector("textarea");
  const asked = asking(panel, async (run, signal, result, say) => {
    const settings = { beam: Number(form.elements.beam.value), length_penalty: Number(form.elements.length_penalty.value) };
    const body = { run: run.name, text: text.value, ...settings };
    const answer = await post("api/translate", body, signal);
    say(answer.text);
    const cut = answer.is_cut ? [cutInWords(run)] : [];
    result.append(...[...cut, ...(answer.notes ?? [])].map((words) => make("p", { class: "note" }, words)));
    if (answer.target.length) result.append(alignmentPicture(answer));
    const score = answer.score?.toFixed(3).replace("-", "−") ?? "not a number";
    const onward = { type: "button", class: "link", onclick: () => go("attention", body.text) };
    result.append(
      make("p", { class: "quiet" }, `Score ${score}: log-probability over length; closer to 0 is more certain.`),
      make("p", { class: "onward" }, make("button", onward, "Show all layers and heads")));
  });
  return { choose: asked.choose };
}

function alignmentPicture({ source, target, weights, alignment }) {
  const told = make("p", { class: "told" }, "Point at a token, or move to it with the arrow keys, to see its links.");
  const svg = draw("svg", { "aria-hidden": "true" });
  const strips = {
    source: strip("Source tokens; arrow keys move", source, (index) => point("source", index)),
    target: strip("Target tokens; arrow keys move", target, (index) => point("target", index)),
  };
  const best = new Set(alignment.map((link) => `${link.source} ${link.target}`));
  const isDrawn = (one) => one.isBest || one.weight >= FAINTEST;
  const all = weights.flatMap((row, to) => row.map((weight, from) =>
    ({ source: from, target: to, weight, isBest: best.has(`${from} ${to}`) })));
  const links = all.filter(isDrawn).map(drawn);
  svg.append(...links.map((one) => one.path));
  target.forEach((_, index) => strips.target.name(index, `attends to ${looked("target", index)}`));
  source.forEach((_, index) => strips.source.name(index, `attended to by ${looked("source", index) || "none"}`));

  function looked(side, index) {
    const other = side === "target" ? "source" : "target";
    const found = links.filter((one) => one[side] === index && one.weight >= LEAST).sort((one, two) => two.weight - one.weight);
    return found.slice(0, 4).map((one) => `${quoted({ source, target }[other][one[other]].text)} ${percent(one.weight)}`).join(", ");
  }

  function point(side, index) {
    for (const one of links) one.path.setAttribute("class", `${one.kind} ${one[side] === index ? "on" : "off"}`);
    for (const other of ["source", "target"]) {
      if (other !== side) strips[other].buttons.forEach((button) => button.classList.remove("pointed"));
      strips[other].buttons.forEach((button, at) => {
        const weight = side === "target" ? weights[index][at] : weights[at]?.[index];
        button.style.setProperty("--share", other === side ? 0 : weight);
      });
    }
    const words = side === "target" ? "attends to" : "is attended to by";
    const found = looked(side, index) || "no token in particular";
    told.replaceChildren(make("b", {}, quoted({ source, target }[side][index].text)), ` ${words} ${found}.`);
  }

  const picture = make("div", { class: "alignment" }, svg, strips.source.element, strips.target.element);
  new ResizeObserver(() => lay(picture, svg, strips, links)).observe(picture);
  return make("figure", {},
    make("figcaption", {}, make("b", {}, "Cross-attention"), `: from each target token to the source tokens that it attends to,
      the mean over the heads of the decoder's last layer but one (or of its only one). Thicker is more; the strongest link to a word of the text is in colour.`),
    picture, told);
}

function drawn(link) {
  const kind = `tie ${link.isBest ? "best" : ""} ${link.weight < LEAST && !link.isBest ? "faint" : ""}`;
  const path = draw("path", { class: kind, fill: "none", "stroke-width": Math.max(0.4, THICKEST_PIXELS * link.weight).toFixed(2) });
  return { ...link, kind, path };
}

/** Two lines of tokens one above the other where they fit, two columns where they do not; the links between them. */
function lay(picture, svg, strips, links) {
  picture.classList.remove("down");
  const isTooWide = Object.values(strips).some(({ element }) => element.scrollWidth > element.clientWidth + 1);
  picture.classList.toggle("down", isTooWide);
  const frame = picture.getBoundingClientRect();
  svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  const boxes = Object.fromEntries(Object.entries(strips).map(([side, { buttons }]) =>
    [side, buttons.map((button) => button.getBoundingClientRect())]));
  for (const one of links) one.path.setAttribute("d", curve(boxes.source[one.source], boxes.target[one.target], frame, isTooWide));
}

function curve(from, to, frame, isDown) {
  const start = isDown ? [from.right, (from.top + from.bottom) / 2] : [(from.left + from.right) / 2, from.bottom];
  const end = isDown ? [to.left, (to.top + to.bottom) / 2] : [(to.left + to.right) / 2, to.top];
  const [[x, y], [u, v]] = [start, end].map(([left, top]) => [left - frame.left, top - frame.top]);
  return isDown
    ? `M${x} ${y}C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}`
    : `M${x} ${y}C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`;
}
