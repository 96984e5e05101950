// What people said of trials: a column and a filter of the table, and how far a grader agrees.
import { decimal, h, intervalText, percent } from "./dom.js";
import { trialHref } from "./navigation.js";
import { counted } from "./words.js";

const MAX_DISAGREEMENTS = 100;
const LABEL_SIGNS = { pass: "✓", fail: "✗", ambiguous: "?" };
export const LABEL_FILTERS = [
  ["", "any label"],
  ["labelled", "labelled"],
  ["disagree", "people disagree with the grader"],
  ["pass", "people say pass"],
  ["fail", "people say fail"],
  ["ambiguous", "people are not sure"],
];

export function hasLabels({ runs }) {
  return runs.some(({ labels }) => labels);
}

/** Whether a trial fulfils the filter; the viewer's server has the same. */
export function matchesLabel({ label, passed }, wanted) {
  if (!label) return false;
  if (wanted === "labelled") return true;
  if (wanted !== "disagree") return label === wanted;
  return label !== "ambiguous" && passed !== null && (label === "pass") !== (passed === 1);
}

/** The cell of a row: a sign for each label, those against the grader marked. */
export function labelCell(cells, id) {
  const marks = cells.map(({ cell, run }) => {
    const labelled = cell.trials.filter(({ label }) => label);
    return h(
      "div",
      {},
      labelled.map((trial) => {
        const disagrees = matchesLabel(trial, "disagree");
        const words = `people: ${trial.label}${disagrees ? ", against the grader" : ""}`;
        const kind = disagrees ? "none" : trial.label === "ambiguous" ? "none" : trial.label;
        const props = {
          class: `mark ${kind}`,
          href: trialHref(run, id, trial.n),
          title: words,
          "aria-label": `trial ${trial.n}, ${words}`,
        };
        return h("a", props, LABEL_SIGNS[trial.label], disagrees ? " ≠" : "");
      }),
    );
  });
  return h("td", {}, marks);
}

/** The part of the overview about labels: agreement with its interval, and what to look at. */
export function labelsView({ runs }) {
  const labelled = runs.filter(({ labels }) => labels);
  if (!labelled.length) return null;
  return h("section", { class: "labels" }, h("h2", {}, "Labels"), labelled.map(runLabels));
}

function runLabels({ label: run, labels }) {
  const { n, agreement, disagreements } = labels;
  const parts = [`${counted(n, "label")}`];
  if (agreement) {
    const { rate, interval } = agreement.agreement;
    const ends = interval ? ` (${intervalText([interval.low, interval.high])})` : "";
    parts.push(`the grader agrees in ${percent(rate)}${ends} of ${agreement.n}`);
    if (agreement.kappa !== null) parts.push(`kappa ${decimal(agreement.kappa)}`);
  }
  const links = disagreements.slice(0, MAX_DISAGREEMENTS).map(([id, trial, people, grader]) => {
    const link = h("a", { href: trialHref(run, id, trial) }, id);
    return h("li", {}, link, ` people say ${people}, the grader ${grader}`);
  });
  const all = h("a", { href: "#/prompts?label=disagree" }, "all in the table");
  return [
    h("p", {}, h("b", {}, run), `: ${parts.join(", ")}.`),
    links.length
      ? h(
          "details",
          { "data-key": `labels-${run}` },
          h("summary", {}, `${counted(disagreements.length, "disagreement")} to look at`),
          h("ul", {}, links),
          h("p", {}, all),
        )
      : null,
  ];
}
