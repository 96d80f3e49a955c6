// Study: its report, in a frame that may run nothing and reach nothing.

import { getText } from "./api.js";
import { inWords } from "./asking.js";
import { refill } from "./dom.js";

/** Wire the tab. */
export function study(panel) {
  const [name, frame] = [panel.querySelector("select"), panel.querySelector("iframe")];
  const [status, problem] = [panel.querySelector("[role=status]"), panel.querySelector("[role=alert]")];
  let shown = null;

  async function show() {
    const wanted = name.value;
    if (!wanted || wanted === shown) return;
    problem.replaceChildren();
    status.textContent = "Working …";
    try {
      const report = await getText(`api/studies/${encodeURIComponent(wanted)}/report`);
      if (name.value !== wanted) return;
      // A bare #anchor would be one of this page: such a frame takes its parent's address for its own.
      frame.srcdoc = report.replaceAll('<a href="#', '<a href="about:srcdoc#');
      frame.title = `The report of the study ${wanted}`;
      frame.hidden = false;
      shown = wanted;
    } catch (error) {
      problem.replaceChildren(...inWords(error));
    }
    status.textContent = "";
  }

  name.addEventListener("change", show);
  return {
    offer(studies) {
      refill(name, studies.map((one) => [one.name, one.name]), name.value);
      panel.querySelector("#study-chooser").hidden = studies.length < 2;
    },
    show,
  };
}
