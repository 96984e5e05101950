// The first page: the verdict, the health of the measurement, the runs and their charts.
// For a folder, the list of its runs.
import {
  causeChart,
  categoryChart,
  costChart,
  differenceChart,
  hueClass,
  intervalChart,
  latencyChart,
  numberTable,
  passKChart,
  toolChart,
} from "./charts.js";
import { chosenRuns } from "./data.js";
import {
  bytes,
  count,
  decimal,
  duration,
  h,
  intervalText,
  isKnown,
  money,
  percent,
  signed,
} from "./dom.js";
import { href, listKeys, setKeys } from "./navigation.js";

const MAX_LISTED_PROMPTS = 200;

export function overviewPage(overview) {
  const groups = overview.groups.map((group) => groupView(overview, group));
  return h(
    "div",
    {},
    h("h1", {}, overview.title),
    unreadableNotice(overview),
    groups.length ? groups : h("p", { class: "verdict unclear" }, "No rows yet."),
    h("p", { class: "dim" }, overview.made),
  );
}

function unreadableNotice(overview) {
  const sentences = overview.runs
    .filter((run) => run.nBad)
    .map((run) => `${run.label}: ${count(run.nBad)} lines could not be read and are left out. `);
  return sentences.length ? h("p", { class: "notice" }, sentences) : null;
}

/** One group of runs that can be compared: captures, or repeated trials. */
function groupView(overview, { sections, charts }) {
  const { meta, notes, pairs } = sections;
  const runs = meta.runs.map((name, n) => runNumbers(sections, charts, name, n));
  return h(
    "section",
    {},
    proofView(sections.proof),
    sections.verdict.map(verdictView),
    healthView(sections.health),
    notes.length
      ? h(
          "ul",
          { class: "notes" },
          notes.map((note) => h("li", {}, note)),
        )
      : null,
    h("h2", {}, runs.length > 1 ? "Runs" : "The run"),
    h(
      "div",
      { class: "cards" },
      runs.map((run) => runCard(overview, run, meta.agents[run.name])),
    ),
    pairs.length ? pairTable(pairs) : null,
    h("h2", {}, "Pictures"),
    h("div", { class: "pictures" }, allCharts(runs, sections, charts)),
    changedPrompts(pairs),
    h("p", { class: "dim" }, `Margin ${meta.margin}, 95 % intervals, seed ${meta.seed}.`),
  );
}

function allCharts(runs, sections, charts) {
  const names = sections.meta.runs;
  const points = (value, interval) =>
    runs.map((run) => ({
      name: run.name,
      hue: run.hue,
      value: run[value],
      interval: run[interval],
    }));
  return [
    intervalChart(
      "Pass rate",
      "With 95 % intervals, clustered by prompt.",
      points("quality", "interval"),
    ),
    intervalChart(
      "Score",
      "Mean over prompts, with 95 % intervals.",
      points("score", "scoreInterval"),
      (value) => value.toFixed(2),
    ),
    charts.differences.map((pair) => differenceChart(pair, openPrompt)),
    passKChart(runs),
    costChart(runs),
    latencyChart(charts.latency, names),
    causeChart(charts.causes, names),
    categoryChart(names, sections.categories),
    toolChart(charts.tools, names),
  ];
}

function openPrompt(id) {
  location.hash = href("prompt", id);
}

/** How the arms of an experiment differ: above the verdict, which is valid only for that. */
function proofView(proof) {
  return proof ? proof.words.map((words) => h("p", { class: "proof" }, words)) : null;
}

function verdictView({ code, words, healthy }) {
  const clear = healthy !== false && ["better", "worse", "same"].includes(code);
  const kind = clear ? code : "unclear";
  return h("p", { class: `verdict ${kind}` }, words ?? "Not judged.");
}

function healthView(healthByRun) {
  const items = Object.entries(healthByRun).map(([run, health]) => {
    const problems = health.healthy ? "" : ` Unhealthy: ${health.problems.join("; ")}.`;
    const props = { class: health.healthy ? "" : "unhealthy" };
    return h("li", props, h("b", {}, run), `: ${healthParts(health).join(", ")}.${problems}`);
  });
  return h("ul", { class: "health", "aria-label": "Health of the measurement" }, items);
}

function healthParts(health) {
  const { run, planned, graded, graderFailures, permissionDenials } = health;
  const parts = [`${count(run)} of ${count(planned)} trials run, ${count(graded)} graded`];
  for (const [cause, n] of Object.entries(health.notMeasured)) {
    parts.push(`${count(n)} not measured (${cause})`);
  }
  for (const [cause, n] of Object.entries(health.agentFailures)) parts.push(`${count(n)} ${cause}`);
  if (graderFailures) parts.push(`${count(graderFailures)} grader failures`);
  if (permissionDenials) parts.push(`${count(permissionDenials)} permission denials`);
  return parts;
}

/** The same few numbers of a run, whether it holds captures or repeated trials. */
function runNumbers(sections, charts, name, n) {
  const quality = sections.quality?.[name] ?? {};
  const performance = sections.performance[name];
  const perK = sections.capability?.[name]?.perK ?? [];
  return {
    name,
    hue: n,
    perK,
    quality: quality.passRate,
    interval: quality.confidenceIntervals?.passRate,
    score: quality.avgScore,
    scoreInterval: quality.confidenceIntervals?.avgScore,
    cost: performance.costUsd?.mean,
    totalCost: performance.costUsd?.total,
    tokens: performance.tokens?.mean,
    latency: performance.latency,
    steps: charts.steps[name],
    measures: sections.measures?.[name] ?? {},
  };
}

function runCard(overview, run, agents) {
  const file = overview.runs.find(({ label }) => label === run.name)?.file;
  const facts = [...runFacts(run), ["agent", agents?.join(", ")], ["file", file]];
  const interval = run.interval ? ` ${intervalText(run.interval)}` : " not graded";
  return h(
    "article",
    { class: `card ${hueClass(run.hue)}` },
    h("h3", {}, h("i", { class: `swatch ${hueClass(run.hue)}` }), run.name),
    h("p", { class: "big" }, percent(run.quality, 1), h("span", { class: "dim" }, interval)),
    h(
      "dl",
      {},
      facts
        .filter(([, text]) => text)
        .map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
    ),
  );
}

function runFacts({ score, scoreInterval, latency, cost, totalCost, tokens, steps, measures }) {
  const facts = [];
  if (isKnown(score))
    facts.push(["score", `${decimal(score)} (${intervalText(scoreInterval, decimal)})`]);
  if (latency) {
    facts.push(["time", `median ${duration(latency.p50)}, p90 ${duration(latency.p90)}`]);
  }
  if (isKnown(totalCost)) facts.push(["cost", `${money(totalCost)}, ${money(cost)} a trial`]);
  if (isKnown(tokens)) facts.push(["tokens", `${count(Math.round(tokens))} a trial`]);
  if (isKnown(steps)) facts.push(["steps", `${steps.toFixed(1)} a trial`]);
  for (const [name, value] of Object.entries(measures)) {
    facts.push([name, `${value.toFixed(1)} a trial`]);
  }
  return facts;
}

function pairTable(pairs) {
  const head = ["pair", "pass rate", "95 % interval", "p (Holm)", "up / equal / down", "verdict"];
  const rows = pairs.map(({ runA, runB, passRate, adjustedP, verdict }) => {
    const { difference, interval, wins, ties, losses } = passRate;
    return [
      `${runB} against ${runA}`,
      signed(difference, 3),
      interval ? intervalText([interval.low, interval.high], (value) => signed(value, 3)) : null,
      isKnown(adjustedP) ? adjustedP.toPrecision(2) : null,
      `${wins} / ${ties} / ${losses}`,
      verdict?.code,
    ];
  });
  return numberTable(head, rows);
}

function changedPrompts(pairs) {
  const lists = pairs.flatMap((pair) => [
    promptList(pair, "worse", pair.regressed),
    promptList(pair, "better", pair.improved),
  ]);
  return lists.some(Boolean) ? [h("h2", {}, "Prompts that changed"), lists] : null;
}

function promptList({ runA, runB }, word, ids) {
  if (!ids.length) return null;
  const links = ids
    .slice(0, MAX_LISTED_PROMPTS)
    .map((id) => h("li", {}, h("a", { href: href("prompt", id) }, id)));
  const title = `${runB} did ${word} than ${runA} on ${count(ids.length)} prompts`;
  return h("details", {}, h("summary", {}, title), h("ul", { class: "ids" }, links));
}

/** The runs of a folder: open one, or choose several to compare. */
export function runsPage(overview) {
  const chosen = new Set(chosenRuns().split(",").filter(Boolean));
  const openChosen = () => {
    const params = new URLSearchParams();
    if (chosen.size) params.set("runs", [...chosen].join(","));
    location.assign(`?${params}#/`);
  };
  const rows = overview.library.map((run) => runRow(run, chosen));
  setKeys(
    listKeys(() => [...document.querySelectorAll("tbody tr")], {
      enter: (row) => location.assign(row.querySelector("a").href),
    }),
  );
  const hiddenTitle = h("span", { class: "hidden" }, "chosen");
  const head = [hiddenTitle, "run", "kind", "size", "trials", "changed"].map((title) =>
    h("th", { scope: "col" }, title),
  );
  const table = h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  return h(
    "div",
    {},
    h("h1", {}, "Runs"),
    rows.length ? null : h("p", { class: "notice" }, "No captures or trials were found here."),
    h("div", { class: "scroll", tabindex: "0" }, table),
    rows.length
      ? h("button", { type: "button", on: { click: openChosen } }, "Open the chosen runs")
      : null,
  );
}

function runRow(run, chosen) {
  const choose = (event) => {
    if (event.target.checked) chosen.add(run.key);
    else chosen.delete(run.key);
  };
  const box = h("input", {
    type: "checkbox",
    "aria-label": `Choose ${run.name}`,
    checked: chosen.has(run.key),
    on: { change: choose },
  });
  const changed = new Date(run.changed * 1000).toISOString().replace("T", " ").slice(0, 16);
  return h(
    "tr",
    {},
    h("td", {}, box),
    h("td", {}, h("a", { href: `?runs=${encodeURIComponent(run.key)}#/` }, run.name)),
    h("td", {}, run.kind),
    h("td", { class: "number" }, bytes(run.size)),
    h("td", { class: "number" }, run.trials === null ? "" : count(run.trials)),
    h("td", {}, changed),
  );
}
