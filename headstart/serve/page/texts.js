// The texts that a run reads: single ones or pairs, and not longer than it can.

/** Show the second text where there can be one: a run of pairs needs it, next-sentence prediction can do without. */
export function secondText(panel, run) {
  const [box, field] = [panel.querySelector(".second"), panel.querySelector(".second textarea")];
  const isOffered = run.pairs || run.objective === "masked-nsp";
  box.hidden = field.disabled = !isOffered; // a hidden field must not be asked for
  field.required = run.pairs;
  for (const button of panel.querySelectorAll(".example")) {
    button.hidden = button.dataset.second ? !isOffered : run.pairs;
  }
}

/** The second text, where there is one. */
export function secondOf(panel) {
  const field = panel.querySelector(".second textarea");
  return field.disabled || (!field.required && !field.value.trim()) ? undefined : field.value;
}

/** Where a run's weights come from, after "from". */
export function startOf({ start, start_run: name }) {
  if (start === "scratch") return start;
  return name ? `the run ${name}` : `another run (${start.slice(0, 8)})`;
}

/** That a text was too long for a run. */
export function cutInWords(run) {
  return `The text is longer than the ${run.length} tokens that the run reads; the rest was cut off.`;
}
