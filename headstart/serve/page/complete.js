// Complete: the run continues a text, token by token; each token is shaded by its probability and has its alternatives.

import { postForLines } from "./api.js";
import { asking } from "./asking.js";
import { bars } from "./bars.js";
import { make } from "./dom.js";
import { percent } from "./numbers.js";
import { numbersToggle, strip, visible } from "./tokens.js";

const STOPS = {
  end: "the run ended the text",
  "max-tokens": "the maximum was reached",
  context: "the positions of the run end here",
  time: "the time limit of the server was reached",
};
const ALTERNATIVES = 5;
const HINT = "Point at a token, or move to it with Tab and the arrow keys, to see its probability and its alternatives.";

/** Wire the tab. */
export function complete(panel) {
  const form = panel.querySelector("form");
  const prompt = panel.querySelector("textarea");
  const number = (name) => Number(form.elements[name].value);
  const asked = asking(panel, async (run, signal, result, say) => {
    const names = ["max_tokens", "temperature", "top_k", "top_p", "seed"];
    const settings = Object.fromEntries(names.map((name) => [name, number(name)]));
    const body = { run: run.name, prompt: prompt.value, ...settings, alternatives: ALTERNATIVES, stream: true };
    const written = writing(prompt.value);
    say("Generating …");
    await postForLines("api/generate", body, signal, (line) => {
      if (!written.element.isConnected) result.append(written.element);
      if (line.stop) end(line, result, say);
      else written.add(line);
    });
  });
  return {
    choose: asked.choose,
    limit: (limits) => (form.elements.max_tokens.max = limits.max_tokens),
  };
}

function end(line, result, say) {
  say(`${line.token_count} ${line.token_count === 1 ? "token" : "tokens"}: ${STOPS[line.stop] ?? line.stop}.`);
  result.append(...(line.notes ?? []).map((words) => make("p", { class: "note" }, words)));
}

/** The text as it grows, with the pane that describes one token. */
function writing(prompt) {
  const tokens = [];
  const pane = make("div", { class: "pane" }, make("p", { class: "quiet" }, HINT));
  const row = strip("Generated tokens with their probabilities; arrow keys move", [], (index) =>
    pane.replaceChildren(...considered(tokens[index])));
  if (prompt) row.element.prepend(make("span", { class: "prompt" }, prompt));
  const under = make("div", { class: "under" }, legend(), numbersToggle(row.element));
  const text = make("div", { class: "written" }, row.element, under);
  return {
    element: make("div", { class: "beside" }, text, pane),
    add(token) {
      const [button, index] = [row.add(token), tokens.push(token) - 1];
      button.classList.add("likely");
      button.style.setProperty("--share", token.probability);
      row.note(index, percent(token.probability));
      row.name(index, `${percent(token.probability)}${token.alternatives.length ? `; most probable ${spoken(token)}` : ""}`);
    },
  };
}

const spoken = (token) => token.alternatives.map((one) => `${visible(one.text)} ${percent(one.probability)}`).join(", ");

function considered(token) {
  const isThere = token.alternatives.some((one) => one.text === token.text);
  const shown = token.alternatives.map((one) => [visible(one.text), one.probability]);
  if (!isThere) shown.push([visible(token.text), token.probability]);
  return [
    make("p", {}, make("b", { class: "chosen-token" }, visible(token.text)), ` had ${percent(token.probability)}.`),
    bars(shown, [visible(token.text)]),
    make("p", { class: "quiet" }, isThere
      ? "The most probable tokens here, at temperature 1."
      : `The ${token.alternatives.length} most probable tokens here, and the sampled one.`),
  ];
}

function legend() {
  const scale = [0.02, 0.25, 0.6, 0.95].map((share) =>
    make("span", { class: "token likely", style: { "--share": share } }, percent(share)));
  return make("p", { class: "legend" }, make("span", {}, "Probability of a token:"), ...scale);
}
