// Two trials of one prompt side by side: all steps in line, common ones folded, different words
// marked. Each line holds both trials, so that they scroll together at any width.
import { matchKeys, wordDifferences } from "./align.js";
import { callState, comparableStep, describeCall } from "./calls.js";
import { callOutput, fold, stepCard, stepTitle } from "./cards.js";
import { h, resultMark } from "./dom.js";
import { setKeys, sideBySideHref, trialHref } from "./navigation.js";
import { trialsOf } from "./prompts.js";
import { gamesBeside } from "./replay.js";
import { inputView, listedTrial, outputView, readTrial, resultView } from "./trial.js";
import { counted } from "./words.js";

const LINES_AT_ONCE = 300;
const MIN_FOLDED = 3;
const MAX_PARTNER_STEPS = 50;
const MAX_DIFF_TEXT = 20000;

export async function sideBySidePage(source, overview, { parts, query }) {
  const [, id, runA, a, runB, b] = parts;
  const [rowA, rowB, prompt] = await Promise.all([
    source.row(runA, id),
    source.row(runB, id),
    source.prompt(id),
  ]);
  const left = rowA && readTrial(rowA, a);
  const right = rowB && readTrial(rowB, b);
  if (!left || !right) return h("p", { class: "notice" }, "One of these trials is not here.");
  const lines = alignTrials(left.trajectory, right.trajectory);
  const parting = partingLine(lines);
  const trials = trialsOf(overview, prompt);
  const sides = [
    {
      side: "left",
      trial: left,
      run: runA,
      n: a,
      id,
      choose: (run, n) => sideBySideHref(id, run, n, runB, b),
    },
    {
      side: "right",
      trial: right,
      run: runB,
      n: b,
      id,
      choose: (run, n) => sideBySideHref(id, runA, a, run, n),
    },
  ];
  const list = new PairList(lines, sides, parting);
  const page = h(
    "div",
    { class: "beside" },
    h("h1", {}, id),
    h("div", { class: "question" }, inputView(left)),
    h(
      "div",
      { class: "halves heads" },
      sides.map((one) => sideHead(one, trials)),
    ),
    partingView(lines, parting, list),
    gamesBeside(source, id, sides),
    h("h2", {}, "Steps"),
    list.view,
    h("h2", {}, "Answers"),
    h("div", { class: "halves" }, answersView(left, right)),
  );
  setKeys(
    { n: () => list.next(1), N: () => list.next(-1), x: () => list.goToParting() },
    { "n / N": "next, previous difference", x: "where they part" },
  );
  // The page is put into the document before the next frame; only then can it scroll.
  if (query.get("at") === "parting") requestAnimationFrame(() => list.goToParting());
  return page;
}

/** Lines of two lists of steps: { a, b, state }; state is same, outcome, changed or only. */
export function alignTrials(left, right) {
  const keys = [left, right].map((steps) => steps.map(comparableStep));
  const lines = [];
  let [nextA, nextB] = [0, 0];
  const end = [left.length, right.length];
  for (const [a, b] of [...matchKeys(...keys), end]) {
    lines.push(...gapLines(left, right, { nextA, a, nextB, b }));
    if (a < left.length && b < right.length) {
      lines.push({ a, b, stepA: left[a], stepB: right[b], state: sameState(left[a], right[b]) });
    }
    [nextA, nextB] = [a + 1, b + 1];
  }
  return lines;
}

/** The same call may end differently: that is a difference, however equal the call. */
function sameState(stepA, stepB) {
  const ended = (step) => `${callState(step)} ${step.exitCode ?? 0}`;
  return ended(stepA) === ended(stepB) ? "same" : "outcome";
}

/** Between two common steps: calls of the same kind face each other, the rest stands alone. */
function gapLines(left, right, { nextA, a, nextB, b }) {
  const lines = [];
  let j = nextB;
  for (let i = nextA; i < a; i += 1) {
    let partner = j;
    const last = Math.min(b, j + MAX_PARTNER_STEPS);
    while (partner < last && kindOf(left[i]) !== kindOf(right[partner])) partner += 1;
    if (partner < last) {
      for (; j < partner; j += 1) lines.push({ a: null, b: j, stepB: right[j], state: "only" });
      lines.push({ a: i, b: j, stepA: left[i], stepB: right[j], state: "changed" });
      j += 1;
    } else lines.push({ a: i, b: null, stepA: left[i], state: "only" });
  }
  for (; j < b; j += 1) lines.push({ a: null, b: j, stepB: right[j], state: "only" });
  return lines;
}

function kindOf(step) {
  return step.type === "tool_call" ? describeCall(step).kind : step.type;
}

/** Where two trials part: the first call that differs; thoughts are never worded alike. */
export function partingLine(lines) {
  const isCall = ({ stepA, stepB }) => stepA?.type === "tool_call" || stepB?.type === "tool_call";
  const byCall = lines.findIndex((line) => line.state !== "same" && isCall(line));
  return byCall >= 0 ? byCall : lines.findIndex(({ state }) => state !== "same");
}

/** What happens where two trials part, in a few words. */
function partingText(lines, parting) {
  if (parting < 0) return "Both took the same steps.";
  const { a, b, state } = lines[parting];
  const place = a === null ? `step ${b + 1} of the right one` : `step ${a + 1}`;
  if (state === "outcome") return `They part at ${place}: the same call ends differently.`;
  return `They part at ${place}.`;
}

function partingView(lines, parting, list) {
  const different = lines.filter(({ state }) => state !== "same").length;
  const common = lines.length - different;
  const goThere = () => list.goToParting();
  return h(
    "p",
    { class: "parting", role: "status" },
    partingText(lines, parting),
    " ",
    parting < 0 ? null : h("button", { type: "button", on: { click: goThere } }, "Go there (x)"),
    h("span", { class: "dim" }, ` ${counted(common, "common step")}, ${different} different.`),
  );
}

function sideHead({ side, trial, run, n, id, choose }, trials) {
  const change = (event) => {
    location.hash = choose(...JSON.parse(event.target.value));
  };
  const options = trials.map((one) => {
    const selected = one.run === run && String(one.n) === n;
    const value = JSON.stringify([one.run, one.n]);
    const { sign } = resultMark(one.passed);
    return h("option", { value, selected }, `${sign} ${one.run}, trial ${one.n}`);
  });
  const label = side === "left" ? "Left trial" : "Right trial";
  return h(
    "section",
    { class: `half ${side}`, "aria-label": `${run}, trial ${n}` },
    h("select", { "aria-label": label, on: { change } }, options),
    " ",
    h("a", { href: trialHref(run, id, n) }, "open"),
    resultView(trial, listedTrial(trials, run, n)),
  );
}

/** The lines, of which runs of common steps are folded and very many are shown piece by piece. */
class PairList {
  view = h("div", { class: "pairs" });
  #lines;
  #sides;
  #parting;
  #drawn = 0;
  #moreButton = h("button", { type: "button", class: "more" });
  #current = -1;

  constructor(lines, sides, parting) {
    this.#lines = lines;
    this.#sides = sides;
    this.#parting = parting;
    this.#moreButton.addEventListener("click", () => this.#drawMore());
    this.#drawMore();
  }

  goToParting() {
    if (this.#parting >= 0) this.#goTo(this.#parting);
  }

  /** Goes to the next line that differs, or the previous one. */
  next(by) {
    let place = this.#current + by;
    while (this.#lines[place]?.state === "same") place += by;
    if (this.#lines[place]) this.#goTo(place);
  }

  #goTo(place) {
    while (this.#drawn <= place) this.#drawMore();
    this.view.querySelector(".current")?.classList.remove("current");
    const line = this.view.querySelector(`[data-line="${place}"]`);
    this.#current = place;
    line?.classList.add("current");
    line?.scrollIntoView({ block: "center" });
  }

  #drawMore() {
    const end = Math.min(this.#drawn + LINES_AT_ONCE, this.#lines.length);
    while (this.#drawn < end) this.#drawGroup();
    this.#moreButton.remove();
    const left = this.#lines.length - this.#drawn;
    if (left <= 0) return;
    this.#moreButton.textContent = `Show more (${counted(left, "line")} left)`;
    this.view.append(this.#moreButton);
  }

  /** One different line, or a run of common ones. */
  #drawGroup() {
    const start = this.#drawn;
    let end = start + 1;
    if (this.#lines[start].state === "same") {
      while (this.#lines[end]?.state === "same") end += 1;
    }
    this.#drawn = end;
    const views = () => this.#lines.slice(start, end).map((_, i) => this.#lineView(start + i));
    if (end - start < MIN_FOLDED) this.view.append(...views());
    else this.view.append(this.#commonFold(end - start, views));
  }

  #commonFold(n, build) {
    const common = fold(`${n} common steps`, build);
    common.classList.add("common");
    return common;
  }

  #lineView(place) {
    const line = this.#lines[place];
    const parts = place === this.#parting ? " parts" : "";
    const words = line.state === "changed" ? changedWords(line) : [null, null];
    const cells = this.#sides.map((side, i) =>
      cellView(side, i ? line.b : line.a, i ? line.stepB : line.stepA, words[i], parts),
    );
    return h("div", { class: `pair ${line.state}${parts}`, "data-line": place }, cells);
  }
}

/** The words that differ, where two steps of one kind face each other. */
function changedWords({ stepA, stepB }) {
  const texts = [stepA, stepB].map(stepWords);
  if (texts.some((text) => !text || text.length > MAX_DIFF_TEXT)) return [null, null];
  return wordDifferences(...texts);
}

function stepWords(step) {
  if (step.type !== "tool_call") return typeof step.content === "string" ? step.content : "";
  const call = describeCall(step);
  const texts = [call.about, call.before, call.after, call.content].filter(Boolean);
  return texts.length ? texts.join("\n") : (JSON.stringify(step.input) ?? "");
}

function cellView({ side, id, run, n }, number, step, words, parts) {
  if (!step) return h("div", { class: `cell ${side} empty` });
  const link = trialHref(run, id, n, number + 1);
  const options = { id: `${side}-step-${number}`, link };
  if (!words) {
    const node = { step, number, children: [] };
    return h(
      "ol",
      { class: `cell steps ${side}`, "data-run": `${run} ${n}` },
      withClass(stepCard(node, options), parts),
    );
  }
  const state = callState(step);
  const marked = words.map(([text, differs]) =>
    differs ? h("mark", { class: side }, text) : text,
  );
  const card = h(
    "li",
    { class: `step ${step.type} ${state}${parts}`, id: options.id },
    stepTitle(step, number, state, link),
    h("pre", { class: "text words", tabindex: "0" }, marked),
    step.type === "tool_call" ? callOutput(step, { open: true }) : null,
  );
  return h("ol", { class: `cell steps ${side}`, "data-run": `${run} ${n}` }, card);
}

function withClass(element, name) {
  if (name) element.classList.add(name.trim());
  return element;
}

function answersView(left, right) {
  const [a, b] = [left, right].map(({ output }) => String(output ?? ""));
  if (a === b || !a || !b || Math.max(a.length, b.length) > MAX_DIFF_TEXT) {
    return [left, right].map((trial) => h("div", { class: "half" }, outputView(trial)));
  }
  return wordDifferences(a, b).map((words, i) => {
    const side = i ? "right" : "left";
    const marked = words.map(([text, differs]) =>
      differs ? h("mark", { class: side }, text) : text,
    );
    return h("div", { class: "half" }, h("pre", { class: "text words", tabindex: "0" }, marked));
  });
}
