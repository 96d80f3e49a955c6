// Tabs by the ARIA pattern: arrows, Home and End move among them; only the chosen one is a stop of the Tab key.

/** Wire a list of tabs; `onChoice(name)` is called with the chosen one. Gives `offer(names)` and `choose(name)`. */
export function tabs(list, onChoice) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const nameOf = (tab) => tab.dataset.tab;
  const offered = () => all.filter((tab) => !tab.hidden);

  function choose(name) {
    for (const tab of all) {
      const isChosen = nameOf(tab) === name;
      tab.setAttribute("aria-selected", isChosen);
      tab.tabIndex = isChosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isChosen;
      if (isChosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    onChoice(name);
  }

  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(nameOf(tab));
  });
  list.addEventListener("keydown", (event) => {
    const choices = offered();
    const at = choices.indexOf(document.activeElement);
    const last = choices.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    choices[to].focus();
    choose(nameOf(choices[to]));
  });
  return {
    choose,
    offer: (names) => all.forEach((tab) => (tab.hidden = !names.includes(nameOf(tab)))),
  };
}
