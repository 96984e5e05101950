// A trial in three ways: on its own, side by side with another, and blind, to be labelled.
import { bytes, decimal, duration, h, longText, replaceContent, resultMark } from "./dom.js";
import { markdown } from "./markdown.js";
import { href, listKeys, setKeys, sideBySideHref, trialHref } from "./navigation.js";
import { contrastingPair, trialsOf } from "./prompts.js";
import { replay } from "./replay.js";
import { fold, readSteps, stepList, timeline, usageText, valueView } from "./steps.js";

const MAX_NEIGHBOURS = 20;
const MAX_REASON_CHARACTERS = 300;
const STEPS_AFTER_DIFFERENCE = 20;
const LABEL_KEYS = { p: "pass", f: "fail", a: "ambiguous" };

/** One trial: what was asked, what came out, how it was judged, and every step between. */
export async function trialPage(source, overview, { run, prompt: id, trial: n, step }) {
  const [row, prompt] = await Promise.all([source.row(run, id), source.prompt(id)]);
  const trial = row ? readTrial(row, n) : null;
  if (!trial) return h("p", { class: "notice" }, "There is no such trial here.");
  const linkTo = (number) => trialHref(run, id, n, number + 1);
  const wanted = step ? Number(step) - 1 : 0;
  const allTrials = h("a", { href: href("prompt", id) }, "all trials of this prompt");
  const page = h(
    "div",
    { class: "trial" },
    h("h1", {}, id),
    h("p", { class: "dim" }, `${run}, trial ${n} · `, allTrials),
    problemsView(trial, prompt ? trialsOf(overview, prompt) : [], run, n),
    resultView(trial),
    prompt ? neighbourLinks(trialsOf(overview, prompt), run, id, n) : null,
    trial.metadata.evidence?.log ? gameView(source.game(run, id, n), trial) : null,
    h("h2", {}, "Asked"),
    inputView(trial),
    h("h2", {}, "Answered"),
    outputView(trial),
    stepsView(trial, wanted, linkTo),
    moreView(trial),
    trial.raw ? rawView(() => source.raw(run, id, n)) : null,
  );
  setTrialKeys(page, step ? wanted : -1);
  if (step) highlightStep(page, wanted);
  return page;
}

/** Gives a trial in one shape, from a capture or from a row of repeated trials. */
function readTrial(row, n) {
  const isEntry = (trial) => trial?.trialNum === Number(n);
  const entry = Array.isArray(row.trials) ? row.trials.find(isEntry) : row;
  if (!entry) return null;
  return {
    ...entry,
    grade: row.trials ? trialGrade(entry) : (entry.score ?? null),
    input: row.input,
    hint: row.hint,
    metadata: { ...row.metadata, ...entry.metadata },
    trajectory: readSteps(entry.trajectory),
    turnUsage: Array.isArray(entry.turnUsage) ? entry.turnUsage : [],
    total: entry.timing?.total ?? entry.duration,
  };
}

function trialGrade({ pass, score, reasoning }) {
  return pass === undefined ? null : { pass, score, reasoning };
}

function setTrialKeys(page, start) {
  const steps = () => [...page.querySelectorAll(".step")];
  const unfold = (step) => step.querySelector("summary")?.click();
  setKeys(listKeys(steps, { start, enter: unfold }), {
    "j / k": "next, previous step",
    Enter: "unfold the step",
  });
}

function highlightStep(page, number) {
  const step = page.querySelector(`#step-${Number(number)}`);
  if (!step) return;
  step.classList.add("current");
  // The page is put into the document before the next frame; only then can it scroll.
  requestAnimationFrame(() => step.scrollIntoView({ block: "center" }));
}

/** What to know before reading the result: a set-up that failed, and the warnings of the row. */
function problemsView({ warnings }, trials, run, n) {
  const listed = trials.find((trial) => trial.run === run && String(trial.n) === String(n));
  const texts = [...(listed?.problems ?? []), ...(Array.isArray(warnings) ? warnings : [])];
  if (!texts.length) return null;
  const items = texts.map((text) => h("li", { class: "unhealthy" }, String(text).slice(0, 500)));
  return h("ul", { class: "health", "aria-label": "Problems of this trial" }, items);
}

function resultView(trial) {
  const { grade, failure, agent } = trial;
  const { sign, word, kind } = resultMark(grade ? grade.pass : null);
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
    failure ? h("p", {}, h("b", {}, String(failure.cause)), ": ", String(failure.message)) : null,
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
    const reason = String(grade?.reasoning ?? "").slice(0, MAX_REASON_CHARACTERS);
    const result = `${resultMark(grade?.pass).sign} ${name} ${decimal(grade?.score)} `;
    return h("li", {}, result, h("span", { class: "dim" }, reason));
  });
  const failureItems = failures.map(([name, why]) => {
    const reason = String(why).slice(0, MAX_REASON_CHARACTERS);
    return h("li", { class: "unhealthy" }, `${name} broke: ${reason}`);
  });
  return h("ul", {}, gradeItems, failureItems);
}

function inputView(trial) {
  const turns = Array.isArray(trial.input) ? trial.input : [trial.input];
  return [
    turns.map((text, n) => [
      turns.length > 1 ? h("p", { class: "dim" }, `Turn ${n + 1}`) : null,
      longText(text, { class: "text plain" }, 1000),
    ]),
    trial.hint ? h("p", {}, h("b", {}, "Hint: "), String(trial.hint).slice(0, 2000)) : null,
  ];
}

function outputView({ output }) {
  return output ? markdown(output) : h("p", { class: "dim" }, "nothing");
}

/** Links to the other trials of the prompt, and side by side with the most different one. */
function neighbourLinks(trials, run, id, n) {
  const current = trials.find((trial) => trial.run === run && String(trial.n) === String(n));
  const others = trials.filter((trial) => trial !== current);
  if (!current || !others.length) return null;
  const different = others.filter((trial) => trial.passed !== current.passed);
  const pair = contrastingPair([current, ...different, ...others]);
  const other = pair?.find((trial) => trial !== current) ?? others[0];
  const links = others.slice(0, MAX_NEIGHBOURS).map((trial) => {
    const { sign, kind } = resultMark(trial.passed);
    const props = { href: trialHref(trial.run, id, trial.n), class: `mark ${kind}` };
    return [" ", h("a", props, `${sign} ${trial.run} ${trial.n}`)];
  });
  const target = sideBySideHref(id, run, n, other.run, other.n);
  return h("p", {}, h("a", { class: "button", href: target }, "Side by side"), " ", links);
}

function stepsView({ trajectory, total, turnUsage }, until, linkTo) {
  const goToStep = (number) => {
    location.hash = linkTo(number);
  };
  return [
    h("h2", {}, `Steps (${trajectory.length})`),
    h("div", { class: "timeline" }, timeline(trajectory, total, goToStep)),
    stepList(trajectory, { turns: turnUsage, until, linkTo }),
  ];
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

/** Two trials of one prompt side by side, with the first step at which they differ. */
export async function sideBySidePage(source, overview, [, id, runA, a, runB, b]) {
  const [rowA, rowB, prompt] = await Promise.all([
    source.row(runA, id),
    source.row(runB, id),
    source.prompt(id),
  ]);
  const left = rowA && readTrial(rowA, a);
  const right = rowB && readTrial(rowB, b);
  if (!left || !right) return h("p", { class: "notice" }, "One of these trials is not here.");
  const first = firstDifference(left.trajectory, right.trajectory);
  const trials = trialsOf(overview, prompt);
  const chooseLeft = (run, n) => sideBySideHref(id, run, n, runB, b);
  const chooseRight = (run, n) => sideBySideHref(id, runA, a, run, n);
  const leftChoice = trialChoice("Left trial", trials, runA, a, chooseLeft);
  const rightChoice = trialChoice("Right trial", trials, runB, b, chooseRight);
  const halves = [
    halfView("left", leftChoice, left, { id, run: runA, n: a, first }),
    halfView("right", rightChoice, right, { id, run: runB, n: b, first }),
  ];
  const page = h("div", {}, h("h1", {}, id));
  const goThere = () => page.querySelector(".step.parts")?.scrollIntoView({ block: "center" });
  page.append(differenceLine(first, goThere), h("div", { class: "halves" }, halves));
  markDifference(page, first);
  setKeys({ n: goThere }, { n: "first step where they part" });
  return page;
}

/** Number of the first step that is not the same in both, or -1. */
function firstDifference(left, right) {
  const shorter = Math.min(left.length, right.length);
  for (let i = 0; i < shorter; i += 1) {
    if (comparableStep(left[i]) !== comparableStep(right[i])) return i;
  }
  return left.length === right.length ? -1 : shorter;
}

/** What must be equal in two steps; times and ids do not count. */
function comparableStep({ type, name, input, content, entries }) {
  const text = typeof content === "string" ? content.trim() : content;
  return JSON.stringify([type, name, input, text, entries]);
}

function trialChoice(label, trials, run, n, target) {
  const change = (event) => {
    location.hash = target(...JSON.parse(event.target.value));
  };
  const options = trials.map((trial) => {
    const selected = trial.run === run && String(trial.n) === n;
    const value = JSON.stringify([trial.run, trial.n]);
    return h("option", { value, selected }, `${trial.run}, trial ${trial.n}`);
  });
  return h("select", { "aria-label": label, on: { change } }, options);
}

function halfView(side, choice, trial, { id, run, n, first }) {
  const linkTo = (number) => trialHref(run, id, n, number + 1);
  return h(
    "section",
    { class: `half ${side}`, "aria-label": `${run}, trial ${n}` },
    choice,
    " ",
    h("a", { href: trialHref(run, id, n) }, "open"),
    resultView(trial),
    stepList(trial.trajectory, { until: first + STEPS_AFTER_DIFFERENCE, linkTo }),
    h("h3", {}, "Answered"),
    outputView(trial),
  );
}

function differenceLine(first, goThere) {
  const sentence = first < 0 ? "Both took the same steps." : `They part at step ${first + 1}.`;
  const button = h("button", { type: "button", on: { click: goThere } }, "Go there (n)");
  return h("p", { class: "parting", role: "status" }, sentence, " ", first < 0 ? null : button);
}

function markDifference(page, first) {
  for (const step of page.querySelectorAll(`[id="step-${first}"]`)) step.classList.add("parts");
  // Both halves number their steps alike, but an id may stand in a page only once.
  page.querySelectorAll(".right .step").forEach((step, n) => {
    step.id = `right-${step.id}-${n}`;
  });
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
