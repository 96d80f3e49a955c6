// Compare: the same text through two runs, side by side.

import { post } from "./api.js";
import { asking } from "./asking.js";
import { answered, headline } from "./classify.js";
import { make, refill } from "./dom.js";
import { strongest } from "./attribution.js";
import { percent, plain } from "./numbers.js";
import { secondOf, secondText, startOf } from "./texts.js";
import { numbersToggle, quoted, strip } from "./tokens.js";

const MOST_BITS = 12; // a token of one in four thousand is shaded as strongly as any

/** The runs that a run can be compared with: they answer the same question about the same kind of text. */
export function comparable(run, runs) {
  const ways = ["classify", "score"].filter((way) => run.can.includes(way));
  const isAlike = (other) => other.pairs === run.pairs && ways.some((way) => other.can.includes(way));
  return runs.filter((other) => other.name !== run.name && isAlike(other));
}

/** Wire the tab; `all()` gives the runs that there are. */
export function compare(panel, all) {
  const text = panel.querySelector("textarea");
  const form = panel.querySelector("form");
  const other = panel.querySelector("#compare-other");
  const asked = asking(panel, async (run, signal, result, say) => {
    const both = [run, all().find((one) => one.name === other.value)];
    const ask = run.can.includes("score") ? score : judge;
    const pair = { text: text.value, text_b: secondOf(panel) };
    const answers = await Promise.all(both.map((one) => ask(one, pair, form.elements.method.value, signal)));
    both.forEach((one) => (one.loaded = true));
    say(run.can.includes("score") ? surpriseInWords(both, answers, pair.text) : verdictInWords(both, answers));
    const show = run.can.includes("score") ? scored : judged;
    result.append(make("div", { class: "pair" }, ...both.map((one, at) => show(one, answers[at], answers))));
  });
  form.addEventListener("change", ({ target }) => {
    if ((target === other || target.name === "method") && asked.hasResult()) asked.ask();
  });
  return {
    choose(run) {
      const others = comparable(run, all());
      if (!others.length) return;
      panel.querySelector("#compare-this").textContent = run.name;
      refill(other, others.map((one) => [one.name, one.name]), other.value);
      secondText(panel, run);
      form.querySelector("fieldset").hidden = !run.can.includes("classify");
      asked.choose(run);
    },
  };
}

// ---- runs with labels ----

const judge = (run, pair, method, signal) => post("api/classify", { run: run.name, ...pair, attribution: method }, signal);

/** One of two answers, its colours on a scale that they share. */
function judged(run, answer, both) {
  const scale = Math.max(...both.map(({ attribution }) => strongest(attribution)));
  return column(run, make("p", { class: "answer" }, headline(answer)), ...answered(run, answer, scale));
}

function verdictInWords(runs, answers) {
  const words = (answer) => (answer.value != null ? plain(answer.value) : (answer.labels ?? [answer.label]).join(", ") || "none");
  const [one, two] = answers.map(words);
  if (one === two) return `Both say ${one}.`;
  return `${runs[0].name} says ${one}, ${runs[1].name} says ${two}.`;
}

// ---- runs that predict the next token ----

const score = (run, pair, method, signal) => post("api/score", { run: run.name, text: pair.text }, signal);

function scored(run, answer) {
  const told = make("p", { class: "told" });
  const ranked = (rank) => (rank === 1 ? "the most probable" : `number ${rank.toLocaleString("en")} of its vocabulary`);
  const words = (token) => `${percent(token.probability)}, ${ranked(token.rank)}`;
  const row = strip("Tokens with their probabilities; arrow keys move", answer.tokens, (index) =>
    told.replaceChildren(make("b", {}, quoted(answer.tokens[index].text)), ` ${words(answer.tokens[index])}`));
  answer.tokens.forEach((token, index) => {
    row.buttons[index].classList.add("surprising");
    row.buttons[index].style.setProperty("--share", surprise(token.probability));
    row.note(index, percent(token.probability));
    row.name(index, words(token));
  });
  const legend = make("p", { class: "legend" }, make("span", {}, "Probability of a token:"),
    ...[0.9, 0.1, 0.01, 0.0004].map((share) =>
      make("span", { class: "token surprising", style: { "--share": surprise(share) } }, percent(share))));
  return column(run, make("p", { class: "answer" }, `Perplexity ${digits(answer.perplexity ?? Infinity)}`), legend, row.element,
    make("div", { class: "under" }, told, numbersToggle(row.element)),
    answer.is_cut ? make("p", { class: "note" }, "The text is longer than the run's context; the rest was cut off.") : null);
}

/** How strongly a token is shaded. */
const surprise = (probability) => Math.min(1, -Math.log2(Math.max(probability, 1e-9)) / MOST_BITS).toFixed(3);

const digits = (number) => (Number.isFinite(number) ? plain(Number(number.toPrecision(3))) : "∞");

/** Perplexity counts by token; where two tokenizers cut a text differently, only bits by character compare. */
function surpriseInWords(runs, answers, text) {
  const [first, second] = answers.map((answer) => answer.tokens.map((token) => token.text).join("\n"));
  const isSame = first === second;
  if (!isSame && answers.some((answer) => answer.is_cut)) return "The text is longer than a run's context: compare a shorter one.";
  const bits = answers.map((answer) => (answer.loss * answer.tokens.length) / Math.LN2 / text.length);
  const numbers = isSame ? answers.map((answer) => answer.perplexity ?? Infinity) : bits;
  const less = numbers[0] <= numbers[1] ? 0 : 1;
  const [low, high] = [numbers[less], numbers[1 - less]].map(digits);
  const unit = isSame ? "perplexity" : "bits for each character (their tokens differ)";
  if (low === high) return `Both are equally surprised: ${unit} ${low}.`;
  return `${runs[less].name} is less surprised: ${unit} ${low} against ${high}.`;
}

function column(run, ...parts) {
  return make("section", {}, make("h3", {}, run.name), make("p", { class: "quiet" }, `from ${startOf(run)}`), ...parts);
}
