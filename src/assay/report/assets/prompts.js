// The table of prompts: search, filter, sort; a cell for each run, a mark for each trial.
import { add, h, swap } from "./dom.js";
import { count, decimal, duration, mark, money } from "./format.js";
import { short } from "./charts.js";
import { setKeys, walk } from "./keys.js";
import { besideHref, href, trialHref } from "./router.js";

const PAGE = 100;
const MARKS = 12;
const STATUSES = [["", "any result"], ["pass", "passed"], ["fail", "failed"], ["flaky", "flaky"], ["differ", "runs differ"], ["open", "not measured"]];
const COLUMNS = [["id", "prompt"], ["category", "category"], ["rate", "result"], ["score", "score"], ["time", "time"], ["cost", "cost"], ["steps", "steps"]];

export function promptsPage(source, told, query) {
  const wish = { q: query.get("q") ?? "", status: query.get("status") ?? "", category: query.get("category") ?? "", cause: query.get("cause") ?? "", sort: query.get("sort") ?? "", down: query.get("down") ?? "", offset: 0, limit: PAGE };
  const table = h("div", { class: "scroll", tabindex: "0" });
  const sum = h("p", { class: "dim", role: "status" });
  const more = h("button", { type: "button", class: "more" }, "Show more");
  const search = h("input", { type: "search", id: "search", placeholder: "Search prompts (/)", "aria-label": "Search prompts", value: wish.q });
  let body = h("tbody");
  let asked = 0;

  async function show() {
    asked += 1;
    const mine = asked;
    const { total, rows } = await source.prompts(wish);
    if (mine !== asked) return;
    if (wish.offset === 0) {
      body = h("tbody");
      swap(table, h("table", { class: "prompts" }, head(), body));
    }
    add(body, rows.map((row) => promptRow(told, row)));
    swap(sum, total === 1 ? "1 prompt" : `${count(total)} prompts`);
    more.hidden = wish.offset + rows.length >= total;
    remember();
  }

  function head() {
    return h("thead", {}, h("tr", {}, COLUMNS.map(([key, text]) => {
      const sorted = wish.sort === key ? (wish.down ? "descending" : "ascending") : "none";
      const arrow = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
      return h("th", { scope: "col", "aria-sort": sorted },
        h("button", { type: "button", on: { click: () => sortBy(key) } }, text, arrow));
    })));
  }

  function sortBy(key) {
    wish.down = wish.sort === key && !wish.down ? "1" : "";
    wish.sort = key;
    again();
  }

  function again() {
    wish.offset = 0;
    return show();
  }

  /** Keeps search and filter in the address, so that it can be sent on. */
  function remember() {
    const words = new URLSearchParams();
    for (const name of ["q", "status", "category", "cause", "sort", "down"]) if (wish[name]) words.set(name, wish[name]);
    history.replaceState(null, "", words.size ? `#/prompts?${words}` : "#/prompts");
  }

  const choose = (name, text, options) => h("select", { "aria-label": text, on: { change: (event) => { wish[name] = event.target.value; again(); } } },
    options.map(([value, word]) => h("option", { value, selected: wish[name] === value }, word)));
  let waiting;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { wish.q = search.value; again(); }, 120);
  });
  more.addEventListener("click", () => { wish.offset += PAGE; show(); });
  const rows = () => [...table.querySelectorAll("tbody tr")];
  setKeys(walk(rows, { enter: (row) => { location.hash = row.querySelector("a").getAttribute("href"); } }));
  show();
  const causes = told.causes.length ? choose("cause", "Cause of failure", [["", "any cause"], ...told.causes.map((cause) => [cause, cause])]) : null;
  const categories = told.categories.length > 1 ? choose("category", "Category", [["", "any category"], ...told.categories.map((name) => [name, name])]) : null;
  return h("div", {}, h("h1", {}, "Prompts"),
    h("div", { class: "filters", role: "search" }, search, choose("status", "Result", STATUSES), categories, causes), sum, table, more);
}

function promptRow(told, row) {
  const cells = row.cells.map((cell, n) => [cell, told.runs[n]]).filter(([cell]) => cell);
  const stacked = (show) => h("td", { class: "number" }, cells.map(([cell]) => h("div", {}, show(cell))));
  return h("tr", {},
    h("td", {}, h("a", { href: href("prompt", row.id) }, short(row.id, 60)), h("div", { class: "dim head" }, row.head)),
    h("td", {}, row.category),
    h("td", {}, cells.map(([cell, run]) => h("div", { class: "marks" }, told.runs.length > 1 ? h("span", { class: "dim" }, `${short(run.label, 14)} `) : null, marks(run, row.id, cell)))),
    stacked((cell) => decimal(cell.score)), stacked((cell) => duration(cell.ms)), stacked((cell) => money(cell.usd)), stacked((cell) => decimal(cell.steps, cell.trials.length > 1 ? 1 : 0)));
}

function marks(run, id, cell) {
  const shown = cell.trials.slice(0, MARKS).map((trial) => {
    const { sign, word, kind } = mark(trial.passed);
    const why = trial.cause ? `, ${trial.cause}` : "";
    return h("a", { class: `mark ${kind}`, href: trialHref(run.label, id, trial.n), title: `trial ${trial.n}: ${word}${why}`, "aria-label": `trial ${trial.n} ${word}${why}` }, sign, cell.trials.length === 1 && trial.cause ? ` ${trial.cause}` : "");
  });
  const rest = cell.trials.length - shown.length;
  return [shown, rest > 0 ? h("span", { class: "dim" }, ` +${rest}`) : null];
}

/** One prompt: all its trials in all runs, and the pair worth looking at. */
export async function promptPage(source, told, id) {
  const row = await source.prompt(id);
  if (!row) return h("p", { class: "notice" }, "There is no such prompt here.");
  const all = row.cells.flatMap((cell, n) => (cell ? cell.trials.map((trial) => ({ ...trial, run: told.runs[n].label })) : []));
  const pair = telling(all);
  setKeys(walk(() => [...document.querySelectorAll("tbody tr")], { enter: (line) => { location.hash = line.querySelector("a").getAttribute("href"); } }));
  return h("div", {}, h("h1", {}, id), h("p", { class: "dim" }, row.category),
    h("p", { class: "head" }, row.head),
    pair ? h("p", {}, h("a", { class: "button", href: besideHref(id, pair[0].run, pair[0].n, pair[1].run, pair[1].n) }, "Side by side"), h("span", { class: "dim" }, ` ${pair[0].run} ${pair[0].n} beside ${pair[1].run} ${pair[1].n}`)) : null,
    h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, ["trial", "result", "score", "time", "cost", "steps"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, all.map((trial) => {
        const { sign, word, kind } = mark(trial.passed);
        return h("tr", {}, h("td", {}, h("a", { href: trialHref(trial.run, id, trial.n) }, `${trial.run} ${trial.n}`)),
          h("td", {}, h("span", { class: `mark ${kind}` }, sign), ` ${word}${trial.cause ? `, ${trial.cause}` : ""}`),
          h("td", { class: "number" }, decimal(trial.score)), h("td", { class: "number" }, duration(trial.ms)),
          h("td", { class: "number" }, money(trial.usd)), h("td", { class: "number" }, count(trial.steps)));
      })))));
}

/** A pass beside a fail, across runs where there are several. */
export function telling(all) {
  for (const good of all) {
    const bad = all.find((trial) => trial.passed === 0 && good.passed === 1 && trial.run !== good.run)
      ?? all.find((trial) => trial.passed === 0 && good.passed === 1);
    if (bad) return [good, bad];
  }
  const other = all.find((trial) => trial.run !== all[0].run) ?? all[1];
  return other ? [all[0], other] : null;
}
