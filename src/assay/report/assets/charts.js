// Charts of the overview: pass rates, differences, cost, time, failures, categories and tools.
// Plain SVG without a library: a library adds 100 kB to 3 MB and inline styles, which the strict
// Content-Security-Policy of the page refuses.
import {
  DASH,
  count,
  duration,
  h,
  intervalText,
  isKnown,
  money,
  percent,
  signed,
  svg,
} from "./dom.js";
import { causeWords, countsAgainstAgent } from "./words.js";

const WIDTH = 560;
/** Room for the numbers of a vertical axis, which are larger on a phone. */
const Y_AXIS = 62;
const HUES = 8;
const MAX_CATEGORIES = 40;
const MAX_TOOLS = 12;
const MAX_LISTED_DIFFERENCES = 200;

/** Class of a run's colour. Charts name the runs as well, so that colour alone says nothing. */
export function hueClass(n) {
  return `hue-${n % HUES}`;
}

/** Each run's value as a dot with its interval as a line; ends are those of the axis. */
export function intervalChart(title, description, points, show, linkTo, ends = [0, 1]) {
  const rows = points.filter((point) => isKnown(point.value));
  if (!rows.length) return null;
  const left = 150;
  const height = rows.length * 30 + 34;
  const x = scale(...ends, left, WIDTH - 24);
  const dots = rows.map((row, i) => {
    const y = 22 + i * 30;
    const [low, high] = row.interval ?? [row.value, row.value];
    const mark = dot(x.at(row.value), y, 5.5);
    return svg(
      "g",
      { class: hueClass(row.hue) },
      nameLabel(left - 10, y + 4, row.name, 18, { "text-anchor": "end", class: "name" }),
      line(x.at(low), y, x.at(high), y, "limits"),
      linkTo ? markLink(linkTo(row.name), `${row.name}: ${show(row.value)}`, mark) : mark,
    );
  });
  const values = rows.map((row) => `${row.name} ${show(row.value)}`).join(", ");
  return figure(
    title,
    description,
    picture(height, `${title}: ${values}`, xAxis(x, 6, height - 26, show), dots),
    ["run", "value", "95 % interval"],
    rows.map((row) => [row.name, show(row.value, 1), intervalText(row.interval, show)]),
  );
}

/** The pass rates of all runs and, on a scale of its own, each difference from the first run. */
export function glanceChart(runs, differences, linkTo, changesHref) {
  const rated = runs.filter((run) => isKnown(run.quality));
  if (!differences.length || !rated.length) return null;
  const [left, right, row] = [150, WIDTH - 124, 26];
  const rates = scale(0, 1, left, right);
  const points = scale(-1, 1, left, right);
  const middle = rated.length * row + 6;
  const below = middle + 40;
  const height = below + differences.length * row + 24;
  const rows = rated.map((run, i) =>
    glanceRow(run.name, run.quality, run.interval, rates, 16 + i * row, {
      hue: run.hue,
      shown: percent(run.quality),
      target: linkTo(run.name),
    }),
  );
  const changes = differences.map(({ name, value, interval, sure }, i) => {
    const shown = `${pointsText(value)} points`;
    const title = differences.length > 1 ? name : "difference";
    return glanceRow(title, value, [interval.low, interval.high], points, below + 10 + i * row, {
      sure,
      shown,
      target: changesHref,
    });
  });
  const said = [
    ...rated.map((run) => `${run.name} ${percent(run.quality)}`),
    ...differences.map(
      ({ name, value, interval }) =>
        `${name} ${pointsText(value)} points (${pointsText(interval.low)} to ${pointsText(interval.high)})`,
    ),
  ];
  const zero = line(points.at(0), below - 4, points.at(0), height - 24, "zero");
  return h(
    "figure",
    { class: "glance", "data-key": "glance" },
    h("figcaption", { class: "hidden" }, `Pass rates and difference: ${said.join(", ")}`),
    picture(
      height,
      `Pass rates and difference: ${said.join(", ")}`,
      xAxis({ ...rates, ticks: [0, 0.5, 1] }, 4, middle, percent),
      rows,
      xAxis({ ...points, ticks: [-1, 0, 1] }, below - 4, height - 24, pointsText),
      zero,
      changes,
    ),
  );
}

function glanceRow(name, value, interval, x, y, { hue, sure, shown, target }) {
  const [low, high] = interval ?? [value, value];
  const mark = dot(x.at(value), y, 6);
  return svg(
    "g",
    { class: sure ? `point-${sure}` : hueClass(hue) },
    nameLabel(140, y + 4, name, 18, { "text-anchor": "end", class: "name" }),
    line(x.at(low), y, x.at(high), y, "limits"),
    target ? markLink(target, `${name}: ${shown}`, mark) : mark,
    text(WIDTH - 112, y + 4, shown, { class: "name value" }),
  );
}

function pointsText(value) {
  return value === 0 ? "0" : `${value > 0 ? "+" : ""}${(100 * value).toFixed(0)}`;
}

/** What each treatment of an ablation does on its own. */
export function effectsChart(effects) {
  const points = effects.map(({ name, difference, interval }, n) => ({
    name,
    hue: n,
    value: difference,
    interval: interval ? [interval.low, interval.high] : null,
  }));
  const about =
    "Change of the pass rate in points, averaged over the other treatments, with 95 % intervals.";
  return intervalChart("Effects", about, points, pointsText, null, [-1, 1]);
}

/** One dot per prompt, sorted: how many prompts got better or worse, and by how much. */
export function differenceChart(pair, linkTo) {
  const { diffs } = pair;
  if (!diffs.length) return null;
  const height = 230;
  const left = Y_AXIS;
  const right = WIDTH - 16;
  const most = Math.max(...diffs.map(([, value]) => Math.abs(value)), 0.05);
  const x = scale(0, Math.max(diffs.length - 1, 1), left, right);
  const y = scale(-most, most, height - 30, 12);
  const radius = diffs.length > 200 ? 2 : 4;
  const points = diffs.map(([id, value], i) => {
    const place = { cx: x.at(i), cy: y.at(value), r: radius };
    return differencePoint(id, value, place, linkTo);
  });
  const description = differenceText(pair);
  return figure(
    "Paired differences",
    description,
    picture(
      height,
      description,
      yAxis(y, left, right, (value) => signed(value, 2)),
      line(left, y.at(0), right, y.at(0), "zero"),
      points,
      text(right, height - 8, "prompts, sorted", { "text-anchor": "end", class: "dim" }),
    ),
    ["prompt", "difference"],
    differenceRows(diffs, linkTo),
    `difference ${pair.runA} ${pair.runB}`,
  );
}

function differenceRows(diffs, linkTo) {
  const rows = diffs
    .slice(0, MAX_LISTED_DIFFERENCES)
    .map(([id, value]) => [h("a", { href: linkTo(id) }, id), signed(value, 3)]);
  const rest = diffs.length - rows.length;
  return rest > 0 ? [...rows, [`and ${count(rest)} more: see the table of prompts`, ""]] : rows;
}

function differencePoint(id, value, place, linkTo) {
  const direction = value > 0 ? "up" : value < 0 ? "down" : "even";
  const point = svg("circle", { ...place, class: `point ${direction}` });
  // Not a stop of the Tab key: the table of the same numbers has a link for each.
  return markLink(linkTo(id), `${id}: ${signed(value, 3)}`, point, { tabindex: "-1" });
}

function differenceText({ diffs, runA, runB, what, n, shown }) {
  const up = diffs.filter(([, value]) => value > 0).length;
  const down = diffs.filter(([, value]) => value < 0).length;
  const equal = diffs.length - up - down;
  const sampled = shown < n ? ` (${shown} of ${n} prompts, evenly drawn)` : "";
  const counts = `higher on ${up}, equal on ${equal}, lower on ${down} prompts`;
  return `${runB} minus ${runA}, ${what} per prompt: ${counts}${sampled}`;
}

/** How pass@k (at least one of k trials passes) grows and pass^k (all of them) shrinks with k. */
export function passKChart(allRuns, linkTo) {
  const runs = allRuns.filter((run) => run.perK?.length);
  const most = Math.max(0, ...runs.flatMap((run) => run.perK.map((row) => row.k)));
  if (most < 2) return null;
  const height = 250;
  const x = { ...scale(1, most, Y_AXIS, WIDTH - 20), ticks: passKTicks(most) };
  const y = scale(0, 1, height - 32, 12);
  const chart = figure(
    "pass@k and pass^k",
    "Full line: at least one of k trials passes. Dashed: all of them do. Unbiased, with 95 % bands.",
    picture(
      height,
      "pass@k and pass^k by k",
      xAxis(x, 12, height - 32, (k) => `k=${k}`),
      yAxis(y, Y_AXIS, WIDTH - 20, percent),
      runs.map((run) => [
        passKCurve(run, ["passAtK", "full"], x, y, linkTo),
        passKCurve(run, ["passExpK", "dashed"], x, y, linkTo),
      ]),
    ),
    ["run", "k", "pass@k", "pass^k"],
    runs.flatMap((run) =>
      run.perK.map((row) => [run.name, row.k, percent(row.passAtK, 1), percent(row.passExpK, 1)]),
    ),
  );
  return withLegend(
    chart,
    allRuns.map((run) => run.name),
  );
}

/** Every k; of more than twelve, about ten of them. */
function passKTicks(most) {
  const all = Array.from({ length: most }, (_, i) => i + 1);
  return all.filter((k) => most <= 12 || k % Math.ceil(most / 10) === 1);
}

function passKCurve(run, [key, style], x, y, linkTo) {
  const points = run.perK.map((row) => [x.at(row.k), y.at(row[key])]);
  const title = (i) => `${run.name}, k=${run.perK[i].k}: ${percent(run.perK[i][key], 1)}`;
  const band = run.perK
    .filter((row) => row[`${key}Interval`])
    .map((row) => ({ x: x.at(row.k), ends: intervalEnds(row[`${key}Interval`]) }));
  const upper = band.map((point) => [point.x, y.at(point.ends[1])]);
  const lower = band.map((point) => [point.x, y.at(point.ends[0])]).toReversed();
  return svg(
    "g",
    { class: `${hueClass(run.hue)} ${style}` },
    band.length > 1 ? svg("path", { class: "band", d: `${path([...upper, ...lower])}Z` }) : null,
    svg("path", { class: "curve", d: path(points) }),
    points.map(([px, py], i) => markLink(linkTo(run.name), title(i), dot(px, py, 3))),
  );
}

function intervalEnds(interval) {
  return Array.isArray(interval) ? interval : [interval.low, interval.high];
}

/** Pass rate by category: one row per category, one column per run. */
export function categoryChart(runs, categories, linkTo) {
  const all = [...new Set(Object.values(categories).flatMap(Object.keys))].sort();
  if (all.length < 2 && all[0] === "(uncategorized)") return null;
  const rows = all.slice(0, MAX_CATEGORIES);
  const left = 170;
  const cellWidth = (WIDTH - left - 10) / runs.length;
  const height = rows.length * 30 + 34;
  const longestName = Math.max(6, Math.floor(cellWidth / 7));
  const centred = { "text-anchor": "middle" };
  const columnNames = runs.map((run, n) =>
    nameLabel(left + (n + 0.5) * cellWidth, 14, run, longestName, centred),
  );
  const rowNames = rows.map((name, i) =>
    nameLabel(left - 10, 46 + i * 30, name, 22, { "text-anchor": "end", class: "name" }),
  );
  const cells = rows.flatMap((name, i) =>
    runs.map((run, n) => {
      const place = { x: left + n * cellWidth, y: 28 + i * 30, width: cellWidth };
      return categoryCell(`${name}, ${run}`, categories[run]?.[name], place, linkTo(run, name));
    }),
  );
  const cut = all.length > rows.length ? ` (the first ${rows.length} of ${all.length})` : "";
  return figure(
    "Categories",
    `Pass rate of each category${cut}.`,
    picture(height, "Pass rate by category", columnNames, rowNames, cells),
    ["category", ...runs],
    rows.map((name) => [name, ...runs.map((run) => categoryNumbers(categories[run]?.[name]))]),
  );
}

function categoryCell(title, category, { x, y, width }, target) {
  const rate = category?.passRate;
  const heat = isKnown(rate) ? `heat-${Math.round(rate * 10)}` : "heat-none";
  const shown = category ? (isKnown(rate) ? percent(rate) : "not measured") : "";
  const interval = category ? intervalText(category.interval) : "";
  const hover = category
    ? `${title}: ${shown}, ${category.nMeasured} trials measured, ${interval}`
    : "";
  const cell = [
    svg("rect", { x, y, width: width - 3, height: 27, rx: 3, class: heat }),
    text(x + width / 2, y + 18, shown, { "text-anchor": "middle", class: `on-${heat}` }),
  ];
  return category ? markLink(target, hover, cell) : svg("g", {}, cell);
}

function categoryNumbers(category) {
  return category ? `${percent(category.passRate)} (${intervalText(category.interval)})` : null;
}

/** Cost against quality; the line joins the runs that no other run beats in both. */
export function costChart(runs, linkTo) {
  const points = runs.filter((run) => isKnown(run.cost) && isKnown(run.quality));
  if (!points.length) return null;
  const height = 250;
  const most = Math.max(...points.map((run) => run.costInterval?.[1] ?? run.cost));
  // From zero: a small difference in cost looks small.
  const x = scale(0, most * 1.15 || 1, Y_AXIS, WIDTH - 24);
  const y = scale(0, 1, height - 34, 12);
  const front = unbeatenRuns(points);
  const frontLine = path(front.map((run) => [x.at(run.cost), y.at(run.quality)]));
  const names = front.map((run) => run.name).join(", ");
  const description = `Up and to the left is better, with 95 % intervals. ${points.length > 1 ? `Not beaten in both: ${names}.` : ""}`;
  return figure(
    "Cost against quality",
    description,
    picture(
      height,
      description,
      xAxis(x, 12, height - 34, money),
      yAxis(y, Y_AXIS, WIDTH - 24, percent),
      front.length > 1 ? svg("path", { class: "front", d: frontLine }) : null,
      points.map((run) => costPoint(run, x, y, linkTo)),
      text(WIDTH - 24, height - 4, "cost of a trial", { "text-anchor": "end", class: "dim" }),
    ),
    ["run", "cost of a trial", "95 % interval", "pass rate"],
    points.map((run) => [
      run.name,
      money(run.cost),
      intervalText(run.costInterval, money),
      percent(run.quality, 1),
    ]),
  );
}

function costPoint(run, x, y, linkTo) {
  const { interval, costInterval, name, cost, quality } = run;
  const [px, py] = [x.at(cost), y.at(quality)];
  const limits = [
    interval ? line(px, y.at(interval[0]), px, y.at(interval[1]), "limits") : null,
    costInterval ? line(x.at(costInterval[0]), py, x.at(costInterval[1]), py, "limits") : null,
  ];
  // A name at the right edge would leave the picture.
  const isRight = px > WIDTH * 0.65;
  // At the top it would, too: there it stands below the dot.
  const dy = py < 24 ? 20 : -8;
  const place = { "text-anchor": isRight ? "end" : "start", class: "name" };
  return svg(
    "g",
    { class: hueClass(run.hue) },
    limits,
    markLink(
      linkTo(name),
      `${name}: ${money(cost)} a trial, ${percent(quality, 1)}`,
      dot(px, py, 6),
    ),
    nameLabel(px + (isRight ? -10 : 10), py + dy, name, 26, place),
  );
}

/** The Pareto front: no other run is at least as good in both and better in one. */
function unbeatenRuns(runs) {
  const beats = (a, b) =>
    a.cost <= b.cost && a.quality >= b.quality && (a.cost < b.cost || a.quality > b.quality);
  return runs
    .filter((run) => !runs.some((other) => beats(other, run)))
    .sort((a, b) => a.cost - b.cost);
}

/** How long trials took, on a logarithmic axis: one histogram per run. */
export function latencyChart({ edges, runs }, names, linkTo) {
  const rows = names
    .map((name, n) => ({ name, n, ...runs[name] }))
    .filter((row) => row.counts?.some(Boolean));
  if (!rows.length) return null;
  const left = 130;
  const rowHeight = 62;
  const height = rows.length * rowHeight + 36;
  const x = scale(edges[0], edges.at(-1), left, WIDTH - 20, { log: true });
  const histograms = rows.map((row, i) => {
    const bottom = (i + 1) * rowHeight;
    return svg(
      "g",
      { class: hueClass(row.n) },
      nameLabel(left - 10, bottom - 14, row.name, 17, { "text-anchor": "end", class: "name" }),
      histogram(row, edges, x, { bottom, height: rowHeight - 16 }, linkTo),
      [row.p50, row.p90]
        .filter(isKnown)
        .map((ms) => line(x.at(ms), bottom - rowHeight + 14, x.at(ms), bottom, "quantile")),
    );
  });
  const medians = rows.map((row) => `${row.name} median ${duration(row.p50)}`).join(", ");
  return figure(
    "Time of a trial",
    "Logarithmic. The lines mark the median and the 90th percentile.",
    picture(height, `Time of a trial: ${medians}`, xAxis(x, 8, height - 28, duration), histograms),
    ["run", "median", "p90", "trials"],
    rows.map((row) => [row.name, duration(row.p50), duration(row.p90), count(row.n_trials)]),
  );
}

function histogram({ name, counts }, edges, x, { bottom, height }, linkTo) {
  const most = Math.max(...counts);
  return counts.map((n, bin) => {
    if (!n) return null;
    const [least, until] = [edges[bin], edges[bin + 1]];
    const [from, to] = [x.at(least), x.at(until)];
    const barHeight = (n / most) * height;
    const title = `${name}, ${duration(least)} to ${duration(until)}: ${n}`;
    const rect = svg("rect", {
      x: from + 0.5,
      y: bottom - barHeight,
      width: Math.max(1, to - from - 1),
      height: barHeight,
      class: "bar",
    });
    return markLink(linkTo(name, least, until), title, rect);
  });
}

export function causeChart(causes, runs, linkTo) {
  return barChart({
    title: "Failures by cause",
    description: "● counts against the agent; the others are no measurement of it.",
    column: "cause",
    linkTo,
    words: (cause) => `${causeWords(cause)}${countsAgainstAgent(cause) ? " ●" : ""}`,
    groups: [...new Set(runs.flatMap((run) => Object.keys(causes[run] ?? {})))].sort(),
    runs,
    valueOf: (run, cause) => causes[run]?.[cause] || 0,
  });
}

export function toolChart(tools, runs, linkTo) {
  const calls = (run, tool) => tools[run]?.[tool]?.[0] || 0;
  const failures = (run, tool) => tools[run]?.[tool]?.[1];
  const total = (tool) => runs.reduce((sum, run) => sum + calls(run, tool), 0);
  const all = [...new Set(runs.flatMap((run) => Object.keys(tools[run] ?? {})))];
  const cut = all.length > MAX_TOOLS ? ` The ${MAX_TOOLS} most used of ${all.length} tools.` : "";
  return barChart({
    title: "Tool use",
    description: `Calls of each tool; in brackets those that failed.${cut}`,
    column: "tool",
    linkTo,
    groups: all.sort((a, b) => total(b) - total(a)).slice(0, MAX_TOOLS),
    runs,
    valueOf: calls,
    suffix: (run, tool) => (failures(run, tool) ? ` (${count(failures(run, tool))})` : ""),
  });
}

/** Horizontal bars: one group per cause or tool, one bar per run. */
function barChart({ title, description, column, groups, runs, valueOf, linkTo, ...show }) {
  if (!groups.length) return null;
  const { suffix = () => "", words = (group) => group } = show;
  const left = 170;
  const groupHeight = runs.length * 13 + 10;
  const height = groups.length * groupHeight + 30;
  const most = Math.max(...groups.flatMap((group) => runs.map((run) => valueOf(run, group))), 1);
  const x = scale(0, most, left, WIDTH - 84);
  const wholeTicks = { ...x, ticks: x.ticks.filter(Number.isInteger) };
  const bars = groups.map((group, i) => {
    const top = 6 + i * groupHeight;
    const middle = top + (groupHeight - 10) / 2 + 4;
    const barOf = (run, n) => {
      const value = valueOf(run, group);
      const drawn = bar(n, value, suffix(run, group), x, top + n * 13);
      return value
        ? markLink(linkTo(run, group), `${words(group)}, ${run}: ${value}`, drawn)
        : drawn;
    };
    const name = nameLabel(left - 10, middle, words(group), 22, {
      "text-anchor": "end",
      class: "name",
    });
    return svg("g", {}, name, runs.map(barOf));
  });
  const values = (group) => runs.map((run) => valueOf(run, group)).join(" / ");
  const label = `${title}: ${groups.map((group) => `${words(group)} ${values(group)}`).join(", ")}`;
  const chart = figure(
    title,
    description,
    picture(height, label, xAxis(wholeTicks, 4, height - 24, count), bars),
    [column, ...runs],
    groups.map((group) => [words(group), ...runs.map((run) => count(valueOf(run, group)))]),
  );
  return runs.length > 1 ? withLegend(chart, runs) : chart;
}

function bar(n, value, suffix, x, y) {
  const left = x.at(0);
  const width = Math.max(value ? 2 : 0, x.at(value) - left); // 2: even a tiny value can be seen
  return svg(
    "g",
    { class: hueClass(n) },
    svg("rect", { x: left, y, height: 11, width, class: "bar" }),
    value ? text(x.at(value) + 4, y + 10, `${count(value)}${suffix}`, { class: "small" }) : null,
  );
}

/** A picture with its title, a description, and a table of the same numbers. */
export function figure(title, description, drawing, head, rows, key = title) {
  const caption = h(
    "figcaption",
    {},
    h("h3", {}, title),
    description ? h("p", { class: "dim" }, description) : null,
  );
  const numbers = rows.length
    ? h("details", { class: "numbers" }, h("summary", {}, "Numbers"), numberTable(head, rows))
    : null;
  // By its key a live page finds it again when others have appeared before it.
  return h("figure", { "data-key": key }, caption, drawing, numbers);
}

export function numberTable(head, rows) {
  const headCells = head.map((cell) => h("th", { scope: "col" }, cell));
  const bodyRows = rows.map((row) =>
    h(
      "tr",
      {},
      row.map((cell) => h("td", {}, cell ?? DASH)),
    ),
  );
  const table = h("table", {}, h("thead", {}, h("tr", {}, headCells)), h("tbody", {}, bodyRows));
  return h("div", { class: "scroll", tabindex: "0" }, table);
}

function withLegend(chart, names) {
  const entries = names.map((name, n) =>
    h("span", {}, h("i", { class: `swatch ${hueClass(n)}` }), name),
  );
  chart.querySelector("figcaption").append(h("p", { class: "legend" }, entries));
  return chart;
}

/** A group and not an image: its marks are links. */
export function picture(height, label, ...children) {
  const viewBox = `0 0 ${WIDTH} ${height}`;
  return svg("svg", { viewBox, role: "group", "aria-label": label, class: "picture" }, ...children);
}

/** A mark of a chart that leads to what it stands for. */
export function markLink(target, title, mark, props = {}) {
  return svg("a", { href: target, "aria-label": title, ...props }, svg("title", {}, title), mark);
}

/** Maps values to places between two points, with round numbers for the axis. */
export function scale(low, high, from, to, { log = false } = {}) {
  const transform = log ? Math.log10 : (value) => value;
  const start = transform(low);
  // An empty range would divide by zero.
  const end = transform(high) === start ? start + 1 : transform(high);
  const at = (value) => from + ((transform(value) - start) / (end - start)) * (to - from);
  return { at, ticks: log ? logTicks(low, high) : linearTicks(low, high) };
}

function linearTicks(low, high) {
  const rough = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  // The small share of a step allows for rounding errors at both ends.
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push(Number(tick.toPrecision(10)));
  }
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    ticks.push(10 ** power, 3 * 10 ** power);
  }
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  if (inside.length < 2) return linearTicks(low, high); // The range is less than one power of ten.
  // Many powers of ten leave no room for the threes between them.
  return inside.length > 7 ? inside.filter((tick) => String(tick).startsWith("1")) : inside;
}

/** Vertical lines with their numbers below. */
export function xAxis(x, top, bottom, show) {
  const lines = x.ticks.map((tick) => [
    line(x.at(tick), top, x.at(tick), bottom),
    text(x.at(tick), bottom + 16, show(tick), { "text-anchor": "middle" }),
  ]);
  return svg("g", { class: "axis" }, lines);
}

/** Horizontal lines with their numbers on the left. */
export function yAxis(y, left, right, show) {
  const lines = y.ticks.map((tick) => [
    line(left, y.at(tick), right, y.at(tick)),
    text(left - 6, y.at(tick) + 4, show(tick), { "text-anchor": "end" }),
  ]);
  return svg("g", { class: "axis" }, lines);
}

function text(x, y, content, props = {}) {
  return svg("text", { x, y, ...props }, content);
}

/** A name of any length; most is how many characters a small line has room for.
 *
 * A phone draws larger letters: what does not fit there has two small lines, narrowed if need be. */
function nameLabel(x, y, name, most, props = {}) {
  if (name.length <= most * ON_A_PHONE) return text(x, y, name, props);
  const at = breakAt(name);
  const lines = [name.slice(0, at), name.slice(at)].map((part, n) => {
    const tooLong = { textLength: most * CHARACTER, lengthAdjust: "spacingAndGlyphs" };
    const fits = part.length <= most ? {} : tooLong;
    return svg("tspan", { x, dy: n ? LINE : -LINE / 2, ...fits }, part);
  });
  return svg("text", { x, y, ...props, class: `${props.class ?? ""} long` }, lines);
}

const ON_A_PHONE = 0.75;
const LINE = 12;
const CHARACTER = 7;

/** Where to break a name: after the sign between words that is nearest to its middle. */
function breakAt(name) {
  const middle = Math.ceil(name.length / 2);
  const signs = [...name.matchAll(/[^\p{L}\p{N}.](?=.)/gu)].map(({ index }) => index + 1);
  const near = signs.filter((at) => Math.abs(at - middle) <= name.length / 4);
  return near.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0] ?? middle;
}

function line(x1, y1, x2, y2, className) {
  return svg("line", { x1, x2, y1, y2, class: className });
}

function dot(x, y, radius) {
  return svg("circle", { cx: x, cy: y, r: radius, class: "dot" });
}

function path(points) {
  return `M${points.map(([x, y]) => `${x},${y}`).join("L")}`;
}
