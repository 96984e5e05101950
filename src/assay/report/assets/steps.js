// The steps of a trajectory, as a list and on a line of time: thoughts, messages, plans and tool
// calls, with the steps of sub-agents below the call that started them.
import { scale, xAxis } from "./charts.js";
import { append, count, duration, h, longText, money, svg } from "./dom.js";
import { diffView, editView, looksLikeDiff, markdown } from "./markdown.js";

const STEPS_PER_BATCH = 200;
const MAX_BARS = 1500;
const TIMELINE_WIDTH = 1100;
const TIMELINE_LANES = { thought: 0, message: 1, plan: 1, tool_call: 2 };
const STEP_NAMES = { thought: "Thought", message: "Message", tool_call: "Tool", plan: "Plan" };

/** The steps of a row that any program may have written; what is no step is shown as it is. */
export function readSteps(trajectory) {
  return (Array.isArray(trajectory) ? trajectory : []).map((step) => {
    if (step === null || typeof step !== "object" || Array.isArray(step)) {
      return { type: "not a step", value: step };
    }
    const { timestamp, duration: ms, entries } = step;
    return {
      ...step,
      timestamp: Number.isFinite(timestamp) ? timestamp : undefined,
      duration: Number.isFinite(ms) ? ms : undefined,
      entries: Array.isArray(entries) ? entries : undefined,
    };
  });
}

/** Shows steps batch by batch, at once as far as step `until`. */
export function stepList(steps, { turns = [], until = 0, linkTo } = {}) {
  const nodes = nestSteps(steps);
  const list = h("ol", { class: "steps" });
  const moreButton = h("button", { type: "button", class: "more" }, "Show more steps");
  let shown = 0;
  let turn = null;
  const showMore = () => {
    const batch = nodes.slice(shown, shown + STEPS_PER_BATCH);
    for (const node of batch) {
      if (node.step.turn !== undefined && node.step.turn !== turn) {
        turn = node.step.turn;
        const usage = h("span", { class: "dim" }, usageText(turns[turn - 1]));
        list.append(h("li", { class: "turn" }, `Turn ${turn}`, usage));
      }
      list.append(stepView(node, linkTo));
    }
    shown += batch.length;
    moreButton.hidden = shown >= nodes.length;
  };
  showMore();
  while (shown < nodes.length && nodes[shown - 1].number < until) showMore();
  moreButton.addEventListener("click", showMore);
  return h("div", {}, list, moreButton);
}

/** Nests the steps of sub-agents below the call that started them; numbers stay as in the file. */
function nestSteps(steps) {
  const nodes = steps.map((step, number) => ({ step, number, children: [] }));
  const callers = new Map();
  for (const node of nodes) {
    const { callId } = node.step;
    if (callId !== undefined && !callers.has(callId)) callers.set(callId, node);
  }
  const top = [];
  for (const node of nodes) {
    const parent = node.step.parent === undefined ? null : callers.get(node.step.parent);
    // A parent that comes later would make a circle possible.
    if (parent && parent.number < node.number) parent.children.push(node);
    else top.push(node);
  }
  return top;
}

function stepView({ step, number, children }, linkTo) {
  const failed = step.status === "failed" || step.error !== undefined || (step.exitCode ?? 0) !== 0;
  const kind = Object.hasOwn(STEP_NAMES, step.type) ? step.type : "other";
  const view = h(
    "li",
    { class: `step ${kind}${failed ? " failed" : ""}`, id: `step-${number}` },
    stepTitle(step, number, failed, linkTo),
    stepContent(step),
  );
  if (children.length) {
    const views = children.map((child) => stepView(child, linkTo));
    const summary = h("summary", {}, `Sub-agent, ${children.length} steps`);
    const nested = h("ol", { class: "steps" }, views);
    view.append(h("details", { class: "nested", open: true }, summary, nested));
  }
  return view;
}

function stepTitle(step, number, failed, linkTo) {
  const reason = step.exitCode === undefined ? "failed" : `exit ${step.exitCode}`;
  return h(
    "div",
    { class: "title" },
    h(
      "a",
      {
        class: "where",
        href: linkTo?.(number) ?? `#step-${number}`,
        "aria-label": `Step ${number + 1}`,
      },
      number + 1,
    ),
    h("b", {}, STEP_NAMES[step.type] ?? String(step.type)),
    step.type === "tool_call" ? [" ", h("code", {}, step.name ?? "unknown")] : null,
    failed ? h("span", { class: "mark fail" }, ` ✗ ${reason}`) : null,
    h("span", { class: "dim" }, ` ${stepTime(step)}${usageText(step.usage)}`),
  );
}

function stepTime({ timestamp, duration: ms }) {
  return ms === undefined ? duration(timestamp) : `${duration(timestamp)} + ${duration(ms)}`;
}

/** Writes tokens and cost, each after a dot; nothing for what is unknown. */
export function usageText(usage) {
  if (!usage) return "";
  const { inputTokens, outputTokens, cacheReadTokens, reasoningTokens, costUsd } = usage;
  const tokens = [
    [inputTokens, "in"],
    [outputTokens, "out"],
    [cacheReadTokens, "cached"],
    [reasoningTokens, "reasoning"],
  ]
    .filter(([n]) => n !== undefined)
    .map(([n, word]) => `${count(n)} ${word}`)
    .join(" / ");
  const estimated = usage.costSource === "estimated" ? " (estimated)" : "";
  const parts = [];
  if (tokens) parts.push(` · ${tokens} tokens`);
  if (costUsd !== undefined) parts.push(` · ${money(costUsd)}${estimated}`);
  return parts.join("");
}

function stepContent(step) {
  if (step.type === "tool_call") return toolCallContent(step);
  if (step.type === "plan") return planContent(step);
  if (step.type === "message" || step.type === "thought") return markdown(step.content ?? "");
  return valueView(step);
}

function toolCallContent({ input, output, error }) {
  const part = (name, value, build) =>
    value === undefined
      ? null
      : fold([name, " ", h("span", { class: "dim" }, previewText(value))], build);
  return [
    part("Input", input, () => editView(input) ?? valueView(input)),
    part("Output", output, () => valueView(output)),
    error === undefined ? null : longText(error, { class: "text error" }),
  ];
}

function previewText(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.slice(0, 90).replaceAll("\n", " ");
}

function planContent(step) {
  const entries = (step.entries ?? []).map((entry) => {
    const text =
      typeof entry === "string"
        ? entry
        : (entry?.content ?? entry?.text ?? entry?.step ?? JSON.stringify(entry));
    const boxes = { completed: "☑", in_progress: "◐" };
    const box = Object.hasOwn(boxes, entry?.status) ? boxes[entry.status] : "☐";
    return h("li", {}, `${box} `, String(text));
  });
  return [h("ul", { class: "entries" }, entries), step.content ? markdown(step.content) : null];
}

/** A folded part of the page whose content is built when it is first opened. */
export function fold(summary, build) {
  const details = h("details", { class: "fold" }, h("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) append(details, build());
  });
  return details;
}

/** Shows any JSON value; texts of several lines inside an object stand below the rest of it. */
export function valueView(value) {
  if (typeof value === "string") return looksLikeDiff(value) ? diffView(value) : longText(value);
  const isObject = value && typeof value === "object" && !Array.isArray(value);
  const entries = isObject ? Object.entries(value) : [];
  const isLongText = ([, inner]) => typeof inner === "string" && inner.includes("\n");
  const texts = entries.filter(isLongText);
  if (!texts.length) return longText(JSON.stringify(value, null, 2) ?? "");
  const rest = entries.filter((entry) => !isLongText(entry));
  return h(
    "div",
    {},
    rest.length ? longText(JSON.stringify(Object.fromEntries(rest), null, 2)) : null,
    texts.map(([name, text]) => [h("div", { class: "dim" }, name), valueView(text)]),
  );
}

/** When each step happened, as bars on one line of time; a click goes to the step. */
export function timeline(steps, totalMs, goToStep) {
  if (!steps.length) return null;
  const ends = steps.slice(-50).map((step) => (step.timestamp ?? 0) + (step.duration ?? 0));
  const last = Math.max(totalMs || 0, ...ends, 1);
  const x = scale(0, last, 78, TIMELINE_WIDTH - 16);
  const every = Math.ceil(steps.length / MAX_BARS); // of very many steps, only each nth is drawn
  const bars = steps.map((step, number) =>
    number % every === 0 ? timelineBar(step, number, x, goToStep) : null,
  );
  const names = ["thoughts", "messages", "tools"].map((name, lane) =>
    svg("text", { x: 70, y: 17 + lane * 18, "text-anchor": "end" }, name),
  );
  return svg(
    "svg",
    {
      viewBox: `0 0 ${TIMELINE_WIDTH} 84`,
      role: "img",
      class: "picture",
      "aria-label": `Timeline of ${steps.length} steps over ${duration(last)}`,
    },
    xAxis(x, 4, 62, duration),
    names,
    bars,
  );
}

function timelineBar(step, number, x, goToStep) {
  const start = step.timestamp ?? 0;
  const lane = TIMELINE_LANES[step.type] ?? 1;
  const failed = step.status === "failed" ? " failed" : "";
  const time = stepTime({ ...step, timestamp: start });
  return svg(
    "rect",
    {
      x: x.at(start),
      y: 6 + lane * 18,
      width: Math.max(2.5, x.at(start + (step.duration ?? 0)) - x.at(start)),
      height: 14,
      rx: 2,
      class: `bar lane-${lane}${failed}`,
      on: { click: () => goToStep(number) },
    },
    svg("title", {}, `${number + 1} ${step.name ?? step.type}: ${time}`),
  );
}
