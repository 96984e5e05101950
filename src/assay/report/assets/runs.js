// The runs of a folder as a leaderboard: sort, search, open one, or choose some to compare.
import { chosenRuns } from "./data.js";
import {
  DASH,
  bytes,
  count,
  duration,
  h,
  intervalText,
  isKnown,
  money,
  percent,
  replaceContent,
} from "./dom.js";
import { updateChildren } from "./live.js";
import { listKeys, setKeys } from "./navigation.js";
import { counted } from "./words.js";

const RUN_COLUMNS = [
  ["name", "run", (run) => run.name],
  ["agent", "agent", (run) => agentText(run)],
  ["model", "model", (run) => modelText(run)],
  ["rate", "pass rate", (run) => run.summary?.rate ?? null],
  ["prompts", "prompts", (run) => run.summary?.prompts ?? null],
  ["cost", "cost", (run) => run.summary?.costUsd ?? null],
  ["time", "median time", (run) => run.summary?.medianMs ?? null],
  ["date", "date", (run) => run.changed],
  ["state", "state", (run) => (run.live ? 1 : 0)],
];

export function runsPage(overview, params) {
  const table = new RunTable(overview, params);
  setKeys(
    listKeys(() => table.rows(), {
      enter: (row) => location.assign(row.querySelector("a").href),
    }),
    { Enter: "open the run" },
  );
  const page = h(
    "div",
    {},
    h("h1", {}, "Runs"),
    h("div", { class: "filters", role: "search" }, table.searchBox(), " ", table.openButton),
    table.status,
    h("div", { class: "scroll", tabindex: "0" }, table.view),
  );
  page.refresh = (fresh) => table.refresh(fresh);
  return page;
}

class RunTable {
  status = h("p", { class: "dim", role: "status" });
  openButton = h("button", { type: "button" });
  view = h("table", { class: "runs" });
  #runs;
  #query;
  #chosen = new Set(chosenRuns().split(",").filter(Boolean));

  constructor(overview, params) {
    this.#runs = overview.library;
    this.#query = {
      q: params.get("q") ?? "",
      sort: params.get("sort") || "date",
      down: params.has("sort") ? params.get("down") === "1" : true,
    };
    this.openButton.addEventListener("click", () => this.#open());
    this.#draw();
  }

  rows() {
    return [...this.view.querySelectorAll("tbody tr")];
  }

  searchBox() {
    const box = h("input", {
      type: "search",
      id: "search",
      placeholder: "Search runs (/)",
      "aria-label": "Search runs",
      value: this.#query.q,
    });
    box.addEventListener("input", () => this.#change({ q: box.value }));
    return box;
  }

  refresh(overview) {
    this.#runs = overview.library;
    this.#draw();
  }

  #change(changes) {
    Object.assign(this.#query, changes);
    const params = new URLSearchParams(this.#query);
    params.set("down", this.#query.down ? "1" : "");
    history.replaceState(null, "", `#/runs?${params}`);
    this.#draw();
  }

  #draw() {
    const found = sortRuns(findRuns(this.#runs, this.#query.q), this.#query);
    const body = h(
      "tbody",
      {},
      found.map((run) => this.#row(run)),
    );
    updateChildren(this.view, h("table", {}, this.#head(), body));
    const of = found.length === this.#runs.length ? "" : ` of ${count(this.#runs.length)}`;
    replaceContent(
      this.status,
      this.#runs.length
        ? `${count(found.length)}${of} runs`
        : "No captures or trials were found here.",
    );
    this.#drawButton();
  }

  #drawButton() {
    const n = this.#chosen.size;
    this.openButton.disabled = n === 0;
    this.openButton.textContent = n > 1 ? `Compare the ${n} chosen runs` : "Open the chosen run";
  }

  #head() {
    const { sort, down } = this.#query;
    const cells = RUN_COLUMNS.map(([name, title]) => {
      const order = sort === name ? (down ? "descending" : "ascending") : "none";
      const arrow = { ascending: " ▲", descending: " ▼", none: "" }[order];
      // Numbers are looked at from the largest, names from A.
      const first = !["name", "agent", "model"].includes(name);
      const next = order === "none" ? first : order === "ascending";
      const click = () => this.#change({ sort: name, down: next });
      const button = h("button", { type: "button", on: { click } }, title, arrow);
      return h("th", { scope: "col", "aria-sort": order }, button);
    });
    const box = h("th", { scope: "col" }, h("span", { class: "hidden" }, "chosen"));
    return h("thead", {}, h("tr", {}, box, cells));
  }

  #row(run) {
    const { summary, live } = run;
    const change = (event) => {
      if (event.target.checked) this.#chosen.add(run.key);
      else this.#chosen.delete(run.key);
      this.#drawButton();
    };
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Choose ${run.name}`,
      checked: this.#chosen.has(run.key),
      on: { change },
    });
    const numbers = [promptsText(summary), runCostText(summary), duration(summary?.medianMs)];
    return h(
      "tr",
      { "data-key": run.key },
      h("td", {}, box),
      h("td", {}, h("a", { href: `?runs=${encodeURIComponent(run.key)}#/` }, run.name)),
      h("td", {}, agentText(run)),
      h("td", {}, modelText(run)),
      h("td", { class: "number" }, rateText(run)),
      numbers.map((text) => h("td", { class: "number" }, text)),
      h("td", {}, dateText(run.changed)),
      h("td", {}, live ? liveText(live) : kindText(run)),
    );
  }

  #open() {
    const params = new URLSearchParams();
    if (this.#chosen.size) params.set("runs", [...this.#chosen].join(","));
    location.assign(`?${params}#/`);
  }
}

/** Every word must be somewhere in the name, the agent or the model. */
function findRuns(runs, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => {
    const all = `${run.name} ${agentText(run)} ${modelText(run)}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

function sortRuns(runs, { sort, down }) {
  const valueOf = RUN_COLUMNS.find(([name]) => name === sort)?.[2] ?? ((run) => run.changed);
  const direction = down ? -1 : 1;
  return runs.toSorted((one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return a < b ? -direction : a > b ? direction : 0;
  });
}

function agentText({ summary, live }) {
  return summary?.agents?.join(", ") || live?.agent || "";
}

function modelText({ summary }) {
  return summary?.models?.join(", ") ?? "";
}

function rateText({ summary }) {
  if (!summary) return "reading…";
  if (!isKnown(summary.rate)) return "not graded";
  return [
    percent(summary.rate, 1),
    h("span", { class: "dim" }, ` ${intervalText(summary.interval)}`),
  ];
}

function promptsText(summary) {
  if (!summary) return DASH;
  const { prompts, trials } = summary;
  return trials === prompts ? count(prompts) : `${count(prompts)} (${counted(trials, "trial")})`;
}

function runCostText(summary) {
  if (!summary || !isKnown(summary.costUsd)) return DASH;
  const known =
    summary.nPriced < summary.trials
      ? ` (${count(summary.nPriced)} of ${count(summary.trials)} known)`
      : "";
  return `${money(summary.costUsd)}${known}`;
}

function dateText(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 16);
}

function liveText(live) {
  return h("span", {}, h("b", { class: "live-mark" }, "● live"), ` ${live.done} of ${live.total}`);
}

function kindText(run) {
  if (run.kind === "gone") return "gone";
  return `${run.kind === "trials" ? "trials" : "capture"}, ${bytes(run.size)}`;
}
