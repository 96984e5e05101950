// Two trials of one prompt beside each other, from the first step where they part.
import { h } from "./dom.js";
import { setKeys } from "./keys.js";
import { markdown } from "./markdown.js";
import { besideHref, trialHref } from "./router.js";
import { stepList } from "./steps.js";
import { resultView, trialOf } from "./trial.js";

/** Number of the first step that is not the same in both; times and ids do not count. */
export function partingStep(left, right) {
  const most = Math.min(left.length, right.length);
  for (let i = 0; i < most; i += 1) if (essence(left[i]) !== essence(right[i])) return i;
  return left.length === right.length ? -1 : most;
}

function essence(step) {
  const { type, name, input, content, entries } = step;
  return JSON.stringify([type, name, input, typeof content === "string" ? content.trim() : content, entries]);
}

export async function besidePage(source, told, [, id, runA, a, runB, b]) {
  const [rowA, rowB, about] = await Promise.all([source.row(runA, id), source.row(runB, id), source.prompt(id)]);
  const left = rowA && trialOf(rowA, a);
  const right = rowB && trialOf(rowB, b);
  if (!left || !right) return h("p", { class: "notice" }, "One of these trials is not here.");
  const at = partingStep(left.trajectory, right.trajectory);
  const words = at < 0 ? "Both took the same steps." : `They part at step ${at + 1}.`;
  const all = about.cells.flatMap((cell, n) => (cell ? cell.trials.map((trial) => [told.runs[n].label, trial.n]) : []));
  const choose = (text, run, n, to) => h("select", { "aria-label": text, on: { change: (event) => { location.hash = to(...JSON.parse(event.target.value)); } } },
    all.map(([name, number]) => h("option", { value: JSON.stringify([name, number]), selected: name === run && String(number) === n }, `${name}, trial ${number}`)));
  const half = (trial, run, n, side, picker) => h("section", { class: `half ${side}`, "aria-label": `${run}, trial ${n}` },
    picker, " ", h("a", { href: trialHref(run, id, n) }, "open"), resultView(trial),
    stepList(trial.trajectory, { until: at + 20, linkTo: (number) => trialHref(run, id, n, number + 1) }),
    h("h3", {}, "Answered"), trial.output ? markdown(trial.output) : h("p", { class: "dim" }, "nothing"));
  const page = h("div", {}, h("h1", {}, id), h("p", { class: "parting", role: "status" }, words, " ",
    at < 0 ? null : h("button", { type: "button", on: { click: () => show() } }, "Go there (n)")),
    h("div", { class: "halves" },
      half(left, runA, a, "left", choose("Left trial", runA, a, (run, n) => besideHref(id, run, n, runB, b))),
      half(right, runB, b, "right", choose("Right trial", runB, b, (run, n) => besideHref(id, runA, a, run, n)))));
  const show = () => page.querySelector(".step.parts")?.scrollIntoView({ block: "center" });
  if (at >= 0) for (const step of page.querySelectorAll(`[id="step-${at}"]`)) step.classList.add("parts");
  let serial = 0;
  for (const step of page.querySelectorAll(".right .step")) step.id = `right-${step.id}-${serial++}`;
  setKeys({ n: show }, { n: "first step where they part" });
  return page;
}
