// Runs that played games: the official score, the levels of each game, actions against the
// baseline, and how the score grew with actions and cost. Read from the evidence in the rows.
import { figure, hueClass, markLink, numberTable, picture, scale, xAxis, yAxis } from "./charts.js";
import { count, h, isKnown, money, replaceContent, svg } from "./dom.js";
import { entriesOf, trialNumber } from "./entries.js";
import { trialHref } from "./navigation.js";
import { counted } from "./words.js";

const MAX_GAMES = 200;
const GAME_CHART_WIDTH = 560;

/** The part of the overview about games; it stays empty where the rows hold none. */
export function gamesView(source, overview, sections) {
  if (!sections.measures) return null;
  const box = h("section", { class: "games" });
  const show = async () => {
    const { total, rows } = await source.prompts({ offset: 0, limit: MAX_GAMES });
    const labels = sections.meta.runs;
    const plays = await readPlays(source, rows, labels);
    if (!plays.length) return;
    const cut =
      total > rows.length ? `The first ${count(rows.length)} of ${count(total)} games.` : null;
    replaceContent(box, h("h2", {}, "Games"), cut, gameParts(plays, labels));
  };
  show().catch((error) => {
    replaceContent(box, h("p", { class: "notice" }, `The games cannot be shown: ${error.message}`));
  });
  return box;
}

async function readPlays(source, rows, labels) {
  const plays = [];
  for (const { id, cells } of rows) {
    for (const label of labels) {
      const row = await source.row(label, id);
      // The first row tells whether these are games at all.
      if (row) plays.push(...playsOf(row, label, id));
    }
    if (!plays.length && cells.some(Boolean)) return [];
  }
  return plays;
}

/** The trials of a row that have evidence of a game with levels. */
function playsOf(row, run, id) {
  return entriesOf(row).flatMap((entry) => {
    const { result, scores } = entry?.metadata?.evidence ?? {};
    const official = scores?.official ?? {};
    const played = Array.isArray(result?.plays) ? result.plays : [];
    const best = played.find(({ index }) => index === official.play) ?? played.at(-1);
    if (!Array.isArray(best?.levels)) return [];
    return [
      {
        run,
        id,
        n: trialNumber(entry),
        score: official.scorePercent ?? null,
        levels: best.levels,
        levelScores: official.levelScoresPercent ?? [],
        marks: Array.isArray(best.marks) ? best.marks : [],
        done: result.levelsCompleted ?? 0,
        levelCount: result.levelCount ?? best.levels.length,
        actions: played.reduce((sum, play) => sum + (play.actions ?? 0), 0),
        bestActions: best.actions ?? 0,
        won: result.won === true,
        cost: entry.usage?.costUsd ?? null,
      },
    ];
  });
}

function gameParts(plays, labels) {
  const runs = labels.map((name, hue) => ({
    name,
    hue,
    plays: plays.filter(({ run }) => run === name),
  }));
  return [
    scoreTable(runs),
    levelGrid(runs),
    h(
      "div",
      { class: "pictures" },
      baselineChart(runs),
      growthChart("Score against actions", "actions of a trial", runs, count, byActions),
      growthChart("Score against cost", "cost of a trial", runs, money, byCost),
    ),
  ];
}

function scoreTable(runs) {
  const rows = runs.map(({ name, plays }) => {
    const sum = (key) => plays.reduce((total, play) => total + play[key], 0);
    return [
      name,
      points(meanOfGames(plays, ({ score }) => score)),
      `${count(sum("done"))} of ${count(sum("levelCount"))}`,
      `${count(plays.filter(({ won }) => won).length)} of ${count(plays.length)}`,
      count(sum("actions")),
    ];
  });
  return numberTable(["run", "official score", "levels", "games won", "actions"], rows);
}

function points(percentage) {
  return isKnown(percentage) ? `${percentage.toFixed(2)} / 100` : null;
}

/** Mean over the games, each the mean of its trials; null where nothing is scored. */
function meanOfGames(plays, valueOf) {
  const byGame = Map.groupBy(
    plays.filter((play) => isKnown(valueOf(play))),
    ({ id }) => id,
  );
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const games = [...byGame.values()].map((some) => mean(some.map(valueOf)));
  return games.length ? mean(games) : null;
}

/** A line for each game and run, a column for each level. */
function levelGrid(runs) {
  const ids = [...new Set(runs.flatMap(({ plays }) => plays.map(({ id }) => id)))];
  const most = Math.max(...runs.flatMap(({ plays }) => plays.map(({ levels }) => levels.length)));
  const head = [
    "game",
    "run",
    ...Array.from({ length: most }, (_, i) => `level ${i + 1}`),
    "score",
  ];
  const lines = ids.flatMap((id) =>
    runs.flatMap(({ plays }) =>
      plays.filter((play) => play.id === id).map((play) => gridLine(play, most)),
    ),
  );
  const cells = head.map((title) => h("th", { scope: "col" }, title));
  const table = h(
    "table",
    { class: "levels" },
    h("thead", {}, h("tr", {}, cells)),
    h("tbody", {}, lines),
  );
  const caption = "Actions of each level, with the baseline behind the stroke. ✓ completed, ✗ not.";
  return h(
    "figure",
    {},
    h("figcaption", {}, h("h3", {}, "Levels"), h("p", { class: "dim" }, caption)),
    h("div", { class: "scroll", tabindex: "0" }, table),
  );
}

function gridLine(play, most) {
  const levels = Array.from({ length: most }, (_, i) => levelCell(play.levels[i]));
  return h(
    "tr",
    {},
    h("td", {}, h("a", { href: trialHref(play.run, play.id, play.n) }, play.id)),
    h("td", {}, `${play.run} ${play.n}`),
    levels,
    h("td", { class: "number" }, isKnown(play.score) ? play.score.toFixed(2) : "none"),
  );
}

function levelCell(level) {
  if (!level) return h("td");
  const { completed, actions, baseline } = level;
  const reached = completed || actions > 0;
  const kind = completed ? "pass" : reached ? "fail" : "none";
  const base = isKnown(baseline) ? ` / ${count(baseline)}` : "";
  const text = reached ? `${completed ? "✓" : "✗"} ${count(actions)}${base}` : "not reached";
  return h("td", { class: `level ${kind}` }, text);
}

/** Each completed level as a dot: on the line it took as many actions as the baseline. */
function baselineChart(runs) {
  const dots = runs.flatMap(({ hue, plays }) =>
    plays.flatMap((play) =>
      play.levels
        .filter((level) => level.completed && level.baseline > 0 && level.actions > 0)
        .map((level) => ({ play, level, hue })),
    ),
  );
  if (!dots.length) return null;
  const most = Math.max(...dots.map(({ level }) => Math.max(level.actions, level.baseline))) * 1.2;
  const height = 250;
  const x = scale(1, most, 52, GAME_CHART_WIDTH - 24, { log: true });
  const y = scale(1, most, height - 34, 12, { log: true });
  const even = svg("line", {
    x1: x.at(1),
    y1: y.at(1),
    x2: x.at(most),
    y2: y.at(most),
    class: "zero",
  });
  const marks = dots.map(({ play, level, hue }) => {
    const title = `${play.run}, ${play.id}, level ${level.index}: ${counted(level.actions, "action")}, baseline ${level.baseline}`;
    const mark = svg("circle", {
      cx: x.at(level.baseline),
      cy: y.at(level.actions),
      r: 5,
      class: "dot",
    });
    return svg(
      "g",
      { class: hueClass(hue) },
      markLink(trialHref(play.run, play.id, play.n), title, mark),
    );
  });
  return figure(
    "Actions against the baseline",
    "Completed levels. Below the line: fewer actions than the baseline. Both axes are logarithmic.",
    picture(
      height,
      "Actions against the baseline",
      xAxis(x, 12, height - 34, count),
      yAxis(y, 52, GAME_CHART_WIDTH - 24, count),
      even,
      marks,
    ),
    ["run", "game", "level", "actions", "baseline"],
    dots.map(({ play, level }) => [play.run, play.id, level.index, level.actions, level.baseline]),
  );
}

/** What had been spent when each level was completed, and the score until then. */
function byActions(play) {
  return { points: scoreSteps(play), end: play.bestActions };
}

/** The same for the cost, which the actions share: an estimate. */
function byCost(play) {
  if (!isKnown(play.cost) || !play.bestActions) return null;
  const price = play.cost / play.bestActions;
  return {
    points: scoreSteps(play).map(([spent, score]) => [spent * price, score]),
    end: play.cost,
  };
}

/** [actions, score] after each completed level; a level counts by its number, as in the score. */
function scoreSteps({ marks, levelScores, score }) {
  const weights = levelScores.map((value, i) => value * (i + 1));
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  return marks.map(([, actions], i) => {
    sum += weights[i] ?? 0;
    return [actions, all ? (sum / all) * (score ?? 0) : 0];
  });
}

/** The mean score of each run had every trial been stopped at a point. */
function growthChart(title, unit, runs, show, read) {
  const curves = runs
    .map((run) => ({ ...run, curve: meanCurve(run.plays, read) }))
    .filter(({ curve }) => curve);
  if (!curves.length) return null;
  const most = Math.max(...curves.map(({ curve }) => curve.at(-1)[0]));
  const top = Math.max(...curves.map(({ curve }) => curve.at(-1)[1]), 1);
  if (!(most > 0)) return null;
  const height = 250;
  const x = scale(0, most, 52, GAME_CHART_WIDTH - 24);
  const y = scale(0, top * 1.1, height - 34, 12);
  const lines = curves.map(({ curve, hue, name }) => {
    const d = `M${x.at(0)},${y.at(0)}${curve.map(([spent, score]) => `H${x.at(spent)}V${y.at(score)}`).join("")}`;
    return svg(
      "g",
      { class: hueClass(hue) },
      svg("path", { class: "curve", d }, svg("title", {}, name)),
    );
  });
  const unitText = svg(
    "text",
    { x: GAME_CHART_WIDTH - 24, y: height - 4, "text-anchor": "end" },
    unit,
  );
  const estimated = read === byCost ? " Cost is shared out by actions: an estimate." : "";
  return figure(
    title,
    `Mean official score had every trial been stopped there.${estimated}`,
    picture(
      height,
      title,
      xAxis(x, 12, height - 34, show),
      yAxis(y, 52, GAME_CHART_WIDTH - 24, (value) => value.toFixed(1)),
      lines,
      unitText,
    ),
    ["run", unit, "official score"],
    curves.flatMap(({ name, curve }) =>
      curve.map(([spent, score]) => [name, show(spent), score.toFixed(2)]),
    ),
  );
}

/** Mean over games of the best score so far, at every point where a trial gains; null if unknown. */
function meanCurve(plays, read) {
  const curves = plays.map((play) => ({ id: play.id, curve: read(play) }));
  if (!plays.length || curves.some(({ curve }) => !curve)) return null;
  const spent = new Set(
    curves.flatMap(({ curve }) => [...curve.points.map(([at]) => at), curve.end]),
  );
  const scoreAt = ({ curve }, at) =>
    Math.max(0, ...curve.points.filter(([x]) => x <= at).map(([, score]) => score));
  return [...spent]
    .toSorted((a, b) => a - b)
    .map((at) => [at, meanOfGames(curves, (play) => scoreAt(play, at)) ?? 0]);
}
