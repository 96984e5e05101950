// The page "Why": what detectors found in failures, alike ones together, and where trials part.
import { count, h } from "./dom.js";
import { trialHref } from "./navigation.js";

const FIRST_FAILURES = 50;

export async function whyPage(source) {
  const found = await source.why();
  if (!found) return h("p", { class: "notice" }, "This report was made without explanations.");
  return h(
    "div",
    { class: "why" },
    h("h1", {}, "Why did it fail?"),
    found.notes.map((note) => h("p", { class: "dim" }, note)),
    trialsView("Hacked honeypots", found.hacked, "These prompts cannot be passed honestly."),
    trialsView("Doubtful passes", found.doubtful, "Passed, but not as it should be."),
    found.failed ? failuresView(found) : h("p", {}, "No trial failed."),
  );
}

/** The first thing that is said about runs with doubtful passes; null where there are none. */
export function doubtsView(doubts) {
  if (!doubts) return null;
  return h(
    "p",
    { class: "notice doubts" },
    doubts.sentences.map((sentence) => `${sentence}. `),
    `They count as ${doubts.countedAs}. `,
    h("a", { href: "#/why" }, "Why"),
  );
}

function failuresView({ failed, notExplained, detectors, clusters, partings, failures }) {
  const rows = [...detectors, ...(notExplained ? [["not explained", notExplained]] : [])];
  return [
    h("h2", {}, "Reasons"),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}, "what was found"), h("th", {}, "failures"))),
      h(
        "tbody",
        {},
        rows.map(([words, n]) =>
          h("tr", {}, h("td", {}, words), h("td", { class: "number" }, `${n} of ${failed}`)),
        ),
      ),
    ),
    h("h2", {}, "Alike failures"),
    h("ol", { class: "clusters" }, clusters.map(clusterView)),
    partings.length
      ? [
          h("h2", {}, "Where passes and failures part"),
          h(
            "ul",
            {},
            partings.map((one) => h("li", {}, one.words, " ", stepLink(one, one.step, "show"))),
          ),
        ]
      : null,
    trialsView("Failures", failures, "", failed),
  ];
}

function clusterView({ words, failures, trials }) {
  const more = failures - trials.length;
  return h(
    "li",
    {},
    words,
    h(
      "div",
      { class: "dim" },
      trials.map((trial) => [h("a", { href: hrefOf(trial) }, nameOf(trial)), " "]),
      more > 0 ? `and ${count(more)} more` : null,
    ),
  );
}

function trialsView(title, trials, about, total = trials.length) {
  if (!trials.length) return null;
  const list = h("div", {}, trials.slice(0, FIRST_FAILURES).map(trialView));
  const rest = trials.slice(FIRST_FAILURES);
  const button = h("button", { type: "button", class: "more" }, `Show ${count(rest.length)} more`);
  button.addEventListener("click", () => {
    list.append(...rest.map(trialView));
    button.remove();
  });
  return h(
    "section",
    {},
    h("h2", {}, title),
    about ? h("p", { class: "dim" }, about) : null,
    total > trials.length
      ? h("p", { class: "dim" }, `The first ${count(trials.length)} of ${count(total)}.`)
      : null,
    list,
    rest.length ? button : null,
  );
}

function trialView(trial) {
  return h(
    "article",
    { class: "explained" },
    h("h3", {}, h("a", { href: hrefOf(trial) }, nameOf(trial))),
    trial.findings.map((finding) => findingView(trial, finding)),
    trial.failedStep
      ? h(
          "p",
          {},
          "first failed call, ",
          stepLink(trial, trial.failedStep),
          ": ",
          h("code", {}, trial.failedCall),
        )
      : null,
    trial.result ? h("p", { class: "dim" }, trial.result) : null,
  );
}

function findingView(trial, { words, steps, quotes }) {
  return h(
    "div",
    {},
    h("b", {}, words),
    h(
      "ul",
      {},
      quotes.map((quote, n) =>
        h("li", {}, steps[n] ? [stepLink(trial, steps[n]), ": "] : null, h("code", {}, quote)),
      ),
    ),
  );
}

function stepLink(trial, step, words = `step ${step}`) {
  return h("a", { href: trialHref(trial.run, trial.id, trial.n, step) }, words);
}

function hrefOf({ run, id, n }) {
  return trialHref(run, id, n);
}

function nameOf({ run, id, n }) {
  return `${id} · ${run} · trial ${n}`;
}
