// The first page: what it means, whether it can be believed, then the pictures.
import { h } from "./dom.js";
import { count, duration, known, limits, money, percent, signed } from "./format.js";
import { hue, numbers } from "./charts.js";
import { differenceChart, heatMap, intervalChart, passKChart } from "./chart_rates.js";
import { causeChart, latencyChart, paretoChart, toolChart } from "./chart_amounts.js";
import { href } from "./router.js";

export function overviewPage(told) {
  const body = told.groups.map((group) => groupView(told, group));
  if (!told.groups.length) body.push(h("p", { class: "verdict unclear" }, "No rows yet."));
  return h("div", {},
    h("h1", {}, told.title),
    notices(told),
    body,
    h("p", { class: "dim" }, told.made));
}

function notices(told) {
  const bad = told.runs.filter((run) => run.nBad);
  return bad.length ? h("p", { class: "notice" }, bad.map((run) => `${run.label}: ${count(run.nBad)} lines could not be read and are left out. `)) : null;
}

function groupView(told, group) {
  const { sections, charts } = group;
  const names = sections.meta.runs;
  const runs = names.map((name, n) => runNumbers(sections, charts, name, n));
  const open = (id) => { location.hash = href("prompt", id); };
  const pictures = [
    intervalChart("Pass rate", "With 95 % intervals, clustered by prompt.", runs.map((run) => ({ name: run.name, value: run.quality, interval: run.interval, hue: run.hue }))),
    intervalChart("Score", "Mean over prompts, with 95 % intervals.", runs.map((run) => ({ name: run.name, value: run.score, interval: run.scoreInterval, hue: run.hue })), (value) => value.toFixed(2)),
    ...charts.differences.map((pair) => differenceChart(pair, open)),
    passKChart(runs),
    paretoChart(runs),
    latencyChart(charts.latency, names),
    causeChart(charts.causes, names),
    heatMap(names, sections.categories),
    toolChart(charts.tools, names),
  ];
  return h("section", {},
    sections.verdict.map(verdict),
    healthView(sections),
    sections.notes.length ? h("ul", { class: "notes" }, sections.notes.map((note) => h("li", {}, note))) : null,
    h("h2", {}, names.length > 1 ? "Runs" : "The run"),
    runTable(told, runs, sections),
    sections.pairs.length ? pairTable(sections) : null,
    h("h2", {}, "Pictures"),
    h("div", { class: "pictures" }, pictures.filter(Boolean)),
    flips(sections),
    h("p", { class: "dim" }, `Margin ${sections.meta.margin}, 95 % intervals, seed ${sections.meta.seed}.`));
}

function verdict(said) {
  const code = ["better", "worse", "same"].includes(said.code) ? said.code : "unclear";
  return h("p", { class: `verdict ${code}` }, said.words ?? "Not judged.");
}

function healthView(sections) {
  const lines = Object.entries(sections.health).map(([label, health]) => {
    const parts = [`${count(health.run)} of ${count(health.planned)} trials run, ${count(health.graded)} graded`];
    for (const [cause, n] of Object.entries(health.notMeasured)) parts.push(`${count(n)} not measured (${cause})`);
    for (const [cause, n] of Object.entries(health.agentFailures)) parts.push(`${count(n)} ${cause}`);
    if (health.graderFailures) parts.push(`${count(health.graderFailures)} grader failures`);
    if (health.permissionDenials) parts.push(`${count(health.permissionDenials)} permission denials`);
    const problems = health.healthy ? "" : ` Unhealthy: ${health.problems.join("; ")}.`;
    return h("li", { class: health.healthy ? "" : "sick" }, h("b", {}, label), `: ${parts.join(", ")}.${problems}`);
  });
  return h("ul", { class: "health", "aria-label": "Health of the measurement" }, lines);
}

/** The same few numbers of a run, whether captures or repeated trials. */
function runNumbers(sections, charts, name, n) {
  const quality = sections.quality?.[name] ?? {};
  const perK = sections.capability?.[name]?.perK ?? [];
  const once = perK.find((row) => row.k === 1);
  const ends = (interval) => (interval ? [interval.low, interval.high] : null);
  return {
    name, hue: n, perK,
    quality: once ? once.passAtK : quality.passRate,
    interval: once ? ends(once.passAtKInterval) : quality.confidenceIntervals?.passRate,
    score: quality.avgScore,
    scoreInterval: quality.confidenceIntervals?.avgScore,
    cost: sections.performance[name].costUsd?.mean,
    totalCost: sections.performance[name].costUsd?.total,
    tokens: sections.performance[name].tokens?.mean,
    latency: sections.performance[name].latency,
    steps: charts.steps[name],
  };
}

function runTable(told, runs, sections) {
  const byLabel = new Map(told.runs.map((run) => [run.label, run]));
  return h("div", { class: "cards" }, runs.map((run) => {
    const about = byLabel.get(run.name) ?? {};
    const facts = [
      ["score", known(run.score) ? `${run.score.toFixed(2)} (${limits(run.scoreInterval, (value) => value.toFixed(2))})` : null],
      ["time", run.latency ? `median ${duration(run.latency.p50)}, p90 ${duration(run.latency.p90)}` : null],
      ["cost", known(run.totalCost) ? `${money(run.totalCost)}, ${money(run.cost)} a trial` : null],
      ["tokens", known(run.tokens) ? `${count(Math.round(run.tokens))} a trial` : null],
      ["steps", known(run.steps) ? `${run.steps.toFixed(1)} a trial` : null],
      ["agent", (sections.meta.agents[run.name] ?? []).join(", ") || null],
      ["file", about.file],
    ].filter((fact) => fact[1]);
    return h("article", { class: `card ${hue(run.hue)}` },
      h("h3", {}, h("i", { class: `swatch ${hue(run.hue)}` }), run.name),
      h("p", { class: "big" }, percent(run.quality, 1), h("span", { class: "dim" }, run.interval ? ` ${limits(run.interval, (v) => percent(v, 0))}` : " not graded")),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }));
}

function pairTable(sections) {
  const head = ["pair", "pass rate", "95 % interval", "p (Holm)", "up / equal / down", "verdict"];
  return numbers(head, sections.pairs.map((pair) => {
    const rate = pair.passRate;
    return [`${pair.runB} against ${pair.runA}`, signed(rate.difference, 3),
      rate.interval ? limits([rate.interval.low, rate.interval.high], (value) => signed(value, 3)) : null,
      known(pair.adjustedP) ? pair.adjustedP.toPrecision(2) : null,
      `${rate.wins} / ${rate.ties} / ${rate.losses}`, pair.verdict?.code];
  }));
}

function flips(sections) {
  const lists = sections.pairs.flatMap((pair) => [["worse", pair.regressed], ["better", pair.improved]]
    .filter(([, ids]) => ids.length)
    .map(([word, ids]) => h("details", {},
      h("summary", {}, `${pair.runB} did ${word} than ${pair.runA} on ${count(ids.length)} prompts`),
      h("ul", { class: "ids" }, ids.slice(0, 200).map((id) => h("li", {}, h("a", { href: href("prompt", id) }, id)))))));
  return lists.length ? [h("h2", {}, "Prompts that changed"), lists] : null;
}
