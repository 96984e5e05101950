// What it took: cost against quality, time, failures and tools.
import { s } from "./dom.js";
import { count, duration, known, money, percent } from "./format.js";
import { WIDTH, extent, figure, hue, label, legend, picture, scale, short, xAxis, yAxis } from "./charts.js";

/** Cost against quality; the line joins the runs that no other run beats in both. */
export function paretoChart(runs) {
  const points = runs.filter((run) => known(run.cost) && known(run.quality));
  if (points.length < 1) return null;
  const height = 250;
  const [low, high] = extent(points.map((run) => run.cost));
  const x = scale(Math.max(0, low - (high - low || high || 1) * 0.25), high + (high - low || high || 1) * 0.35, 52, WIDTH - 24);
  const y = scale(0, 1, height - 34, 12);
  const front = paretoFront(points);
  const words = "Up and to the left is better. " + (points.length > 1 ? `Not beaten in both: ${front.map((run) => run.name).join(", ")}.` : "");
  return figure("Cost against quality", words,
    picture(height, words, xAxis(x, 12, height - 34, money), yAxis(y, 52, WIDTH - 24, percent),
      front.length > 1 ? s("path", { class: "front", d: `M${front.map((run) => `${x.at(run.cost)},${y.at(run.quality)}`).join("L")}` }) : null,
      points.map((run) => s("g", { class: hue(run.hue) },
        run.interval ? s("line", { x1: x.at(run.cost), x2: x.at(run.cost), y1: y.at(run.interval[0]), y2: y.at(run.interval[1]), class: "limits" }) : null,
        s("circle", { cx: x.at(run.cost), cy: y.at(run.quality), r: 6, class: "dot" }),
        label(x.at(run.cost) + 10, y.at(run.quality) - 8, short(run.name), { class: "name" }))),
      label(WIDTH - 24, height - 4, "cost of a trial", { "text-anchor": "end", class: "dim" })),
    ["run", "cost of a trial", "pass rate"], points.map((run) => [run.name, money(run.cost), percent(run.quality, 1)]));
}

export function paretoFront(points) {
  const beaten = (a, b) => b.cost <= a.cost && b.quality >= a.quality && (b.cost < a.cost || b.quality > a.quality);
  return points.filter((a) => !points.some((b) => beaten(a, b))).sort((a, b) => a.cost - b.cost);
}

/** How long trials took, on a logarithmic axis: one row of bars per run. */
export function latencyChart(latency, names) {
  const rows = names.map((name, n) => ({ name, n, ...latency.runs[name] })).filter((row) => row.counts?.some(Boolean));
  if (!rows.length) return null;
  const { edges } = latency;
  const left = 130;
  const each = 62;
  const height = rows.length * each + 36;
  const x = scale(edges[0], edges[edges.length - 1], left, WIDTH - 20, { log: true });
  return figure("Time of a trial", "Logarithmic. The lines mark the median and the 90th percentile.",
    picture(height, `Time of a trial: ${rows.map((row) => `${row.name} median ${duration(row.p50)}`).join(", ")}`,
      xAxis(x, 8, height - 28, duration),
      rows.map((row, i) => {
        const base = 8 + (i + 1) * each - 8;
        const most = Math.max(...row.counts);
        return s("g", { class: hue(row.n) },
          label(left - 10, base - 14, short(row.name, 17), { "text-anchor": "end", class: "name" }),
          row.counts.map((n, bin) => n ? s("rect", { x: x.at(edges[bin]) + 0.5, width: Math.max(1, x.at(edges[bin + 1]) - x.at(edges[bin]) - 1), y: base - (n / most) * (each - 16), height: (n / most) * (each - 16), class: "bar" }, s("title", {}, `${duration(edges[bin])} to ${duration(edges[bin + 1])}: ${n}`)) : null),
          [row.p50, row.p90].map((value) => known(value) ? s("line", { x1: x.at(value), x2: x.at(value), y1: base - each + 14, y2: base, class: "quantile" }) : null));
      })),
    ["run", "median", "p90", "trials"], rows.map((row) => [row.name, duration(row.p50), duration(row.p90), count(row.n_trials)]));
}

/** Bars beside each other, one group per thing, one bar per run. */
function barChart(title, words, things, names, valueOf, head, extra = () => null) {
  if (!things.length) return null;
  const left = 170;
  const each = names.length * 13 + 10;
  const height = things.length * each + 30;
  const most = Math.max(...things.flatMap((thing) => names.map((name) => valueOf(name, thing) || 0)), 1);
  const x = scale(0, most, left, WIDTH - 84);
  const shape = figure(title, words,
    picture(height, `${title}: ${things.map((thing) => `${thing} ${names.map((name) => valueOf(name, thing) || 0).join(" / ")}`).join(", ")}`,
      xAxis({ ...x, ticks: x.ticks.filter(Number.isInteger) }, 4, height - 24, count),
      things.map((thing, i) => {
        const top = 6 + i * each;
        return s("g", {},
          label(left - 10, top + (each - 10) / 2 + 4, short(thing), { "text-anchor": "end", class: "name" }),
          names.map((name, n) => {
            const value = valueOf(name, thing) || 0;
            return s("g", { class: hue(n) },
              s("rect", { x: left, y: top + n * 13, height: 11, width: Math.max(value ? 2 : 0, x.at(value) - left), class: "bar" }),
              value ? label(x.at(value) + 4, top + n * 13 + 10, `${count(value)}${extra(name, thing) ?? ""}`, { class: "small" }) : null);
          }));
      })),
    head, things.map((thing) => [thing, ...names.map((name) => count(valueOf(name, thing) || 0))]));
  if (names.length > 1) shape.querySelector("figcaption").append(legend(names));
  return shape;
}

export function causeChart(causes, names) {
  const things = [...new Set(names.flatMap((name) => Object.keys(causes[name] ?? {})))].sort();
  return barChart("Failures by cause", "agent_… counts against the agent; the others are no measurement of it.",
    things, names, (name, thing) => causes[name]?.[thing], ["cause", ...names]);
}

export function toolChart(tools, names) {
  const total = (thing) => names.reduce((sum, name) => sum + (tools[name]?.[thing]?.[0] ?? 0), 0);
  const things = [...new Set(names.flatMap((name) => Object.keys(tools[name] ?? {})))].sort((a, b) => total(b) - total(a)).slice(0, 12);
  return barChart("Tool use", "Calls of each tool; in brackets those that failed.", things, names,
    (name, thing) => tools[name]?.[thing]?.[0], ["tool", ...names],
    (name, thing) => (tools[name]?.[thing]?.[1] ? ` (${count(tools[name][thing][1])})` : ""));
}
