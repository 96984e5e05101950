// The table of prompts with search, filters and sorting, and the page of one prompt.
// A cell has a line for each run; a line has a mark for each trial.
import {
  DASH,
  append,
  count,
  decimal,
  duration,
  h,
  money,
  replaceContent,
  resultMark,
  shorten,
  signed,
} from "./dom.js";
import { differencesOf, readPair } from "./data.js";
import { LABEL_FILTERS, hasLabels, labelCell } from "./labels.js";
import { updateChildren } from "./live.js";
import { href, listKeys, setKeys, sideBySideHref, trialHref } from "./navigation.js";
import { causeWords } from "./words.js";

const PAGE_SIZE = 100;
const MAX_MARKS = 12;
const SEARCH_DELAY_MS = 120;
const QUERY_NAMES = [
  "q",
  "status",
  "category",
  "cause",
  "label",
  "tool",
  "in_run",
  "least_ms",
  "most_ms",
  "pair",
  "sort",
  "down",
];
const STATUSES = [
  ["", "any result"],
  ["pass", "passed"],
  ["fail", "failed"],
  ["flaky", "flaky"],
  ["open", "not measured"],
];
const STATUSES_OF_SEVERAL = [
  ["regressed", "regressed"],
  ["improved", "improved"],
  ["lower", "lower score, same result"],
  ["higher", "higher score, same result"],
  ["differ", "runs differ"],
];
const COLUMNS = [
  ["id", "prompt"],
  ["category", "category"],
  ["rate", "result"],
  ["label", "label"],
  ["difference", "difference"],
  ["score", "score"],
  ["time", "time"],
  ["cost", "cost"],
  ["steps", "steps"],
];

export function promptsPage(source, overview, params) {
  const table = new PromptTable(source, overview, params);
  const { causes, categories, runs } = overview;
  setKeys(listKeys(() => table.rows(), { enter: openLinkOf }));
  table.show();
  const filters = [
    table.searchBox(),
    table.filter(
      "status",
      "Result",
      runs.length > 1 ? [...STATUSES, ...STATUSES_OF_SEVERAL] : STATUSES,
    ),
    categories.length > 1
      ? table.filter("category", "Category", anyOrOne("any category", categories))
      : null,
    causes.length
      ? table.filter("cause", "Cause of failure", anyOrOne("any cause", causes, causeWords))
      : null,
    toolNames(overview).length
      ? table.filter("tool", "Tool", anyOrOne("any tool", toolNames(overview)))
      : null,
    hasLabels(overview) ? table.filter("label", "Label", LABEL_FILTERS) : null,
    runs.length > 1 ? table.filter("in_run", "In run", runChoice(runs)) : null,
    runs.length > 2 ? table.filter("pair", "Difference between", pairChoice(runs)) : null,
    table.timeFilter(),
  ];
  const page = h(
    "div",
    {},
    h("h1", {}, "Prompts"),
    unknownFilters(params, runs.length > 1),
    h("div", { class: "filters", role: "search" }, filters),
    table.status,
    table.view,
    table.moreButton,
  );
  page.refresh = (fresh) => table.refresh(fresh);
  return page;
}

/** Says which filters of an address do not exist, and are not applied. */
function unknownFilters(params, ofSeveral) {
  const known = [...STATUSES, ...(ofSeveral ? STATUSES_OF_SEVERAL : [])].map(([name]) => name);
  const unknown = [...new Set(params.keys())]
    .filter((name) => !QUERY_NAMES.includes(name))
    .map((name) => `There is no filter "${name}": it is not applied. `);
  const status = params.get("status") ?? "";
  if (!known.includes(status)) {
    const listed = known.filter(Boolean).join(", ");
    unknown.push(`There is no result "${status}"; there are ${listed}.`);
  }
  return unknown.length ? h("p", { class: "notice", role: "status" }, unknown) : null;
}

function anyOrOne(any, names, words = (name) => name) {
  return [["", any], ...names.map((name) => [name, words(name)])];
}

function toolNames({ runs }) {
  return [...new Set(runs.flatMap(({ tools }) => tools ?? []))].sort();
}

function runChoice(runs) {
  return [["", "any run"], ...runs.map(({ label }, n) => [String(n), `in ${label}`])];
}

function pairChoice(runs) {
  return runs.flatMap((first, a) =>
    runs
      .map((second, b) => [`${a},${b}`, `${second.label} against ${first.label}`])
      .filter((_, b) => a < b),
  );
}

function openLinkOf(row) {
  location.hash = row.querySelector("a").getAttribute("href");
}

/** Shows what the source finds for a query; the query changes as the reader searches and sorts. */
class PromptTable {
  view = h("div", { class: "scroll", tabindex: "0" });
  status = h("p", { class: "dim", role: "status" });
  moreButton = h("button", { type: "button", class: "more" }, "Show more");
  #source;
  #overview;
  #query;
  #body = h("tbody");
  #requests = 0;

  constructor(source, overview, params) {
    this.#source = source;
    this.#overview = overview;
    this.#query = { offset: 0, limit: PAGE_SIZE };
    for (const name of QUERY_NAMES) this.#query[name] = params.get(name) ?? "";
    this.moreButton.addEventListener("click", () => {
      this.#query.offset += PAGE_SIZE;
      this.show();
    });
  }

  rows() {
    return [...this.view.querySelectorAll("tbody tr")];
  }

  searchBox() {
    let timer;
    const box = h("input", {
      type: "search",
      id: "search",
      placeholder: "Search prompts (/)",
      "aria-label": "Search prompts",
      value: this.#query.q,
    });
    box.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#change({ q: box.value }), SEARCH_DELAY_MS);
    });
    return box;
  }

  filter(name, label, options) {
    const change = (event) => this.#change({ [name]: event.target.value });
    return h(
      "select",
      { "aria-label": label, on: { change } },
      options.map(([value, text]) =>
        h("option", { value, selected: this.#query[name] === value }, text),
      ),
    );
  }

  /** What a bar of the histogram of times chose; it can be taken away. */
  timeFilter() {
    const { least_ms: least, most_ms: most } = this.#query;
    if (!least && !most) return null;
    const range = [least, most].map((ms) => duration(ms ? Number(ms) : null)).join(" to ");
    const button = h("button", { type: "button" }, `took ${range} ✕`);
    button.addEventListener("click", () => {
      button.remove();
      this.#change({ least_ms: "", most_ms: "" });
    });
    return button;
  }

  async show() {
    this.#requests += 1;
    const request = this.#requests;
    const { total, rows } = await this.#source.prompts(this.#query);
    if (request !== this.#requests) return; // A newer query has been asked meanwhile.
    if (this.#query.offset === 0) {
      this.#body = h("tbody");
      replaceContent(this.view, h("table", { class: "prompts" }, this.#head(), this.#body));
    }
    append(
      this.#body,
      rows.map((row) => promptRow(this.#overview, row, this.#addressQuery())),
    );
    replaceContent(this.status, total === 1 ? "1 prompt" : `${count(total)} prompts`);
    this.moreButton.hidden = this.#query.offset + rows.length >= total;
    this.#saveInAddress();
  }

  /** Reads the rows that are shown once more, and changes them in place. */
  async refresh(overview) {
    this.#overview = overview;
    const limit = Math.max(PAGE_SIZE, this.rows().length);
    const request = this.#requests;
    const { total, rows } = await this.#source.prompts({ ...this.#query, offset: 0, limit });
    if (request !== this.#requests) return; // The reader has asked for something else meanwhile.
    const body = h(
      "tbody",
      {},
      rows.map((row) => promptRow(this.#overview, row, this.#addressQuery())),
    );
    updateChildren(this.#body, body);
    replaceContent(this.status, total === 1 ? "1 prompt" : `${count(total)} prompts`);
    this.moreButton.hidden = rows.length >= total;
  }

  #change(changes) {
    Object.assign(this.#query, changes, { offset: 0 });
    this.show();
  }

  #head() {
    const { sort, down } = this.#query;
    const columns = COLUMNS.filter(
      ([name]) =>
        (name !== "difference" || hasPairs(this.#overview)) &&
        (name !== "label" || hasLabels(this.#overview)),
    );
    const cells = columns.map(([name, title]) => {
      if (name === "label") return h("th", { scope: "col" }, title);
      const order = sort === name ? (down ? "descending" : "ascending") : "none";
      const arrow = { ascending: " ▲", descending: " ▼", none: "" }[order];
      const sortBy = () => this.#change({ sort: name, down: order === "ascending" ? "1" : "" });
      const button = h("button", { type: "button", on: { click: sortBy } }, title, arrow);
      return h("th", { scope: "col", "aria-sort": order }, button);
    });
    return h("thead", {}, h("tr", {}, cells));
  }

  /** Keeps search and filters in the address, so that it can be sent to somebody. */
  #saveInAddress() {
    const params = this.#addressQuery();
    history.replaceState(null, "", params.size ? `#/prompts?${params}` : "#/prompts");
  }

  #addressQuery() {
    const params = new URLSearchParams();
    for (const name of QUERY_NAMES) if (this.#query[name]) params.set(name, this.#query[name]);
    return params;
  }
}

function hasPairs({ runs }) {
  return runs.length > 1;
}

function promptRow(overview, row, query) {
  const cells = row.cells
    .map((cell, n) => ({ cell, run: overview.runs[n].label }))
    .filter(({ cell }) => cell);
  const link = h("a", { href: href("prompt", row.id) }, shorten(row.id, 60));
  const numbers = (show) =>
    h(
      "td",
      { class: "number" },
      cells.map(({ cell }) => h("div", {}, show(cell))),
    );
  const runName = (run) =>
    overview.runs.length > 1 ? h("span", { class: "dim" }, `${shorten(run, 14)} `) : null;
  const results = cells.map(({ cell, run }) =>
    h("div", { class: "marks" }, runName(run), trialMarks(run, row.id, cell.trials, query)),
  );
  return h(
    "tr",
    {},
    h("td", {}, link, h("div", { class: "dim head" }, row.head)),
    h("td", {}, row.category),
    h("td", {}, results),
    hasLabels(overview) ? labelCell(cells, row.id) : null,
    hasPairs(overview) ? differenceCell(overview, row, query) : null,
    numbers((cell) => decimal(cell.score)),
    numbers((cell) => duration(cell.ms)),
    numbers((cell) => money(cell.usd)),
    numbers((cell) => decimal(cell.steps, cell.trials.length > 1 ? 1 : 0)),
  );
}

/** How much more the second run of the pair passes, with the way to both trials. */
function differenceCell(overview, row, query) {
  const pair = query.get("pair");
  const { rate, score } = differencesOf(row, pair);
  const [a, b] = readPair(pair, overview.runs.length);
  const target = pairHref(overview, row, [a, b]);
  const kind = rate < 0 ? "fail" : rate > 0 ? "pass" : "even";
  const words = rate === null ? DASH : rate === 0 ? "=" : `${signed(100 * rate, 0)} pp`;
  const both = target
    ? h(
        "a",
        { class: `delta ${kind}`, href: target, "aria-label": `${words}, side by side` },
        words,
      )
    : words;
  const byScore = score ? h("div", { class: "dim" }, `score ${signed(score)}`) : null;
  return h("td", { class: "number difference" }, both, byScore);
}

/** Address of two trials side by side, one from each run: where possible, of different results. */
export function pairHref(overview, row, [a, b]) {
  const pair = pairOfTrials(row, a, b);
  if (!pair) return null;
  const [runA, runB] = [overview.runs[a].label, overview.runs[b].label];
  return sideBySideHref(row.id, runA, pair[0].n, runB, pair[1].n);
}

export function pairOfTrials(row, a, b) {
  const [left, right] = [a, b].map((run) => row.cells[run]?.trials ?? []);
  for (const one of left) {
    const other = right.find(({ passed }) => passed !== one.passed && passed !== null);
    if (one.passed !== null && other) return [one, other];
  }
  return left.length && right.length ? [left[0], right[0]] : null;
}

/** Address of a trial of the prompt before or after, in the same run if it has one there. */
export function neighbourHref(row, { run, runs, query }) {
  const cells = row.cells.map((cell, n) => ({ cell, label: runs[n].label }));
  const there =
    cells.find(({ cell, label }) => cell && label === run) ?? cells.find(({ cell }) => cell);
  return trialHref(there.label, row.id, there.cell.trials[0].n, undefined, query);
}

function trialMarks(run, id, trials, query) {
  const marks = trials.slice(0, MAX_MARKS).map((trial) => {
    const { sign, word, kind } = resultMark(trial.passed);
    const result = trialWords(word, trial);
    return h(
      "a",
      {
        class: `mark ${kind}`,
        href: trialHref(run, id, trial.n, undefined, query),
        title: `trial ${trial.n}: ${result}`,
        "aria-label": `trial ${trial.n} ${result}`,
      },
      sign,
      trial.problems ? " ⚠" : "",
      trials.length === 1 && trial.cause ? ` ${causeWords(trial.cause)}` : "",
    );
  });
  const rest = trials.length - marks.length;
  return [marks, rest > 0 ? h("a", { href: href("prompt", id) }, ` +${rest} more`) : null];
}

function trialWords(word, { cause, problems }) {
  return [word, cause ? causeWords(cause) : null, ...(problems ?? [])].filter(Boolean).join(", ");
}

/** One prompt: all its trials in all runs, and the pair worth looking at. */
export async function promptPage(source, overview, id) {
  const row = await source.prompt(id);
  if (!row) return h("p", { class: "notice" }, "There is no such prompt here.");
  const trials = trialsOf(overview, row);
  setKeys(listKeys(() => [...document.querySelectorAll("tbody tr")], { enter: openLinkOf }));
  const head = ["trial", "result", "score", "time", "cost", "steps"].map((title) =>
    h("th", { scope: "col" }, title),
  );
  const rows = trials.map((trial) => trialRow(id, trial));
  const table = h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  return h(
    "div",
    {},
    h("h1", {}, id),
    h("p", { class: "dim" }, row.category),
    h("p", { class: "head" }, row.head),
    pairLink(id, contrastingPair(trials)),
    h("div", { class: "scroll", tabindex: "0" }, table),
  );
}

/** All trials of a prompt, each with the label of its run. */
export function trialsOf(overview, row) {
  return row.cells.flatMap((cell, n) => {
    const trials = cell?.trials ?? [];
    return trials.map((trial) => ({ ...trial, run: overview.runs[n].label }));
  });
}

function pairLink(id, pair) {
  if (!pair) return null;
  const [a, b] = pair;
  return h(
    "p",
    {},
    h("a", { class: "button", href: sideBySideHref(id, a.run, a.n, b.run, b.n) }, "Side by side"),
    h("span", { class: "dim" }, ` ${a.run} ${a.n} beside ${b.run} ${b.n}`),
  );
}

function trialRow(id, trial) {
  const { sign, word, kind } = resultMark(trial.passed);
  const result = trialWords(word, trial);
  const numbers = [decimal(trial.score), duration(trial.ms), money(trial.usd), count(trial.steps)];
  return h(
    "tr",
    {},
    h("td", {}, h("a", { href: trialHref(trial.run, id, trial.n) }, `${trial.run} ${trial.n}`)),
    h("td", {}, h("span", { class: `mark ${kind}` }, sign), ` ${result}`),
    numbers.map((number) => h("td", { class: "number" }, number)),
  );
}

/** The pair worth comparing: a passed trial and a failed one, from two runs where possible. */
export function contrastingPair(trials) {
  const failed = trials.filter((trial) => trial.passed === 0);
  for (const passed of trials.filter((trial) => trial.passed === 1)) {
    const other = failed.find((trial) => trial.run !== passed.run) ?? failed[0];
    if (other) return [passed, other];
  }
  const other = trials.find((trial) => trial.run !== trials[0].run) ?? trials[1];
  return other ? [trials[0], other] : null;
}
