// Classify: a text in, probabilities as bars, tokens coloured by their attribution.

import { post } from "./api.js";
import { asking } from "./asking.js";
import { bars } from "./bars.js";
import { make } from "./dom.js";
import { attributionPicture } from "./attribution.js";
import { percent, plain } from "./numbers.js";
import { cutInWords, secondOf, secondText } from "./texts.js";

/** Wire the tab; `go(tab, text, second)` leads on to another one with the same text. */
export function classify(panel, go) {
  const text = panel.querySelector("textarea");
  const form = panel.querySelector("form");
  const asked = asking(panel, async (run, signal, result, say) => {
    const body = { run: run.name, text: text.value, text_b: secondOf(panel) };
    const answer = await post("api/classify", { ...body, attribution: form.elements.method.value }, signal);
    say(headline(answer));
    const onward = { type: "button", class: "link", onclick: () => go("attention", body.text, body.text_b) };
    result.append(...answered(run, answer),
      make("p", { class: "onward" }, make("button", onward, "Look at the attention over this text")));
  });
  form.addEventListener("change", (event) => {
    if (event.target.name === "method" && asked.hasResult()) asked.ask();
  });
  return {
    choose(run) {
      secondText(panel, run);
      asked.choose(run);
    },
  };
}

/** The answer in a few words. */
export function headline(answer) {
  if (answer.value != null) return plain(answer.value);
  if (answer.labels) return answer.labels.length ? answer.labels.join(", ") : "None of the labels";
  return `${answer.label}, ${percent(answer.probabilities[answer.label])}`;
}

/** Everything that stands under those words; `scale` is the attribution with the fullest colour, where answers share it. */
export function answered(run, answer, scale) {
  const chosen = answer.labels ?? [answer.label];
  const shares = Object.entries(answer.probabilities ?? {});
  if (shares.length > 4) shares.sort((one, other) => other[1] - one[1]);
  return [
    shares.length ? bars(shares, chosen) : null,
    answer.is_cut ? make("p", { class: "note" }, cutInWords(run)) : null,
    answer.attribution ? attributionPicture(answer.attribution, scale) : null,
  ].filter(Boolean);
}
