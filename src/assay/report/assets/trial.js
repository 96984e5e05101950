// A trial as a trace: its outcome on top, an outline at the side, a line of time, and every step.
// The page for labels shows trials without their grades.
import { callState } from "./calls.js";
import { fold, valueView } from "./cards.js";
import {
  bytes,
  decimal,
  duration,
  h,
  longText,
  money,
  replaceContent,
  resultMark,
  shorten,
} from "./dom.js";
import { entriesOf, gradeOf, trialNumber } from "./entries.js";
import { markdown } from "./markdown.js";
import { copyLink, href, setKeys, setStepAction, sideBySideHref, trialHref } from "./navigation.js";
import { Outline } from "./outline.js";
import { contrastingPair, neighbourHref, trialsOf } from "./prompts.js";
import { replay } from "./replay.js";
import { nestSteps, readSteps, StepList, stepList, usageText } from "./steps.js";
import { timeline } from "./timeline.js";
import { causeWords, counted } from "./words.js";

const MAX_NEIGHBOURS = 20;
const MAX_MEASURES = 4;
const READ_DELAY_MS = 80;
const LABEL_KEYS = { p: "pass", f: "fail", a: "ambiguous" };

/** One trial: what was asked, what came out, how it was judged, and every step between. */
export async function trialPage(source, overview, address) {
  const route = { ...address, runs: overview.runs };
  const { run, prompt: id, trial: n } = route;
  const [row, prompt, around] = await Promise.all([
    source.row(run, id),
    source.prompt(id),
    source.around(Object.fromEntries(route.query), id),
  ]);
  const trial = row ? readTrial(row, n) : null;
  if (!trial) return h("p", { class: "notice" }, "There is no such trial here.");
  const trials = prompt ? trialsOf(overview, prompt) : [];
  const linkTo = (number) => trialHref(run, id, n, number + 1, route.query);
  const requests = trial.wire?.tape && source.requests ? new Requests(source, route) : null;
  const trace = new Trace(trial, linkTo, requests);
  const page = h(
    "div",
    { class: "trial" },
    trialHeader(trial, trace, { route, trials, around }),
    h(
      "div",
      { class: "trace" },
      trial.trajectory.length ? trace.outline.view : null,
      h(
        "div",
        { class: "trace-body" },
        problemsView(trial, listedTrial(trials, run, n)),
        resultView(trial, listedTrial(trials, run, n)),
        neighbourLinks(trials, route),
        trial.metadata.evidence?.log ? gameView(source.game(run, id, n), trial) : null,
        h("h2", {}, "Asked"),
        inputView(trial),
        h("h2", {}, "Answered"),
        outputView(trial),
        h("h2", {}, `Steps (${trial.trajectory.length.toLocaleString("en")})`),
        timeline(trial.trajectory, trial.total, linkTo),
        trace.list.view,
        moreView(trial),
        requests?.list ?? null,
        trial.raw ? rawView(() => source.raw(run, id, n)) : null,
      ),
    ),
  );
  setTrialKeys(page, trace, { route, trials, around });
  trace.follow(page, route.step);
  return page;
}

/** The steps of a trial, in the list and in the outline, and the way from one to another. */
class Trace {
  list;
  outline;
  #nodes;
  #current = -1;
  #linkTo;
  troubles;

  constructor(trial, linkTo, requests) {
    const top = nestSteps(trial.trajectory);
    this.#nodes = top.all;
    this.#linkTo = linkTo;
    this.list = new StepList(top, {
      turns: trial.turnUsage,
      linkTo,
      requestOf: requests ? (number) => requests.ofStep(number) : undefined,
    });
    this.outline = new Outline(top.all, linkTo);
    this.troubles = top.all.filter(({ step }) => callState(step) !== "done");
  }

  /** Goes to the step that the address names, now and when only the step in it changes. */
  follow(page, step) {
    setStepAction((number) => this.#show(Number(number) - 1));
    // The page is put into the document before the next frame; only then can it scroll.
    if (step) requestAnimationFrame(() => this.#show(Number(step) - 1));
    let timer;
    const markRead = () => {
      clearTimeout(timer); // Only where the reader stops.
      if (!page.isConnected) removeEventListener("scroll", markRead);
      else timer = setTimeout(() => this.#markRead(), READ_DELAY_MS);
    };
    addEventListener("scroll", markRead, { passive: true });
  }

  /** Address of the step at hand, or of the trial. */
  get address() {
    return this.#current >= 0 ? this.#linkTo(this.#current) : location.hash;
  }

  move(by) {
    const next = Math.max(0, Math.min(this.#nodes.length - 1, this.#current + by));
    if (this.#nodes.length) this.#goTo(next);
  }

  /** Goes to the next or the previous call that failed or never finished. */
  moveToTrouble(by) {
    const ahead = this.troubles.filter(({ number }) => (number - this.#current) * by > 0);
    const target = (by > 0 ? ahead[0] : ahead.at(-1)) ?? this.troubles.at(by > 0 ? 0 : -1);
    if (target) this.#goTo(target.number);
  }

  /** Opens or closes what the step at hand folds away. */
  toggle() {
    const element = document.getElementById(`step-${this.#current}`);
    element?.querySelector("summary")?.click();
  }

  #goTo(number) {
    history.replaceState(null, "", this.#linkTo(number));
    this.#show(number);
  }

  #show(number) {
    const node = this.#nodes[number];
    const element = node && this.list.reveal(node);
    if (!element) return;
    document.querySelector(".step.current")?.classList.remove("current");
    element.classList.add("current");
    this.#current = number;
    element.scrollIntoView({ block: "center" });
    this.outline.mark(number);
  }

  /** Marks the step at hand while it is on the screen, else the one in the middle of it. */
  #markRead() {
    const chosen = document.querySelector(".step.current")?.getBoundingClientRect();
    const isSeen = chosen && chosen.bottom > 0 && chosen.top < innerHeight;
    const middle = isSeen ? null : document.elementFromPoint(innerWidth * 0.6, innerHeight * 0.4);
    const step = middle?.closest(".step");
    if (isSeen) this.outline.mark(this.#current);
    else if (step?.id.startsWith("step-")) this.outline.mark(Number(step.id.slice(5)));
  }
}

/** Stays on top of the page: how the trial ended, what it cost, and the ways on. */
function trialHeader(trial, trace, { route, trials, around }) {
  const { run, prompt: id, trial: n } = route;
  const { sign, word, kind } = resultMark(listedTrial(trials, run, n)?.passed);
  const score = trial.grade?.score;
  const cost = trial.usage?.costUsd;
  const facts = [
    score === undefined ? null : `score ${decimal(score)}`,
    ...measuredFacts(trial),
    duration(trial.total),
    cost === undefined ? "cost unknown" : money(cost),
    trial.failure ? causeWords(trial.failure.cause) : null,
  ];
  const other = otherTrial(trials, run, n);
  const beside = other && sideBySideHref(id, run, n, other.run, other.n);
  return h(
    "div",
    { class: `trial-head ${kind}` },
    h("h1", {}, h("span", { class: `mark ${kind}` }, `${sign} ${word}`), " ", id),
    h("p", { class: "facts" }, `${run}, trial ${n} · ${facts.filter(Boolean).join(" · ")}`),
    h(
      "p",
      { class: "tools" },
      troubleButtons(trace),
      beside ? h("a", { class: "button", href: beside, title: "Key s" }, "Side by side") : null,
      copyButton(() => trace.address),
      around ? promptLinks(around, route) : null,
    ),
  );
}

/** What the benchmark measured besides the score, such as the official score and the levels. */
function measuredFacts({ outcome }) {
  const measures = outcome?.measures;
  if (measures === null || typeof measures !== "object") return [];
  return Object.entries(measures)
    .filter(([, value]) => Number.isFinite(value))
    .slice(0, MAX_MEASURES)
    .map(([name, value]) =>
      name.endsWith(" %")
        ? `${value.toFixed(2)} / 100 ${name.slice(0, -2)}`
        : `${name} ${Number.isInteger(value) ? value : value.toFixed(2)}`,
    );
}

function troubleButtons(trace) {
  const { length } = trace.troubles;
  if (!length) return null;
  const jump = (by) => ({ click: () => trace.moveToTrouble(by) });
  const failed = trace.troubles.filter(({ step }) => callState(step) === "failed").length;
  const words = failed
    ? `${counted(failed, "failed call")}${length > failed ? `, ${length - failed} unfinished` : ""}`
    : counted(length, "unfinished call");
  return h(
    "span",
    { class: "troubles" },
    h("button", { type: "button", title: "Next one (f)", on: jump(1) }, `✗ ${words}`),
    h("button", { type: "button", "aria-label": "Previous failed call", on: jump(-1) }, "↑"),
    h("button", { type: "button", "aria-label": "Next failed call", on: jump(1) }, "↓"),
  );
}

function copyButton(address) {
  const button = h(
    "button",
    { type: "button", title: "Copy a link to this step (c)" },
    "Copy link",
  );
  button.addEventListener("click", async () => {
    const copied = await copyLink(address());
    replaceContent(button, copied ? "Copied" : "Copy the address bar");
  });
  button.classList.add("copy");
  return button;
}

/** The prompts before and after this one, among those that the table showed. */
function promptLinks({ position, total, previous, next }, route) {
  const link = (row, text, label) =>
    row
      ? h("a", { class: "button", href: neighbourHref(row, route), "aria-label": label }, text)
      : null;
  return h(
    "span",
    { class: "around" },
    link(previous, "← prompt", "Previous prompt"),
    h(
      "span",
      { class: "dim" },
      ` ${position.toLocaleString("en")} of ${total.toLocaleString("en")} `,
    ),
    link(next, "prompt →", "Next prompt"),
  );
}

/** Gives a trial in one shape, from a capture or from a row of repeated trials. */
export function readTrial(row, n) {
  const isEntry = (trial) => trial === row || trialNumber(trial) === Number(n);
  const entry = entriesOf(row).find(isEntry);
  if (!entry) return null;
  return {
    ...entry,
    grade: gradeOf(entry, row),
    input: row.input,
    hint: row.hint,
    metadata: { ...row.metadata, ...entry.metadata },
    trajectory: readSteps(entry.trajectory, entry.cwd),
    turnUsage: Array.isArray(entry.turnUsage) ? entry.turnUsage : [],
    total: entry.timing?.total ?? entry.duration,
  };
}

function setTrialKeys(page, trace, { route, trials, around }) {
  const { run, prompt: id, trial: n } = route;
  const other = otherTrial(trials, run, n);
  const goTo = (address) => {
    if (address) location.hash = address;
  };
  const actions = {
    j: () => trace.move(1),
    k: () => trace.move(-1),
    Enter: () => trace.toggle(),
    f: () => trace.moveToTrouble(1),
    F: () => trace.moveToTrouble(-1),
    c: () => page.querySelector(".copy").click(),
    s: () => goTo(other && sideBySideHref(id, run, n, other.run, other.n)),
    "]": () => goTo(around?.next && neighbourHref(around.next, route)),
    "[": () => goTo(around?.previous && neighbourHref(around.previous, route)),
  };
  setKeys(actions, {
    "j / k": "next, previous step",
    Enter: "unfold the step",
    "f / F": "next, previous failed call",
    "] / [": "next, previous prompt",
    s: "side by side",
    c: "copy a link to the step",
  });
}

/** What to know before reading the result: a set-up that failed, denials, and warnings. */
function problemsView({ warnings, permissionDenials }, listed) {
  const texts = [...(listed?.problems ?? []), ...(Array.isArray(warnings) ? warnings : [])];
  if (permissionDenials > 0) texts.push(`${counted(permissionDenials, "tool call")} denied`);
  if (!texts.length) return null;
  const items = texts.map((text) => h("li", { class: "unhealthy" }, `⚠ ${shorten(text, 500)}`));
  return h("ul", { class: "health", "aria-label": "Problems of this trial" }, items);
}

export function resultView(trial, listed) {
  const { grade, failure, agent } = trial;
  const { sign, word, kind } = resultMark(listed?.passed);
  const agentName = agent
    ? [agent.adapter, agent.version, agent.model].filter(Boolean).join(" ")
    : "";
  const facts = [duration(trial.total), usageText(trial.usage).replace(/^ · /, ""), agentName];
  return h(
    "div",
    { class: `result ${kind}` },
    h(
      "p",
      {},
      h("b", {}, `${sign} ${word}`),
      grade?.score === undefined ? null : `, score ${decimal(grade.score)}`,
      h("span", { class: "dim" }, ` · ${facts.filter(Boolean).join(" · ")}`),
    ),
    failure
      ? h("p", {}, h("b", {}, causeWords(failure.cause)), ": ", String(failure.message))
      : null,
    grade?.reasoning ? longText(grade.reasoning, { class: "text plain" }, 4000) : null,
    gradeList(trial),
  );
}

/** The grade of each grader, where there are several or one of them failed. */
function gradeList(trial) {
  const grades = Object.entries(trial.grades ?? {});
  const failures = Object.entries(trial.graderFailures ?? {});
  if (grades.length < 2 && !failures.length) return null;
  const gradeItems = grades.map(([name, grade]) => {
    const result = `${resultMark(grade?.pass).sign} ${name} ${decimal(grade?.score)} `;
    return h("li", {}, result, longText(grade?.reasoning ?? "", { class: "text plain dim" }, 300));
  });
  const failureItems = failures.map(([name, why]) =>
    h("li", { class: "unhealthy" }, `${name} broke: `, longText(why, { class: "text plain" }, 300)),
  );
  return h("ul", {}, gradeItems, failureItems);
}

export function inputView(trial) {
  const own = Array.isArray(trial.input) ? trial.input : [trial.input];
  const turns = [...own, ...(trial.simulatedUser?.said ?? [])];
  const who = (n) => (n < own.length ? "" : ", said by the simulated user");
  return [
    turns.map((text, n) => [
      turns.length > 1 ? h("p", { class: "dim" }, `Turn ${n + 1}${who(n)}`) : null,
      longText(text, { class: "text plain" }, 1000),
    ]),
    trial.hint ? longText(`Hint: ${trial.hint}`, { class: "text plain" }, 1000) : null,
  ];
}

export function outputView({ output }) {
  return output ? markdown(output) : h("p", { class: "dim" }, "nothing");
}

/** A trial as the table has it, with its result as it is compared. */
export function listedTrial(trials, run, n) {
  return trials.find((trial) => trial.run === run && String(trial.n) === String(n));
}

/** The trial to compare this one with: one with another result, from another run if possible. */
function otherTrial(trials, run, n) {
  const current = listedTrial(trials, run, n);
  const others = trials.filter((trial) => trial !== current);
  if (!current || !others.length) return null;
  const different = others.filter((trial) => trial.passed !== current.passed);
  const pair = contrastingPair([current, ...different, ...others]);
  return pair?.includes(current)
    ? pair.find((trial) => trial !== current)
    : (different[0] ?? others[0]);
}

/** Links to the other trials of the prompt. */
function neighbourLinks(trials, { run, prompt: id, trial: n, query }) {
  const others = trials.filter((trial) => trial.run !== run || String(trial.n) !== String(n));
  const links = others.slice(0, MAX_NEIGHBOURS).map((trial) => {
    const { sign, kind } = resultMark(trial.passed);
    const target = trialHref(trial.run, id, trial.n, undefined, query);
    return [
      " ",
      h("a", { href: target, class: `mark ${kind}` }, `${sign} ${trial.run} ${trial.n}`),
    ];
  });
  const rest = others.length - links.length;
  const all = rest > 0 ? `all ${counted(trials.length, "trial")} of this prompt` : "this prompt";
  return h("p", {}, h("a", { href: href("prompt", id) }, all), links);
}

function gameView(log, trial) {
  const box = h(
    "section",
    { class: "game", "aria-label": "Replay of the game" },
    h("p", { class: "dim" }, "reading the game…"),
  );
  const show = async () => {
    const lines = await log;
    const missing = h("p", { class: "dim" }, "The log of this game is not here.");
    replaceContent(box, lines ? await replay(lines, trial) : missing);
  };
  show().catch((error) => {
    const notice = `The log of this game cannot be shown: ${error.message}`;
    replaceContent(box, h("p", { class: "notice" }, notice));
  });
  return [h("h2", {}, "Game"), box];
}

function moreView(trial) {
  const { metadata, setup, events, outcome, errors, retried, sessionId, stderr } = trial;
  const rest = { metadata, setup, events, outcome, errors, retried, sessionId };
  const parts = Object.entries(rest).filter(([, value]) => value !== undefined && value !== null);
  const summary = h("summary", {}, "Standard error (its end)");
  return [
    h("h2", {}, "More"),
    stderr ? h("details", { class: "fold" }, summary, longText(stderr)) : null,
    fold("Everything else in the row", () =>
      parts.map(([name, value]) => [h("h3", {}, name), valueView(value)]),
    ),
  ];
}

/** What the agent asked its models: read from the tape when somebody wants to see it. */
class Requests {
  #source;
  #place;
  #listing = null;

  constructor(source, { run, prompt, trial }) {
    this.#source = source;
    this.#place = [run, prompt, trial];
  }

  /** The request whose answer a step was, behind a fold. */
  ofStep(number) {
    const view = this.#fold("Request to the model", async () => {
      const listing = await this.#listed();
      const request = listing?.steps?.[number];
      if (!request) return dimText(listing?.why ?? "The request of this step is not known.");
      return this.#whole(request);
    });
    view.classList.add("request");
    return view;
  }

  /** All requests of the trial, in a line each. */
  get list() {
    return this.#fold("Requests to models", async () => {
      const listing = await this.#listed();
      if (!listing?.requests) return dimText(listing?.why ?? "The tape of this trial is not here.");
      return listing.requests.map((one) =>
        this.#fold(requestLine(one), () => this.#whole(one.request)),
      );
    });
  }

  #listed() {
    this.#listing ??= this.#source.requests(...this.#place);
    return this.#listing;
  }

  async #whole(number) {
    const found = await this.#source.request(...this.#place, number);
    if (!found) return dimText("This request is not on the tape.");
    const { system, tools, messages, results, rest } = found;
    const parts = { Messages: messages, "Results of tools": results, "Everything else": rest };
    return [
      h("h3", {}, `Request ${number}`),
      system ? fold("System prompt", () => valueView(system)) : null,
      tools ? fold(`Tools offered (${tools.length})`, () => tools.map(toolView)) : null,
      Object.entries(parts)
        .filter(([, value]) => value && Object.keys(value).length)
        .map(([name, value]) =>
          fold(name, () => (Array.isArray(value) ? value.map(valueView) : valueView(value))),
        ),
    ];
  }

  #fold(summary, read) {
    return fold(summary, () => {
      const box = h("div", {}, h("p", { class: "dim" }, "reading the tape…"));
      read().then(
        (content) => replaceContent(box, content),
        (error) => replaceContent(box, dimText(`It cannot be shown: ${error.message}`)),
      );
      return box;
    });
  }
}

function dimText(text) {
  return h("p", { class: "dim" }, text);
}

function toolView(tool) {
  const known = tool?.function ?? tool;
  return fold(String(known?.name ?? tool?.type ?? "tool"), () => valueView(tool));
}

function requestLine({ request, turn, model, status, inputTokens, outputTokens, ms, said, calls }) {
  const tokens = inputTokens === null ? "" : `${inputTokens} in / ${outputTokens} out tokens`;
  const what = calls.length ? `calls ${calls.join(", ")}` : shorten(said, 80);
  const head = `${request}${turn ? ` (turn ${turn})` : ""} ${model}`;
  const facts = [status === 200 ? "" : `status ${status}`, tokens, duration(ms), what];
  return [head, ...facts].filter(Boolean).join(" · ");
}

/** The agent's own lines, behind a switch; they are read when it is turned on. */
function rawView(readRaw) {
  const box = h("div");
  const toggle = h("input", { type: "checkbox", id: "raw-switch" });
  toggle.addEventListener("change", async () => {
    replaceContent(box, toggle.checked ? rawFiles(await readRaw()) : null);
  });
  const label = h("label", { for: "raw-switch" }, "Raw lines of the agent");
  return h("p", {}, toggle, " ", label, box);
}

function rawFiles(found) {
  if (!found?.files?.length) {
    return h("p", { class: "dim" }, found?.why ?? "The raw streams are not here.");
  }
  return found.files.map(({ name, size, cut, text }) => [
    h("h3", {}, `${name}, ${bytes(size)}${cut ? " (its beginning)" : ""}`),
    longText(text),
  ]);
}

/** Labels by people. They are blind: the grader's verdict is not even sent to this page. */
export async function labelPage(source) {
  const sheet = await source.sheet();
  const title = h("h1", {}, "Label");
  if (sheet && !sheet.why)
    return h("div", { class: "labelling" }, title, labelSheet(source, sheet));
  const notice = sheet?.why ?? "There is nothing to label.";
  return h("div", {}, title, h("p", { class: "notice" }, notice));
}

/** Shows one row at a time, from the first without a label. */
function labelSheet(source, sheet) {
  const { rows } = sheet;
  const box = h("div");
  const firstOpen = rows.findIndex((row) => row.label === null); // -1: all have a label
  let current = Math.max(0, firstOpen);
  const show = () => replaceContent(box, labelView(sheet, current, setLabel));

  const setLabel = async (label) => {
    const number = current;
    const answer = await source.setLabel(number, label);
    if (answer.error) {
      replaceContent(box, h("p", { class: "notice" }, answer.error));
      return;
    }
    rows[number].label = label;
    move(1);
  };

  const move = (step) => {
    current = Math.max(0, Math.min(rows.length - 1, current + step));
    show();
  };

  const labelKeys = Object.entries(LABEL_KEYS).map(([key, label]) => [key, () => setLabel(label)]);
  const actions = { ...Object.fromEntries(labelKeys), j: () => move(1), k: () => move(-1) };
  setKeys(actions, { "p / f / a": "pass, fail, ambiguous", "j / k": "next, previous row" });
  show();
  return box;
}

function labelView({ rows, file }, current, setLabel) {
  const row = rows[current];
  const done = rows.filter(({ label }) => label !== null).length;
  const progress = `${current + 1} of ${rows.length} · ${done} labelled · ${file}`;
  const question = Array.isArray(row.input) ? row.input.join("\n\n") : row.input;
  const steps = row.trajectory?.length ?? 0;
  return [
    h("p", { class: "dim", role: "status" }, progress),
    h("h2", {}, "Asked"),
    longText(question, { class: "text plain" }, 4000),
    row.hint ? h("p", {}, h("b", {}, "Hint: "), row.hint) : null,
    h("h2", {}, "Answered"),
    outputView(row),
    labelButtons(row.label, setLabel),
    steps
      ? h(
          "details",
          { class: "fold" },
          h("summary", {}, `Steps (${steps})`),
          stepList(readSteps(row.trajectory)),
        )
      : null,
  ];
}

function labelButtons(chosen, setLabel) {
  const buttons = Object.entries(LABEL_KEYS).map(([key, label]) => {
    const props = {
      type: "button",
      class: chosen === label ? `chosen ${label}` : label,
      "aria-pressed": String(chosen === label),
      on: { click: () => setLabel(label) },
    };
    return h("button", props, `${label} `, h("kbd", {}, key));
  });
  return h("div", { class: "choices", role: "group", "aria-label": "Your verdict" }, buttons);
}
