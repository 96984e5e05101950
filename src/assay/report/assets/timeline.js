// When each step happened, as bars on one line of time; a click goes to the step.
import { s } from "./dom.js";
import { duration } from "./format.js";
import { scale, xAxis } from "./charts.js";

const MOST = 1500;
const LONG = 1100;
const LANES = { thought: 0, message: 1, plan: 1, tool_call: 2 };

export function timeline(steps, totalMs, go) {
  if (!steps.length) return null;
  const last = Math.max(totalMs || 0, ...steps.slice(-50).map((step) => (step.timestamp ?? 0) + (step.duration ?? 0)), 1);
  const x = scale(0, last, 78, LONG - 16);
  const every = Math.ceil(steps.length / MOST);
  const bars = steps.map((step, number) => [step, number]).filter(([, number]) => number % every === 0).map(([step, number]) => {
    const from = step.timestamp ?? 0;
    const width = Math.max(2.5, x.at(from + (step.duration ?? 0)) - x.at(from));
    const lane = LANES[step.type] ?? 1;
    return s("rect", { x: x.at(from), width, y: 6 + lane * 18, height: 14, rx: 2, class: `bar lane-${lane}${step.status === "failed" ? " failed" : ""}`, on: { click: () => go(number) } },
      s("title", {}, `${number + 1} ${step.name ?? step.type}: ${duration(from)}${step.duration === undefined ? "" : ` + ${duration(step.duration)}`}`));
  });
  const names = ["thoughts", "messages", "tools"].map((name, lane) => s("text", { x: 70, y: 17 + lane * 18, "text-anchor": "end" }, name));
  return s("svg", { viewBox: `0 0 ${LONG} 84`, role: "img", class: "picture", "aria-label": `Timeline of ${steps.length} steps over ${duration(last)}` }, xAxis(x, 4, 62, duration), names, bars);
}
