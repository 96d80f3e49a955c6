// What every tab does with its form: ask one thing at a time, show that it works, let it be stopped, say what failed.
// Each run keeps its own result, so that nothing is lost on the way through runs and tabs.

import { make } from "./dom.js";

/**
 * Wire a panel's form. `work(run, signal, result, say)` asks the server and fills the element `result`; `say` puts a
 * sentence above it, which screen readers speak. Gives `choose(run)`, `ask()` and `hasResult()`.
 */
export function asking(panel, work) {
  const form = panel.querySelector("form");
  const status = panel.querySelector("[role=status]");
  const problem = panel.querySelector("[role=alert]");
  const [go, stop] = [form.querySelector(".go"), form.querySelector(".stop")];
  const kept = new Map();
  let run = null;
  let controller = null;
  let shown = panel.querySelector(".result");

  const say = (words) => (status.textContent = words);
  const busy = (isBusy) => {
    panel.setAttribute("aria-busy", isBusy);
    stop.hidden = !isBusy;
  };

  async function ask() {
    controller?.abort();
    const mine = (controller = new AbortController());
    const result = make("div", { class: "result" });
    problem.replaceChildren();
    say(run.loaded ? "Working …" : `Loading ${run.name} …`);
    busy(true);
    shown.replaceWith(result);
    shown = result;
    const sayMine = (words) => controller === mine && say(words);
    try {
      await work(run, mine.signal, result, sayMine);
      run.loaded = true;
    } catch (error) {
      if (error.name === "AbortError") sayMine(result.hasChildNodes() ? "Stopped." : "");
      else if (controller === mine) fail(error);
    } finally {
      if (controller === mine) {
        controller = null;
        busy(false);
        keep();
      }
    }
  }

  function fail(error) {
    say("");
    problem.replaceChildren(...inWords(error));
    if (!("fix" in error)) throw error; // a fault of the page, not of the question: the console should have it
  }

  const keep = () => kept.set(run.name, { shown, said: status.textContent });

  function choose(next) {
    if (run && next.name === run.name) return;
    controller?.abort();
    controller = null;
    busy(false);
    problem.replaceChildren();
    const found = kept.get(next.name) ?? { shown: make("div", { class: "result" }), said: "" };
    shown.replaceWith(found.shown);
    shown = found.shown;
    say(found.said);
    run = next;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  stop.addEventListener("click", () => {
    controller?.abort();
    go.focus();
  });
  for (const button of panel.querySelectorAll(".example")) {
    button.addEventListener("click", () => {
      const [first, second] = form.querySelectorAll("textarea");
      first.value = button.textContent;
      if (button.dataset.second) second.value = button.dataset.second;
      form.requestSubmit();
    });
  }
  return { choose, ask, hasResult: () => shown.hasChildNodes() };
}

/** A problem as two short paragraphs: what, and how to mend it. */
export function inWords(error) {
  const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);
  return [
    make("p", {}, make("b", {}, sentence(error.message))),
    error.fix ? make("p", {}, sentence(error.fix)) : null,
  ].filter(Boolean);
}
