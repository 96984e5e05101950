// The first page: the verdict, the health of the measurement, the runs and their charts.
import {
  causeChart,
  categoryChart,
  costChart,
  differenceChart,
  effectsChart,
  glanceChart,
  hueClass,
  intervalChart,
  latencyChart,
  numberTable,
  passKChart,
  toolChart,
} from "./charts.js";
import { changesView } from "./changes.js";
import {
  DASH,
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
import { gamesView } from "./games.js";
import { labelsView } from "./labels.js";
import { href } from "./navigation.js";
import { doubtsView } from "./why.js";
import { causeWords, counted, verdictWords } from "./words.js";

/** Of more arms, the table beside the picture has a row each. */
const MOST_COLUMNS = 2;
/** So many verdicts leave room for the picture below them. */
const MOST_ABOVE = 3;

export function overviewPage(source, overview) {
  const groups = overview.groups.map((group) => groupView(source, overview, group));
  return h(
    "div",
    {},
    h("h1", {}, overview.title),
    unreadableNotice(overview),
    groups.length ? groups : h("p", { class: "verdict unclear" }, "No rows yet."),
    labelsView(overview),
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
function groupView(source, overview, { kind, sections, charts }) {
  const { meta, pairs, doubts } = sections;
  const notes = sections.notes.filter((note) => !doubts?.sentences.includes(note));
  const runs = meta.runs.map((name, n) => runNumbers(sections, charts, name, n));
  return h(
    "section",
    { "data-key": kind },
    doubtsView(doubts),
    sections.judge ? sections.judge.verdict.map(judgeView) : null,
    verdictsAround(sections, firstScreen(sections, runs, runNumber(overview))),
    changesView(source, overview, pairs),
    notes.length
      ? h(
          "ul",
          { class: "notes", "data-key": "notes" },
          notes.map((note) => h("li", {}, note)),
        )
      : null,
    h("h2", {}, runs.length > 1 ? "Runs" : "The run"),
    h(
      "div",
      { class: "cards", "data-key": "cards" },
      runs.map((run) => runCard(overview, run, meta.agents[run.name])),
    ),
    pairs.length ? pairTable(pairs) : null,
    pairs.length ? headToHeadView(meta, sections.headToHead) : null,
    sections.judge ? reasonsView(sections.judge) : null,
    gamesView(source, overview, sections),
    h("h2", {}, "Pictures"),
    h(
      "div",
      { class: "pictures", "data-key": "pictures" },
      allCharts(runs, sections, charts, runNumber(overview)),
    ),
    h(
      "p",
      { class: "dim" },
      `Margin ${meta.margin}, 95 % intervals, seed ${meta.seed}. ${meta.intervals} `,
      `Generated ${meta.generatedAt}.`,
    ),
  );
}

/** The verdicts against the first run, the picture, and what is not read first. */
function verdictsAround({ meta, effects, verdict, together }, picture) {
  if (effects) {
    const words = h("p", { class: "verdict same" }, h("b", {}, effects.words));
    return [words, picture, effects.more.map((text) => h("p", {}, text))];
  }
  const isFirst = ({ runA }) => runA === meta.runs[0];
  const against = verdict.filter(isFirst).map(verdictView);
  const others = verdict.filter((one) => !isFirst(one)).map(verdictView);
  const folded = others.length
    ? h(
        "details",
        { "data-key": "other-verdicts" },
        h("summary", {}, `Verdicts on other pairs of runs (${count(others.length)})`),
        others,
      )
    : null;
  const isLong = against.length > MOST_ABOVE;
  const table = (together?.lines ?? []).map((text) => h("p", {}, text));
  return isLong ? [table, picture, against, folded] : [table, against, picture, folded];
}

/** What a reader sees beside the verdict: both rates, the difference, what it takes, and health. */
function firstScreen(sections, runs, numberOf) {
  const { proof, health, effects } = sections;
  const linkTo = (run) => promptsHref({ status: "fail", in_run: numberOf(run) });
  if (!sections.pairs.length) return aloneView(sections);
  const picture = effects
    ? effectsChart(effects.found)
    : glanceChart(
        ratesAtOnce(sections, runs),
        differencesAtOnce(sections),
        linkTo,
        promptsHref({ sort: "difference" }),
      );
  return h(
    "div",
    { class: "first", "data-key": "first" },
    h("div", {}, picture, lookFirst(sections)),
    h(
      "div",
      { class: "beside-picture" },
      amountsTable(sections, runs),
      proofView(proof),
      healthView(health),
    ),
  );
}

/** Of a run that is compared with none: its health, and where its failures are. */
function aloneView({ meta, quality, health }) {
  const nFailed = quality?.[meta.runs[0]]?.failCount;
  const link = h("a", { href: "#/why" }, `why ${counted(nFailed ?? 0, "trial")} failed`);
  const look = nFailed ? h("p", { class: "look" }, "Look first at ", link, ".") : null;
  return h("div", { "data-key": "first" }, healthView(health), look);
}

/** Leads to the prompt that a person should see before any other: the worst, or else the best. */
function lookFirst({ meta, pairs, health, proof }) {
  if (proof?.valid === false) return null; // the sentence says what is to be fixed
  if (Object.values(health).some(({ healthy }) => !healthy)) {
    const isLost = Object.values(health).some(({ graded, planned }) => graded < planned);
    const [target, words] = isLost
      ? [promptsHref({ status: "open" }), "what was not measured"]
      : ["#/why", "why trials failed"];
    return h("p", { class: "look" }, "Look first at ", h("a", { href: target }, words), ".");
  }
  const against = pairs.filter(({ runA }) => runA === meta.runs[0]);
  for (const [list, words] of [
    ["regressed", "got worse"],
    ["improved", "got better"],
  ]) {
    const pair = against.find((one) => one[list].length);
    if (!pair) continue;
    const link = h("a", { href: href("prompt", pair[list][0]) }, pair[list][0]);
    return h("p", { class: "look" }, "Look first at ", link, `, which ${words} with ${pair.runB}.`);
  }
  return null;
}

/** The rates as the sentence has them: of two runs those over the prompts that both have. */
function ratesAtOnce({ pairs }, runs) {
  if (pairs.length !== 1) return runs;
  const { meanA, meanB } = pairs[0].passRate;
  return runs.map((run, n) => ({ ...run, quality: (n ? meanB : meanA) ?? run.quality }));
}

/** The differences from the first run, each with the interval that its verdict rests on. */
function differencesAtOnce({ meta, pairs, verdict }) {
  return pairs
    .map(({ runA, runB, passRate }, n) => {
      const seen = verdict[n].look ?? {
        ...passRate,
        interval: verdict[n].interval ?? passRate.interval,
      };
      const sure = CERTAIN[verdictKind(verdict[n])] ?? "even";
      return { runA, name: runB, value: seen.difference, interval: seen.interval, sure };
    })
    .filter(({ runA, value, interval }) => runA === meta.runs[0] && isKnown(value) && interval);
}

/** What a prompt costs and takes in each run, and in how many trials the treatment was used. */
function amountsTable({ pairs, proof }, runs) {
  if (!pairs.length) return null;
  const uses = proof?.uses ?? [];
  const names = [...new Set(uses.map(({ name }) => name))];
  const usedBy = (run, n, name) => usedIn(uses, name, n ? run.name : null);
  const isTall = runs.length > MOST_COLUMNS;
  const measured = [...new Set(runs.flatMap(({ measures }) => Object.keys(measures)))];
  const facts = ["", ...measured.slice(0, MOST_MEASURES), "cost a prompt"];
  facts.push(...(isTall ? ["time", "tokens"] : TIME_AND_TOKENS));
  const columns = runs.map((run, n) => [
    run.name,
    ...measured.slice(0, MOST_MEASURES).map((name) => decimal(run.measures[name])),
    ...amountsOf(run, n, pairs),
  ]);
  if (isTall) {
    if (names.length) facts.push("used");
    runs.forEach((run, n) => columns[n].push(allUsedBy(names, (name) => usedBy(run, n, name))));
  } else {
    facts.push(...names.map((name) => `used ${name}`));
    runs.forEach((run, n) => columns[n].push(...names.map((name) => usedBy(run, n, name))));
  }
  const rows = facts.map((fact, i) => [fact, ...columns.map((column) => column[i])]);
  const known = rows.filter(([, ...cells]) => cells.some((cell) => cell && cell !== DASH));
  const shown = isTall ? known[0].map((_, n) => known.map((row) => row[n])) : known;
  return numberTable(shown[0], shown.slice(1));
}

/** So many of what a benchmark measures have room here. */
const MOST_MEASURES = 2;
const TIME_AND_TOKENS = ["time a prompt", "tokens a prompt"];

/** Cost, time and tokens: of two runs those that the sentence has, of prompts that both have. */
function amountsOf(run, n, pairs) {
  const amounts = pairs.length === 1 ? pairs[0].amounts : {};
  const mean = (name, known) => amounts[name]?.[n ? "meanB" : "meanA"] ?? known;
  const tokens = mean("tokens", run.tokens);
  return [
    money(mean("costUsd", run.cost)),
    duration(mean("latencyMs", run.latency?.mean)),
    isKnown(tokens) ? count(Math.round(tokens)) : DASH,
  ];
}

/** In how many trials of an arm, or of the control, something was used. */
function usedIn(uses, name, arm) {
  const use = uses.find((one) => one.name === name && (arm === null || one.arm === arm));
  if (!use) return DASH;
  if (arm === null) return use.controlTrials ? `${use.inControl} of ${use.controlTrials}` : DASH;
  return `${use.used} of ${use.trials}`;
}

/** The same of several treatments in one cell, each by its name. */
function allUsedBy(names, usedBy) {
  const found = names.map((name) => [name, usedBy(name)]).filter(([, used]) => used !== DASH);
  const some = found.filter(([, used]) => !used.startsWith("0 "));
  if (found.length > 1 && !some.length) return found[0][1];
  const text = ([name, used]) => (names.length > 1 ? `${name} ${used}` : used);
  return (found.length > 1 ? some : found).map(text).join(", ") || DASH;
}

/** The number of a run in filters, by its label. */
function runNumber({ runs }) {
  return (label) => runs.findIndex((run) => run.label === label);
}

/** Every verdict about an arm, this one last: many looks at chance look like progress. */
function editsChart(arm, { looks, isConfirmation }, now) {
  if (!looks.length) return null;
  const { low, high } = now?.interval ?? {};
  const own = { difference: now?.value, low, high, isConfirmation };
  const points = [...looks, own].map((look, n) => ({
    name: `${n + 1}. ${look.ended?.slice(0, 10) ?? "this run"}${look.isConfirmation ? " confirm" : ""}`,
    hue: look.isConfirmation ? 1 : 0,
    value: look.difference,
    interval: isKnown(look.low) && isKnown(look.high) ? [look.low, look.high] : null,
  }));
  const about = "Difference in pass rate against the same control, each with its interval.";
  return intervalChart(`Edits of ${arm}`, about, points, signed, null, [-1, 1]);
}

function allCharts(runs, sections, charts, numberOf) {
  const names = sections.meta.runs;
  const differences = differencesAtOnce(sections);
  const points = (value, interval) =>
    runs.map((run) => ({
      name: run.name,
      hue: run.hue,
      value: run[value],
      interval: run[interval],
    }));
  return [
    ...Object.entries(sections.edits ?? {}).map(([arm, standing]) =>
      editsChart(
        arm,
        standing,
        differences.find(({ name }) => name === arm),
      ),
    ),
    intervalChart(
      "Pass rate",
      "With 95 % intervals, clustered by prompt.",
      points("quality", "interval"),
      percent,
      (run) => promptsHref({ status: "fail", in_run: numberOf(run) }),
    ),
    intervalChart(
      "Score",
      "Mean over prompts, with 95 % intervals.",
      points("score", "scoreInterval"),
      (value) => value.toFixed(2),
      (run) => promptsHref({ sort: "score", in_run: numberOf(run) }),
    ),
    charts.differences.map((pair) => differenceChart(pair, (id) => href("prompt", id))),
    passKChart(runs, (run) => promptsHref({ status: "flaky", in_run: numberOf(run) })),
    costChart(runs, (run) => promptsHref({ sort: "cost", down: "1", in_run: numberOf(run) })),
    latencyChart(charts.latency, names, (run, least, most) =>
      promptsHref({ in_run: numberOf(run), least_ms: least, most_ms: most }),
    ),
    causeChart(charts.causes, names, (run, cause) => promptsHref({ cause, in_run: numberOf(run) })),
    categoryChart(names, sections.categories, (run, category) =>
      promptsHref({ category, in_run: numberOf(run) }),
    ),
    toolChart(charts.tools, names, (run, tool) => promptsHref({ tool, in_run: numberOf(run) })),
  ];
}

/** Address of the table of prompts with a filter. */
function promptsHref(query) {
  return `#/prompts?${new URLSearchParams(query)}`;
}

/** How the arms of an experiment differ: above the verdict, which is valid only for that. */
function proofView(proof) {
  return proof ? proof.words.map((words) => h("p", { class: "proof" }, words)) : null;
}

const VERDICT_KINDS = {
  better: "better",
  confirmed: "better",
  worse: "worse",
  same: "same",
  "not-worse": "not-worse",
};

/** How the picture draws a difference: in green or red only if the verdict says so. */
const CERTAIN = { better: "up", worse: "down" };

function verdictKind({ code, healthy }) {
  const isClear = healthy !== false && Object.hasOwn(VERDICT_KINDS, code);
  return isClear ? VERDICT_KINDS[code] : "unclear";
}

/** The sentence about two runs, which assay.report.sentence words; its beginning stands out. */
function verdictView(verdict) {
  const { words } = verdict;
  const first = words.match(/^.*?\.(?= [A-Z0-9]|$)/s)?.[0] ?? words;
  return h(
    "p",
    { class: `verdict ${verdictKind(verdict)}` },
    h("b", {}, withCommands(first)),
    withCommands(words.slice(first.length)),
  );
}

/** Sets what stands between backticks as code. */
function withCommands(text) {
  return text.split("`").map((part, n) => (n % 2 ? h("code", {}, part) : part));
}

/** What a judge of the user's own decided. */
function judgeView({ preferred, words }) {
  return h("p", { class: `verdict ${preferred === null ? "unclear" : "same"}` }, words);
}

/** Who wins how many prompts, and by which strategy. */
function headToHeadView(meta, { pairwise, capability, reliability, overall }) {
  const measures = pairwise
    ? [["", pairwise]]
    : Object.entries({ capability, reliability, overall });
  const rows = measures.flatMap(([name, pairs]) =>
    pairs.map(({ runA, runB, aWins, bWins, ties, notMeasured }) => [
      `${runA} against ${runB}${name && `, ${name}`}`,
      `${aWins}`,
      `${bWins}`,
      `${ties}`,
      `${notMeasured}`,
    ]),
  );
  return h(
    "div",
    { class: "head-to-head", "data-key": "head-to-head" },
    h("h3", {}, "Head to head"),
    h("p", { class: "dim" }, `Strategy ${meta.strategyWords}.`),
    numberTable(["pair", "first wins", "second wins", "ties", "not measured"], rows),
  );
}

/** What the judge said of each prompt; of many prompts, the first. */
function reasonsView({ grader, asked, reasons }) {
  const some = reasons.length < asked ? ` (${reasons.length} of ${count(asked)} prompts)` : "";
  return h(
    "div",
    { class: "reasons", "data-key": "reasons" },
    h("h3", {}, `What ${grader} said${some}`),
    h(
      "ul",
      {},
      reasons.map(({ id, winner, reasoning }) =>
        h(
          "li",
          {},
          h("a", { href: href("prompt", id) }, id),
          `: ${winner ?? "no winner"}. ${reasoning ?? ""}`,
        ),
      ),
    ),
  );
}

function healthView(healthByRun) {
  const all = Object.values(healthByRun);
  const whole = all.every(
    (one) => one.healthy && one.graded === one.planned && healthParts(one).length === 1,
  );
  if (all.length > 2 && whole) {
    const text = "All trials of all runs were run and graded.";
    return h("p", { class: "health", "aria-label": "Health of the measurement" }, text);
  }
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
    parts.push(`${count(n)} not measured (${causeWords(cause)})`);
  }
  for (const [cause, n] of Object.entries(health.agentFailures)) {
    parts.push(`${count(n)} ${causeWords(cause)}`);
  }
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
    cost: charts.cost[name]?.mean,
    costInterval: charts.cost[name]?.interval,
    costKnown: charts.cost[name],
    totalCost: performance.costUsd?.total,
    tokens: performance.tokens?.mean,
    latency: performance.latency,
    completion: (sections.completion ?? sections.reliability)[name],
    flakiness: sections.flakiness?.[name],
    steps: charts.steps[name],
    measures: sections.measures?.[name] ?? {},
  };
}

function runCard(overview, run, agents) {
  const file = overview.runs.find(({ label }) => label === run.name)?.file;
  const facts = [...runFacts(run), ["agent", agents?.join(", ")], ["file", file]];
  const interval = run.interval ? ` ${intervalText(run.interval)}` : " not graded";
  const headline = headlineMeasure(run);
  return h(
    "article",
    { class: `card ${hueClass(run.hue)}` },
    h("h3", {}, h("i", { class: `swatch ${hueClass(run.hue)}` }), run.name),
    headline
      ? h(
          "p",
          { class: "big" },
          headline,
          h("span", { class: "dim" }, ` ${percent(run.quality)} passed`),
        )
      : h("p", { class: "big" }, percent(run.quality, 1), h("span", { class: "dim" }, interval)),
    h(
      "dl",
      {},
      facts
        .filter(([, text]) => text)
        .map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
    ),
  );
}

/** What a benchmark measures in percent, such as the official score of games, says more than how
 * many prompts passed. */
function headlineMeasure({ measures }) {
  const found = Object.entries(measures).find(([name]) => name.endsWith(" %"));
  return found ? `${found[1].toFixed(2)} / 100 ${found[0].slice(0, -2)}` : null;
}

function runFacts(run) {
  const { score, scoreInterval, latency, completion, totalCost, tokens, steps, measures } = run;
  const facts = [];
  if (isKnown(score))
    facts.push(["score", `${decimal(score)} (${intervalText(scoreInterval, decimal)})`]);
  if (latency) {
    facts.push(["time", `median ${duration(latency.p50)}, p90 ${duration(latency.p90)}`]);
  }
  facts.push(["completed", completionText(completion)]);
  if (run.flakiness) facts.push(["flaky", flakinessText(run.flakiness)]);
  if (isKnown(totalCost)) facts.push(["cost", costText(run)]);
  if (isKnown(tokens)) facts.push(["tokens", `${count(Math.round(tokens))} a trial`]);
  if (isKnown(steps)) facts.push(["steps", `${steps.toFixed(1)} a trial`]);
  for (const [name, value] of Object.entries(measures)) {
    facts.push([name, `${value.toFixed(name.endsWith(" %") ? 2 : 1)} a trial`]);
  }
  return facts;
}

function completionText({ completionRate, toolErrors, timeouts }) {
  const errors = `${count(toolErrors)} with tool errors`;
  return `${percent(completionRate, 1)}, ${errors}, ${count(timeouts)} timed out`;
}

/** How many prompts pass now and then, and which most. */
function flakinessText({ flakyPromptCount, avgFlakiness, topFlakyPrompts }) {
  if (!flakyPromptCount) return "no prompts";
  const worst = topFlakyPrompts.slice(0, 3).map(({ id }) => id);
  const prompts = `${count(flakyPromptCount)} prompt${flakyPromptCount === 1 ? "" : "s"}`;
  return `${prompts}, on average ${decimal(avgFlakiness)}, most: ${worst.join(", ")}`;
}

/** What a run cost; a sum over some of the trials says so. */
function costText({ totalCost, cost, costInterval, costKnown: { known, trials } }) {
  const part = known < trials ? ` (known for ${count(known)} of ${count(trials)} trials)` : "";
  const interval = costInterval ? ` (${intervalText(costInterval, money)})` : "";
  return `${money(totalCost)}${part}, ${money(cost)} a trial${interval}`;
}

function pairTable(pairs) {
  const head = [
    "pair",
    "difference in pass rate",
    "95 % interval",
    "p (Holm)",
    "prompts that pass more / as / less often",
    "prompts with higher / equal / lower score",
    "verdict",
  ];
  const rows = pairs.map(({ runA, runB, passRate, score, adjustedP, verdict }) => {
    const { wins, ties, losses } = passRate;
    // What decided: of an experiment that ended early it holds at every look.
    const { difference, interval } = { ...passRate, ...(verdict?.interval ? verdict : {}) };
    return [
      `${runB} against ${runA}`,
      signed(difference, 3),
      interval ? intervalText([interval.low, interval.high], (value) => signed(value, 3)) : null,
      isKnown(adjustedP) ? adjustedP.toPrecision(2) : null,
      `${wins} / ${ties} / ${losses}`,
      score ? `${score.wins} / ${score.ties} / ${score.losses}` : null,
      verdict ? verdictWords(verdict.code) : null,
    ];
  });
  return numberTable(head, rows);
}
