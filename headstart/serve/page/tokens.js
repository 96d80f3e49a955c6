// Tokens in a row, as the text they make. One stop of the Tab key; arrows move inside; hover, focus and tap all point.

import { make } from "./dom.js";

/** What stands for a token: its characters, with spaces and line breaks that can be seen. */
export function visible(text) {
  return text.trim().replace(/\s*\n\s*/g, "↵") || (text.includes("\n") ? "↵" : text ? "␣" : "·");
}

/** The same inside a sentence. */
export const quoted = (text) => `“${visible(text)}”`;

/**
 * A strip of tokens (objects with `text`, and `is_special` for those that are no text). `point(index)` is called for
 * the token that somebody looks at. Gives the element, its buttons, and `add(token)`, `note(index, words)` for the
 * small print under a token, `name(index, words)` for what a screen reader adds to it.
 */
export function strip(label, tokens = [], point = () => {}) {
  const [buttons, names] = [[], []];
  const element = make("div", { class: "tokens", role: "toolbar", "aria-label": label });

  function add(token) {
    const [index, words] = [buttons.length, visible(token.text)];
    const isApart = (one) => one?.classList.contains("special");
    const kind = token.is_special ? "token special" : "token";
    const tabindex = index ? -1 : 0;
    const button = make("button", { type: "button", class: kind, tabindex, "aria-label": words }, make("span", {}, words));
    for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => pointAt(index));
    if (/^\s/.test(token.text) || isApart(button) || isApart(buttons[index - 1])) element.append(" ");
    element.append(button);
    if (token.text.includes("\n")) element.append(make("br"));
    else if (/\S\s+$/.test(token.text)) element.append(" ");
    buttons.push(button);
    names.push(words);
    return button;
  }

  function pointAt(index) {
    buttons.forEach((button, at) => {
      button.classList.toggle("pointed", at === index);
      button.tabIndex = at === index ? 0 : -1;
    });
    point(index);
  }

  element.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined || !buttons[to]) return;
    event.preventDefault();
    buttons[to].focus();
  });

  function note(index, words) {
    const small = buttons[index].querySelector("small");
    if (small) small.textContent = words;
    else buttons[index].append(make("small", { "aria-hidden": "true" }, words));
  }

  const name = (index, words) => buttons[index].setAttribute("aria-label", `${names[index]}, ${words}`);

  tokens.forEach(add);
  return { element, buttons, add, note, name, pointAt };
}

/** A box to tick that shows the small print under every token of the given element. */
export function numbersToggle(element) {
  const tick = make("input", { type: "checkbox", onchange: () => element.classList.toggle("numbered", tick.checked) });
  return make("label", { class: "tick" }, tick, "numbers under the tokens");
}
