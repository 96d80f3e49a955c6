// The page: which runs there are, what the chosen one can do, and the address that remembers both.

import { get, Problem, tokenFrom } from "./api.js";
import { inWords } from "./asking.js";
import { attention } from "./attention.js";
import { classify } from "./classify.js";
import { comparable, compare } from "./compare.js";
import { complete } from "./complete.js";
import { make, refill } from "./dom.js";
import { count } from "./numbers.js";
import { study } from "./study.js";
import { tabs } from "./tabs.js";
import { startOf } from "./texts.js";
import { translate } from "./translate.js";

const MOST_LABELS = 6;
const by = (id) => document.getElementById(id);

let runs = [];
let studies = [];
let run = null;
let tab = "";

const parts = {
  classify: classify(by("classify"), goWith),
  complete: complete(by("complete")),
  translate: translate(by("translate"), goWith),
  attention: attention(by("attention")),
  compare: compare(by("compare"), () => runs),
  study: study(by("study")),
};
const bar = tabs(by("tabs"), (name) => {
  tab = name;
  if (name === "study") parts.study.show();
  remember();
});

/** The tabs that a run has; a study has one of its own. */
function tabsOf(one) {
  const found = [];
  if (one?.can.includes("classify")) found.push("classify");
  if (one?.can.includes("generate")) found.push("complete");
  if (one?.can.includes("translate")) found.push("translate");
  if (one?.can.includes("attention")) found.push("attention");
  if (one && comparable(one, runs).length) found.push("compare");
  if (studies.length) found.push("study");
  return found;
}

function chooseRun(name, wantedTab) {
  run = runs.find((one) => one.name === name) ?? runs[0] ?? null;
  const names = tabsOf(run);
  if (run) {
    by("run").value = run.name;
    const fact = ([term, words]) => make("div", {}, make("dt", {}, term), make("dd", {}, words));
    by("about").replaceChildren(...factsOf(run).map(fact));
    for (const name of names) parts[name].choose?.(run);
  }
  bar.offer(names);
  if (names.length) bar.choose(names.includes(wantedTab) ? wantedTab : names[0]);
}

function inOneLine(one) {
  return `${one.name}: ${one.objective}, ${count(one.parameters)} parameters, from ${startOf(one)}`;
}

function factsOf(one) {
  const { objective, labels = [], pairs, parameters, length } = one;
  const more = labels.length > MOST_LABELS ? ` and ${labels.length - MOST_LABELS} more` : "";
  const shown = labels.slice(0, MOST_LABELS).join(", ") + more;
  return [
    ["Objective", objective + (pairs ? ", of pairs" : "")],
    labels.length ? ["Labels", shown] : null,
    ["Parameters", count(parameters)],
    ["Start", startOf(one)],
    ["Reads", `${count(length)} tokens`],
  ].filter(Boolean);
}

/** Go to another tab with a text, and ask there. */
function goWith(name, text, second) {
  bar.choose(name);
  by(`tab-${name}`).focus();
  parts[name].ask(text, second);
}

// ---- the address ----

function remember() {
  const kept = new URLSearchParams({ tab, ...(run ? { run: run.name } : {}) });
  history.replaceState(null, "", `#${kept}`);
}

function follow() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  chooseRun(wanted.get("run"), wanted.get("tab"));
}

// ---- the beginning ----

function askForToken(isRefused) {
  const [dialog, field] = [by("token"), by("token-text")];
  if (isRefused) by("token-title").textContent = "Wrong token; try again";
  field.value = "";
  dialog.showModal();
  return new Promise((given, refused) => {
    dialog.onclose = () => refused(new Problem("No token was given.", "reload the page to give one"));
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      given(field.value);
      dialog.close();
    };
  });
}

async function begin() {
  tokenFrom(askForToken);
  try {
    const found = await get("api/runs");
    ({ runs, studies } = found);
    refill(by("run"), runs.map((one) => [one.name, inOneLine(one)]));
    for (const field of document.querySelectorAll("textarea")) field.maxLength = found.limits.text_characters;
    parts.complete.limit(found.limits);
    parts.study.offer(studies);
    by("footer").textContent = `Headstart ${found.version}. Everything on this page is computed by the machine that serves it.`;
    by("chooser").hidden = by("about").hidden = !runs.length;
    by("tabs").hidden = false;
    follow();
    by("run").addEventListener("change", () => chooseRun(by("run").value, tab));
    addEventListener("hashchange", follow);
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    by("notice").replaceChildren(...inWords(error));
    if (!("fix" in error)) throw error;
  }
}

begin();
