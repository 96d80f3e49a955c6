// Shares as bars with their numbers.

import { make } from "./dom.js";
import { percent } from "./numbers.js";

const SHOWN = 8;

/** Bars for [name, share] pairs; those in `chosen` are set in bold with a tick. More than eight are folded. */
export function bars(pairs, chosen = []) {
  const first = list(pairs.slice(0, SHOWN), chosen);
  if (pairs.length <= SHOWN) return first;
  const rest = make("details", {}, make("summary", {}, `${pairs.length - SHOWN} more`), list(pairs.slice(SHOWN), chosen));
  return make("div", {}, first, rest);
}

function list(pairs, chosen) {
  const rows = pairs.map(([name, share]) =>
    make("div", { class: chosen.includes(name) ? "chosen" : undefined },
      make("dt", {}, name),
      make("dd", {},
        make("span", { class: "bar" }, make("i", { style: { "--share": share } })),
        make("span", { class: "number" }, percent(share)))));
  return make("dl", { class: "bars" }, ...rows);
}
