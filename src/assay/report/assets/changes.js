// What changed between two runs: the prompts that lost most first, with both results, both
// graders' reasons, and the first step where the trials part.
import { alignTrials, partingLine } from "./beside.js";
import { stepLine } from "./calls.js";
import { differencesOf } from "./data.js";
import {
  append,
  count,
  decimal,
  h,
  longText,
  percent,
  replaceContent,
  resultMark,
  shorten,
  signed,
} from "./dom.js";
import { href, listKeys, setKeys, trialHref } from "./navigation.js";
import { pairHref, pairOfTrials } from "./prompts.js";
import { readTrial } from "./trial.js";
import { causeWords } from "./words.js";

const CHANGES_AT_ONCE = 5;
const MAX_ALIGNED_STEPS = 20000;
const FILTERS = [
  ["regressed", "Regressed"],
  ["improved", "Improved"],
  ["lower", "Lower score, same result"],
  ["higher", "Higher score, same result"],
  ["flaky", "Flaky"],
  ["open", "Not measured"],
];

/** The part of the overview below the verdict; pairs name two runs each. */
export function changesView(source, overview, pairs) {
  if (!pairs.length) return null;
  const list = new ChangeList(source, overview);
  const numbers = ({ runA, runB }) =>
    [runA, runB].map((label) => overview.runs.findIndex((run) => run.label === label));
  const choose = (event) => list.choosePair(numbers(pairs[Number(event.target.value)]));
  const options = pairs.map(({ runA, runB }, n) =>
    h("option", { value: n }, `${runB} against ${runA}`),
  );
  const choice =
    pairs.length > 1
      ? h("select", { "aria-label": "Pair of runs", on: { change: choose } }, options)
      : null;
  list.choosePair(numbers(pairs[0]));
  setKeys(
    listKeys(() => [...document.querySelectorAll(".change")], {
      enter: (change) => change.querySelector(".beside-link")?.click(),
    }),
    { "j / k": "next, previous change", Enter: "its trials side by side" },
  );
  return h(
    "section",
    { class: "changes", "data-key": "changes" },
    h("h2", {}, "What changed"),
    choice,
    list.view,
  );
}

/** The changes of one pair, under one filter at a time. */
class ChangeList {
  view = h("div");
  #source;
  #overview;
  #pair = [0, 1];
  #status = "";
  #requests = 0;

  constructor(source, overview) {
    this.#source = source;
    this.#overview = overview;
  }

  async choosePair(pair) {
    this.#pair = pair;
    this.#requests += 1;
    const request = this.#requests;
    const totals = await Promise.all(
      FILTERS.map(async ([status]) => (await this.#find(status, 0, 1)).total),
    );
    if (request !== this.#requests) return; // Another pair has been chosen meanwhile.
    const first = FILTERS.findIndex((_, n) => totals[n] > 0);
    this.#status = first < 0 ? "" : FILTERS[first][0];
    this.#draw(totals);
  }

  #find(status, offset, limit) {
    const [a, b] = this.#pair;
    return this.#source.prompts({ ...this.#query(status), pair: `${a},${b}`, offset, limit });
  }

  #query(status) {
    const down = status === "improved" || status === "higher" ? "1" : "";
    return { status, sort: "difference", down };
  }

  #draw(totals) {
    const chips = FILTERS.map(([status, title], n) => this.#chip(status, title, totals, n));
    if (!this.#status) {
      replaceContent(
        this.view,
        h("p", { class: "dim" }, "No prompt changed, and all were measured."),
      );
      return;
    }
    const items = h("div", { class: "change-list" });
    const more = h("button", { type: "button", class: "more" });
    const total = totals[FILTERS.findIndex(([status]) => status === this.#status)];
    const showMore = async () => {
      const { rows } = await this.#find(this.#status, items.childElementCount, CHANGES_AT_ONCE);
      append(
        items,
        rows.map((row) => this.#item(row)),
      );
      const left = total - items.childElementCount;
      more.hidden = left <= 0;
      more.textContent = `Show ${Math.min(left, CHANGES_AT_ONCE)} more (${count(left)} left)`;
    };
    more.addEventListener("click", showMore);
    const group = h("div", { class: "chips", role: "group", "aria-label": "Which changes" }, chips);
    replaceContent(this.view, group, items, h("p", {}, more, " ", this.#tableLink(total)));
    showMore();
  }

  #chip(status, title, totals, n) {
    const choose = () => {
      this.#status = status;
      this.#draw(totals);
    };
    const pressed = String(status === this.#status);
    const props = {
      type: "button",
      "aria-pressed": pressed,
      disabled: !totals[n],
      on: { click: choose },
    };
    return h("button", props, `${title} ${count(totals[n])}`);
  }

  #tableLink(total) {
    const params = new URLSearchParams({ status: this.#status, pair: this.#pair.join(",") });
    params.set("sort", "difference");
    const text = total === 1 ? "It in the table" : `All ${count(total)} in the table`;
    return h("a", { href: `#/prompts?${params}` }, text);
  }

  #item(row) {
    const [a, b] = this.#pair;
    const { rate, score } = differencesOf(row, `${a},${b}`);
    const change = rate || score;
    const values = [a, b].map((run) =>
      !rate && score ? decimal(row.cells[run].score, 3) : percent(row.cells[run]?.rate),
    );
    const kind = change < 0 ? "fail" : change > 0 ? "pass" : "none";
    const beside = pairHref(this.#overview, row, [a, b]);
    const parting = h("p", { class: "parting dim" }, beside ? "reading both trials…" : null);
    const halves = [a, b].map((run, side) => this.#half(row, run, side));
    const item = h(
      "article",
      { class: "change" },
      h(
        "h3",
        {},
        h("a", { href: href("prompt", row.id) }, shorten(row.id, 80)),
        h("span", { class: `mark ${kind}` }, values.join(" → ")),
        rate && score ? h("span", { class: "dim" }, `score ${signed(score)}`) : null,
        beside
          ? h("a", { class: "button beside-link", href: `${beside}?at=parting` }, "Side by side")
          : null,
      ),
      h("p", { class: "dim head" }, row.head),
      h(
        "div",
        { class: "halves" },
        halves.map(({ view }) => view),
      ),
      parting,
    );
    this.#read(row, halves, parting).catch((error) => {
      replaceContent(parting, `These trials cannot be read: ${error.message}`);
    });
    return item;
  }

  /** One trial of a run, of which the reason of the grader is read later. */
  #half(row, run, side) {
    const pair = pairOfTrials(row, ...this.#pair);
    const trial = pair?.[side] ?? row.cells[run]?.trials[0];
    const { label } = this.#overview.runs[run];
    const [answer, reason] = [h("div", { class: "answer" }), h("div", { class: "reason" })];
    if (!trial) {
      const view = h("div", { class: "half" }, h("b", {}, label), " not in this run");
      return { view, answer, reason };
    }
    const { sign, word, kind } = resultMark(trial.passed);
    const link = h(
      "a",
      { class: `mark ${kind}`, href: trialHref(label, row.id, trial.n) },
      `${sign} ${word}`,
    );
    const facts = [
      trial.score === null ? null : `score ${decimal(trial.score)}`,
      trial.cause ? causeWords(trial.cause) : null,
      row.cells[run].trials.length > 1
        ? `trial ${trial.n} of ${row.cells[run].trials.length}`
        : null,
    ];
    const told = facts.filter(Boolean).join(", ");
    const view = h(
      "div",
      { class: "half" },
      h("b", {}, label),
      " ",
      link,
      h("span", { class: "dim" }, ` ${told}`),
      answer,
      reason,
    );
    return { view, answer, reason, label, n: trial.n };
  }

  async #read(row, halves, parting) {
    const trials = await Promise.all(
      halves.map(async ({ label, n }) => {
        const found = label === undefined ? null : await this.#source.row(label, row.id);
        return found ? readTrial(found, n) : null;
      }),
    );
    trials.forEach((trial, side) => {
      const text = trial?.grade?.reasoning ?? trial?.failure?.message;
      if (trial) {
        const { output } = trial;
        halves[side].answer.append(
          output ? longText(output, {}, 400) : h("p", { class: "dim" }, "no answer"),
        );
      }
      if (text) halves[side].reason.append(longText(text, { class: "text plain" }, 300));
    });
    replaceContent(parting, trials.every(Boolean) ? partingWords(...trials) : null);
  }
}

/** Where two trials part, and what each of them does there. */
function partingWords(left, right) {
  const steps = [left.trajectory, right.trajectory];
  if (steps.some((one) => one.length > MAX_ALIGNED_STEPS)) {
    return "Too many steps to compare here: open them side by side.";
  }
  const lines = alignTrials(...steps);
  const at = partingLine(lines);
  if (at < 0) return "Both took the same steps.";
  const { a, b } = lines[at];
  // A step that only one took faces the next one of the other.
  const next = (side) => lines.slice(at).find((line) => line[side])?.[side];
  const shown = (step) =>
    step ? h("code", {}, stepLine(step).slice(0, 90)) : h("i", {}, "the end of the trial");
  const place = `They part at step ${(a ?? b) + 1}: `;
  return [place, shown(next("stepA")), " against ", shown(next("stepB"))];
}
