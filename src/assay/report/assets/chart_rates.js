// Score and pass rate with intervals, and the differences between runs, prompt by prompt.
import { s } from "./dom.js";
import { known, limits, percent, signed } from "./format.js";
import { WIDTH, figure, hue, label, legend, picture, scale, short, xAxis, yAxis } from "./charts.js";

const MOST_CATEGORIES = 40;

/** Each value as a dot, its interval as a line. */
export function intervalChart(title, words, points, show = percent) {
  const rows = points.filter((point) => known(point.value));
  if (!rows.length) return null;
  const left = 150;
  const height = rows.length * 30 + 34;
  const x = scale(0, 1, left, WIDTH - 24);
  return figure(title, words,
    picture(height, `${title}: ${rows.map((row) => `${row.name} ${show(row.value)}`).join(", ")}`,
      xAxis(x, 6, height - 26, show),
      rows.map((row, i) => {
        const y = 22 + i * 30;
        const [low, high] = row.interval ?? [row.value, row.value];
        return s("g", { class: hue(row.hue) },
          label(left - 10, y + 4, short(row.name), { "text-anchor": "end", class: "name" }),
          s("line", { x1: x.at(low), x2: x.at(high), y1: y, y2: y, class: "limits" }),
          s("circle", { cx: x.at(row.value), cy: y, r: 5.5, class: "dot" }));
      })),
    ["run", "value", "95 % interval"], rows.map((row) => [row.name, show(row.value, 1), limits(row.interval, show)]));
}

/** One dot per prompt, sorted: how many got better, how many worse, by how much. */
export function differenceChart(pair, open) {
  const { diffs, runA, runB, what, n, shown } = pair;
  if (!diffs.length) return null;
  const height = 230;
  const most = Math.max(...diffs.map((row) => Math.abs(row[1])), 0.05);
  const x = scale(0, Math.max(diffs.length - 1, 1), 52, WIDTH - 16);
  const y = scale(-most, most, height - 30, 12);
  const up = diffs.filter((row) => row[1] > 0).length;
  const down = diffs.filter((row) => row[1] < 0).length;
  const words = `${runB} minus ${runA}, ${what} per prompt: ${up} up, ${down} down, ${diffs.length - up - down} equal`
    + (shown < n ? ` (${shown} of ${n} prompts, evenly drawn)` : "");
  return figure("Paired differences", words,
    picture(height, words, yAxis(y, 52, WIDTH - 16, (value) => signed(value, 2)),
      s("line", { x1: 52, x2: WIDTH - 16, y1: y.at(0), y2: y.at(0), class: "zero" }),
      diffs.map(([id, value], i) => s("circle", {
        cx: x.at(i), cy: y.at(value), r: diffs.length > 200 ? 2 : 4,
        class: `point ${value > 0 ? "up" : value < 0 ? "down" : "even"}`,
        on: { click: () => open(id) },
      }, s("title", {}, `${id}: ${signed(value, 3)}`))),
      label(WIDTH - 16, height - 8, "prompts, sorted", { "text-anchor": "end", class: "dim" })),
    ["prompt", "difference"], diffs.slice(0, 200).map(([id, value]) => [id, signed(value, 3)]));
}

/** How the chance to pass grows with k (at least one) and shrinks (all of them). */
export function passKChart(runs) {
  const lines = runs.filter((run) => run.perK?.length);
  if (!lines.length) return null;
  const most = Math.max(...lines.flatMap((run) => run.perK.map((row) => row.k)));
  if (most < 2) return null;
  const height = 250;
  const x = { ...scale(1, most, 48, WIDTH - 20), ticks: Array.from({ length: most }, (_, i) => i + 1).filter((k) => most <= 12 || k % Math.ceil(most / 10) === 1) };
  const y = scale(0, 1, height - 32, 12);
  const curve = (run, key, style) => {
    const at = run.perK.map((row) => [x.at(row.k), y.at(row[key]), row[`${key}Interval`]]);
    const band = at.filter((point) => point[2]);
    const ends = (interval) => (Array.isArray(interval) ? interval : [interval.low, interval.high]);
    return s("g", { class: `${hue(run.hue)} ${style}` },
      band.length > 1 ? s("path", { class: "band", d: `M${band.map((p) => `${p[0]},${y.at(ends(p[2])[1])}`).join("L")}L${band.toReversed().map((p) => `${p[0]},${y.at(ends(p[2])[0])}`).join("L")}Z` }) : null,
      s("path", { class: "curve", d: `M${at.map((p) => `${p[0]},${p[1]}`).join("L")}` }),
      at.map((p) => s("circle", { cx: p[0], cy: p[1], r: 3, class: "dot" })));
  };
  const rows = lines.flatMap((run) => run.perK.map((row) => [run.name, row.k, percent(row.passAtK, 1), percent(row.passExpK, 1)]));
  const shape = figure("pass@k and pass^k", "Full line: at least one of k trials passes. Dashed: all of them do. Unbiased, with 95 % bands.",
    picture(height, "pass@k and pass^k by k", xAxis(x, 12, height - 32, (k) => `k=${k}`), yAxis(y, 48, WIDTH - 20, percent),
      lines.map((run) => [curve(run, "passAtK", "full"), curve(run, "passExpK", "dashed")])),
    ["run", "k", "pass@k", "pass^k"], rows);
  shape.querySelector("figcaption").append(legend(runs.map((run) => run.name)));
  return shape;
}

/** Pass rate by category: one row per category, one column per run. */
export function heatMap(names, categories) {
  const all = [...new Set(Object.values(categories).flatMap(Object.keys))].sort();
  if (all.length < 2 && all[0] === "(uncategorized)") return null;
  const rows = all.slice(0, MOST_CATEGORIES);
  const left = 170;
  const cell = (WIDTH - left - 10) / names.length;
  const height = rows.length * 30 + 34;
  const body = rows.flatMap((name, i) => names.map((run, n) => {
    const told = categories[run]?.[name];
    const rate = told?.passRate;
    const step = known(rate) ? `heat-${Math.round(rate * 10)}` : "heat-none";
    const text = told ? (known(rate) ? percent(rate) : "not measured") : "";
    return s("g", {},
      s("rect", { x: left + n * cell, y: 28 + i * 30, width: cell - 3, height: 27, rx: 3, class: step }),
      label(left + (n + 0.5) * cell, 46 + i * 30, text, { "text-anchor": "middle", class: `on-${step}` }),
      s("title", {}, told ? `${name}, ${run}: ${text}, ${told.nMeasured} trials measured, ${limits(told.interval)}` : ""));
  }));
  return figure("Categories", `Pass rate of each category${all.length > rows.length ? ` (the first ${rows.length} of ${all.length})` : ""}.`,
    picture(height, "Pass rate by category",
      names.map((run, n) => label(left + (n + 0.5) * cell, 18, short(run, Math.max(6, Math.floor(cell / 7))), { "text-anchor": "middle" })),
      rows.map((name, i) => label(left - 10, 46 + i * 30, short(name), { "text-anchor": "end", class: "name" })), body),
    ["category", ...names], rows.map((name) => [name, ...names.map((run) => {
      const told = categories[run]?.[name];
      return told ? `${percent(told.passRate)} (${limits(told.interval)})` : null;
    })]));
}


