// Tokens coloured by their attribution: how much of an answer they account for; the line under a token tells for from against without colour.

import { make } from "./dom.js";
import { decimalsFor, signed } from "./numbers.js";
import { numbersToggle, quoted, strip } from "./tokens.js";

const METHODS = {
  "leave-one-out": ["Leaving out", (number) => `how much of ${number} is lost when a token is left out.`],
  gradient: ["Gradient × input", (number) => `what each token adds to ${number}, to first order: its embedding times the gradient.`],
};

/** The strongest attribution of any token. */
export function strongest({ tokens }) {
  return Math.max(...tokens.map((token) => Math.abs(token.attribution)), 1e-9);
}

/** The picture of attributions as the server gives them; `scale`, where given, is the fullest colour of several pictures. */
export function attributionPicture({ method, of, unit = "log-odds", tokens }, scale) {
  const [name, how] = METHODS[method] ?? [method, (number) => `the effect of each token on ${number}.`];
  const measured = unit.startsWith("log-odds") ? `the log-odds of ${of}` : "the value";
  const largest = strongest({ tokens });
  const decimals = decimalsFor(largest);
  const number = (token) => signed(token.attribution, decimals);
  const told = make("p", { class: "told" });
  const words = (token) => `${number(token)} ${token.attribution < 0 ? "against" : "for"} ${of}`;
  const row = strip(`Tokens with their attribution for ${of}; arrow keys move`, tokens, (index) =>
    told.replaceChildren(make("b", {}, quoted(tokens[index].text)), ` ${words(tokens[index])}`));
  tokens.forEach((token, index) => {
    const share = Math.abs(token.attribution) / (scale ?? largest);
    row.buttons[index].classList.add(token.attribution < 0 ? "against" : "for");
    row.buttons[index].style.setProperty("--share", share.toFixed(3));
    row.buttons[index].style.setProperty("--line", `${Math.round(share * 3)}px`);
    row.note(index, number(token));
    row.name(index, words(token));
  });
  return make("figure", { class: "attribution" },
    make("figcaption", {}, make("b", {}, name), `: ${how(measured)}`),
    legend(of, scale !== undefined),
    row.element,
    make("div", { class: "under" }, told, numbersToggle(row.element)));
}

function legend(of, isShared) {
  const sample = (kind, words) =>
    make("li", {}, make("span", { class: `token ${kind}`, style: { "--share": 0.8, "--line": "3px" } }, "token"), words);
  return make("ul", { class: "legend" }, sample("for", `speaks for ${of}`), sample("against", `speaks against ${of}`),
    make("li", {}, `the stronger the colour, the more${isShared ? ", on one scale for both" : ""}`));
}
