// When each step of a trial happened, on one line of time; a click goes to the step.
import { callState, stepLine } from "./calls.js";
import { stepTime } from "./cards.js";
import { scale, xAxis } from "./charts.js";
import { duration, h, svg } from "./dom.js";
import { counted } from "./words.js";

const MAX_BARS = 1500;
const TIMELINE_WIDTH = 1100;
const TIMELINE_LANES = { thought: 0, message: 1, plan: 1, tool_call: 2 };

export function timeline(steps, totalMs, linkTo) {
  if (!steps.length) return null;
  const last = endOf(steps, totalMs);
  const x = scale(0, last, 78, TIMELINE_WIDTH - 16);
  const every = Math.ceil(steps.length / MAX_BARS);
  const bars = drawnSteps(steps, every).map(([step, number, state]) =>
    timelineBar(step, number, state, { x, last, linkTo }),
  );
  const names = ["thoughts", "messages", "tools"].map((name, lane) =>
    svg("text", { x: 70, y: 17 + lane * 18, "text-anchor": "end" }, name),
  );
  const label = `Timeline of ${counted(steps.length, "step")} over ${duration(last)}`;
  const viewBox = `0 0 ${TIMELINE_WIDTH} 84`;
  const picture = svg(
    "svg",
    { viewBox, role: "group", class: "picture", "aria-label": label },
    xAxis(x, 4, 62, duration),
    names,
    bars,
  );
  const sampled = every > 1 ? h("p", { class: "dim" }, `Every ${every}th step is drawn.`) : null;
  return h(
    "div",
    { class: "timeline", tabindex: "0", role: "region", "aria-label": "Timeline" },
    picture,
    sampled,
  );
}

/** Of very many steps each nth, and those that went wrong as far as there is room for them. */
function drawnSteps(steps, every) {
  const drawn = [];
  let troubles = 0;
  steps.forEach((step, number) => {
    const state = callState(step);
    if (state !== "done") troubles += 1;
    const isDrawn = number % every === 0 || (state !== "done" && troubles <= MAX_BARS);
    if (isDrawn) drawn.push([step, number, state]);
  });
  return drawn;
}

function endOf(steps, totalMs) {
  let last = Math.max(totalMs || 0, 1);
  for (const step of steps) last = Math.max(last, (step.timestamp ?? 0) + (step.duration ?? 0));
  return last;
}

function timelineBar(step, number, state, { x, last, linkTo }) {
  const start = step.timestamp ?? 0;
  const lane = TIMELINE_LANES[step.type] ?? 1;
  // A call that never finished ran until the trial ended.
  const end = state === "unfinished" ? last : start + (step.duration ?? 0);
  const what = state === "unfinished" ? "never finished" : stepTime({ ...step, timestamp: start });
  const bar = svg("rect", {
    x: x.at(start),
    y: 6 + lane * 18,
    width: Math.max(2.5, x.at(end) - x.at(start)),
    height: 14,
    rx: 2,
    class: `bar lane-${lane} ${state}`,
  });
  const title = svg("title", {}, `${number + 1} ${stepLine(step).slice(0, 120)}: ${what}`);
  // Not a stop of the Tab key: the outline beside it lists the same steps.
  return svg("a", { href: linkTo(number), tabindex: "-1", "aria-hidden": "true" }, title, bar);
}
