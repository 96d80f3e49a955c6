// Elements from plain data. Text goes in as text nodes only, so nothing that a run or a user wrote is ever markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `properties` are attributes, functions (`onclick`), `class`, or `style` as an object of variables. */
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for a part of a drawing. */
export function draw(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Radio buttons in a row; `options` are [value, words] pairs, and `onChoice` is called with the chosen value. */
export function choice(legend, name, options, chosen, onChoice) {
  const radios = options.map(([value, words]) =>
    make("label", {}, make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChoice(value) }), words));
  return make("fieldset", { class: "choice" }, make("legend", {}, legend), ...radios);
}

/** A select filled anew, with the old choice kept where it still exists. */
export function refill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, words]) => make("option", { value }, words)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}
