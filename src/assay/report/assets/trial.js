// One trial: what was asked, what came out, how it was judged, and every step between.
import { add, h, longText, swap } from "./dom.js";
import { bytes, decimal, duration, mark } from "./format.js";
import { setKeys, walk } from "./keys.js";
import { markdown } from "./markdown.js";
import { replay } from "./replay.js";
import { besideHref, href, trialHref } from "./router.js";
import { telling } from "./prompts.js";
import { stepList, usageWords, valueView } from "./steps.js";
import { timeline } from "./timeline.js";

/** Gives a trial in one shape, from a capture or from a row of repeated trials. */
export function trialOf(row, n) {
  const entry = row.trials ? row.trials.find((trial) => trial.trialNum === Number(n)) : row;
  if (!entry) return null;
  const grade = row.trials ? (entry.pass === undefined ? null : { pass: entry.pass, score: entry.score, reasoning: entry.reasoning }) : entry.score ?? null;
  return {
    ...entry, grade, input: row.input, hint: row.hint, metadata: { ...row.metadata, ...entry.metadata },
    trajectory: entry.trajectory ?? [],
    start: entry.timing?.start ?? 0,
    total: entry.timing?.total ?? entry.duration,
  };
}

export async function trialPage(source, told, { run, prompt: id, trial: n, step }) {
  const [row, about] = await Promise.all([source.row(run, id), source.prompt(id)]);
  const trial = row ? trialOf(row, n) : null;
  if (!trial) return h("p", { class: "notice" }, "There is no such trial here.");
  const linkTo = (number) => trialHref(run, id, n, number + 1);
  const wanted = step ? Number(step) - 1 : 0;
  const steps = stepList(trial.trajectory, { turns: trial.turnUsage, until: wanted, linkTo });
  const go = (number) => { location.hash = linkTo(number); };
  const page = h("div", { class: "trial" },
    h("h1", {}, id),
    h("p", { class: "dim" }, `${run}, trial ${n} · `, h("a", { href: href("prompt", id) }, "all trials of this prompt")),
    resultView(trial),
    neighbours(told, about, run, id, n),
    trial.metadata?.evidence?.log ? gameView(source, run, id, n, trial) : null,
    h("h2", {}, "Asked"), inputView(trial),
    h("h2", {}, "Answered"), trial.output ? markdown(trial.output) : h("p", { class: "dim" }, "nothing"),
    h("h2", {}, `Steps (${trial.trajectory.length})`),
    h("div", { class: "timeline" }, timeline(trial.trajectory, trial.total, go)),
    steps,
    moreView(trial), rawView(source, run, id, n, trial));
  const all = () => [...page.querySelectorAll(".step")];
  setKeys(walk(all, { start: wanted - (step ? 0 : 1), enter: (element) => element.querySelector("summary")?.click() }),
    { "j / k": "next, previous step", Enter: "unfold the step" });
  if (step) queueMicrotask(() => point(page, wanted));
  return page;
}

function point(page, number) {
  const element = page.querySelector(`#step-${Number(number)}`);
  if (!element) return;
  element.classList.add("current");
  requestAnimationFrame(() => element.scrollIntoView({ block: "center" }));
}

export function resultView(trial) {
  const { sign, word, kind } = mark(trial.grade ? trial.grade.pass : null);
  const failure = trial.failure;
  const facts = [duration(trial.total), usageWords(trial.usage).replace(/^ · /, ""), agentWords(trial.agent)].filter(Boolean).join(" · ");
  return h("div", { class: `result ${kind}` },
    h("p", {}, h("b", {}, `${sign} ${word}`), trial.grade?.score === undefined ? null : `, score ${decimal(trial.grade.score)}`, h("span", { class: "dim" }, ` · ${facts}`)),
    failure ? h("p", {}, h("b", {}, String(failure.cause)), ": ", String(failure.message)) : null,
    trial.grade?.reasoning ? longText(trial.grade.reasoning, { class: "text plain" }, 4000) : null,
    gradeList(trial));
}

function agentWords(agent) {
  return agent ? [agent.adapter, agent.version, agent.model].filter(Boolean).join(" ") : "";
}

function gradeList(trial) {
  const grades = Object.entries(trial.grades ?? {});
  const broken = Object.entries(trial.graderFailures ?? {});
  if (grades.length < 2 && !broken.length) return null;
  return h("ul", {},
    grades.map(([name, grade]) => h("li", {}, `${mark(grade.pass).sign} ${name} ${decimal(grade.score)} `, h("span", { class: "dim" }, String(grade.reasoning ?? "").slice(0, 300)))),
    broken.map(([name, why]) => h("li", { class: "sick" }, `${name} broke: ${String(why).slice(0, 300)}`)));
}

function inputView(trial) {
  const turns = Array.isArray(trial.input) ? trial.input : [trial.input];
  return [turns.map((text, n) => [turns.length > 1 ? h("p", { class: "dim" }, `Turn ${n + 1}`) : null, longText(text, { class: "text plain" }, 1000)]),
    trial.hint ? h("p", {}, h("b", {}, "Hint: "), String(trial.hint).slice(0, 2000)) : null];
}

function neighbours(told, about, run, id, n) {
  if (!about) return null;
  const all = about.cells.flatMap((cell, i) => (cell ? cell.trials.map((trial) => ({ ...trial, run: told.runs[i].label })) : []));
  const mine = all.find((trial) => trial.run === run && String(trial.n) === String(n));
  const others = all.filter((trial) => trial !== mine);
  if (!mine || !others.length) return null;
  const best = telling([mine, ...others.filter((trial) => trial.passed !== mine.passed), ...others]);
  const other = best?.find((trial) => trial !== mine) ?? others[0];
  return h("p", {}, h("a", { class: "button", href: besideHref(id, run, n, other.run, other.n) }, "Side by side"), " ",
    others.slice(0, 20).map((trial) => [" ", h("a", { href: trialHref(trial.run, id, trial.n), class: `mark ${mark(trial.passed).kind}` }, `${mark(trial.passed).sign} ${trial.run} ${trial.n}`)]));
}

function gameView(source, run, id, n, trial) {
  const box = h("section", { class: "game", "aria-label": "Replay of the game" }, h("p", { class: "dim" }, "reading the game…"));
  source.game(run, id, n).then(async (lines) => {
    swap(box, lines ? await replay(lines, trial) : h("p", { class: "dim" }, "The log of this game is not here."));
  }).catch((error) => swap(box, h("p", { class: "notice" }, `The log of this game cannot be shown: ${error.message}`)));
  return [h("h2", {}, "Game"), box];
}

function moreView(trial) {
  const shown = { metadata: trial.metadata, setup: trial.setup, events: trial.events, outcome: trial.outcome, errors: trial.errors, retried: trial.retried, sessionId: trial.sessionId };
  const parts = Object.entries(shown).filter(([, value]) => value !== undefined && value !== null);
  const details = h("details", { class: "fold" }, h("summary", {}, "Everything else in the row"));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) add(details, parts.map(([name, value]) => [h("h3", {}, name), valueView(value)]));
  });
  return [h("h2", {}, "More"), trial.stderr ? h("details", { class: "fold" }, h("summary", {}, "Standard error (its end)"), longText(trial.stderr)) : null, details];
}

/** The agent's own lines, behind a switch. */
function rawView(source, run, id, n, trial) {
  if (!trial.raw) return null;
  const box = h("div");
  const toggle = h("input", { type: "checkbox", id: "raw-switch" });
  toggle.addEventListener("change", async () => {
    if (!toggle.checked) { swap(box); return; }
    const found = await source.raw(run, id, n);
    if (!found?.files?.length) { swap(box, h("p", { class: "dim" }, found?.why ?? "The raw streams are not here.")); return; }
    swap(box, found.files.map((file) => [h("h3", {}, `${file.name}, ${bytes(file.size)}${file.cut ? " (its beginning)" : ""}`), longText(file.text)]));
  });
  return h("p", {}, toggle, " ", h("label", { for: "raw-switch" }, "Raw lines of the agent"), box);
}
