// The steps of a trajectory: thoughts, messages, tool calls folded, sub-agents nested.
import { add, h, longText } from "./dom.js";
import { diffText, editOf, looksLikeDiff } from "./diff.js";
import { duration, money, count } from "./format.js";
import { markdown } from "./markdown.js";

const BATCH = 200;
const NAMES = { thought: "Thought", message: "Message", tool_call: "Tool", plan: "Plan" };

/** Nests the steps of sub-agents under the call that started them; numbers stay those of the file. */
export function nest(steps) {
  const nodes = steps.map((step, number) => ({ step, number, children: [] }));
  const calls = new Map();
  for (const node of nodes) if (node.step.callId !== undefined && !calls.has(node.step.callId)) calls.set(node.step.callId, node);
  const top = [];
  for (const node of nodes) {
    const parent = node.step.parent === undefined ? null : calls.get(node.step.parent);
    if (parent && parent.number < node.number) parent.children.push(node);
    else top.push(node);
  }
  return top;
}

/** Shows steps batch by batch; until is the step that must be there at once. */
export function stepList(steps, { turns = [], until = 0, linkTo } = {}) {
  const nodes = nest(steps);
  const list = h("ol", { class: "steps" });
  const more = h("button", { type: "button", class: "more" }, "Show more steps");
  let shown = 0;
  let turn = null;
  const grow = () => {
    const next = nodes.slice(shown, shown + BATCH);
    for (const node of next) {
      if (node.step.turn !== undefined && node.step.turn !== turn) {
        turn = node.step.turn;
        list.append(h("li", { class: "turn" }, `Turn ${turn}`, h("span", { class: "dim" }, usageWords(turns[turn - 1]))));
      }
      list.append(stepView(node, linkTo));
    }
    shown += next.length;
    more.hidden = shown >= nodes.length;
  };
  grow();
  while (shown < nodes.length && nodes[shown - 1].number < until) grow();
  more.addEventListener("click", grow);
  return h("div", {}, list, more);
}

export function usageWords(usage) {
  if (!usage) return "";
  const parts = [];
  if (usage.inputTokens !== undefined) parts.push(`${count(usage.inputTokens)} in`);
  if (usage.outputTokens !== undefined) parts.push(`${count(usage.outputTokens)} out`);
  if (usage.cacheReadTokens !== undefined) parts.push(`${count(usage.cacheReadTokens)} cached`);
  if (usage.reasoningTokens !== undefined) parts.push(`${count(usage.reasoningTokens)} reasoning`);
  const tokens = parts.length ? `${parts.join(" / ")} tokens` : "";
  const cost = usage.costUsd === undefined ? "" : `${money(usage.costUsd)}${usage.costSource === "estimated" ? " (estimated)" : ""}`;
  return [tokens, cost].filter(Boolean).map((text) => ` · ${text}`).join("");
}

function stepView({ step, number, children }, linkTo) {
  const failed = step.status === "failed" || step.error !== undefined || (step.exitCode ?? 0) !== 0;
  const kind = Object.hasOwn(NAMES, step.type) ? step.type : "other";
  const title = h("div", { class: "title" },
    h("a", { class: "where", href: linkTo?.(number) ?? `#step-${number}`, "aria-label": `Step ${number + 1}` }, number + 1),
    h("b", {}, NAMES[step.type] ?? String(step.type)),
    step.type === "tool_call" ? [" ", h("code", {}, step.name ?? "unknown")] : null,
    failed ? h("span", { class: "mark fail" }, ` ✗ ${step.exitCode === undefined ? "failed" : `exit ${step.exitCode}`}`) : null,
    h("span", { class: "dim" }, ` ${duration(step.timestamp)}${step.duration === undefined ? "" : ` + ${duration(step.duration)}`}${usageWords(step.usage)}`));
  const view = h("li", { class: `step ${kind}${failed ? " failed" : ""}`, id: `step-${number}` }, title, content(step));
  if (children.length) {
    view.append(h("details", { class: "nested", open: true }, h("summary", {}, `Sub-agent, ${children.length} steps`),
      h("ol", { class: "steps" }, children.map((child) => stepView(child, linkTo)))));
  }
  return view;
}

function content(step) {
  if (step.type === "tool_call") return toolParts(step);
  if (step.type === "plan") return planView(step);
  if (step.type === "message" || step.type === "thought") return markdown(step.content ?? "");
  return valueView(step);
}

function toolParts(step) {
  const input = step.input === undefined ? null : fold("Input", peek(step.input), () => editOf(step.input) ?? valueView(step.input));
  const output = step.output === undefined ? null : fold("Output", peek(step.output), () => valueView(step.output));
  return [input, output, step.error === undefined ? null : longText(step.error, { class: "text error" })];
}

/** Folded until it is opened; only then is it built. */
function fold(name, glimpse, build) {
  const details = h("details", { class: "fold" }, h("summary", {}, name, " ", h("span", { class: "dim" }, glimpse)));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) add(details, build());
  });
  return details;
}

function peek(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.slice(0, 90).replaceAll("\n", " ");
}

export function valueView(value) {
  if (typeof value === "string") return looksLikeDiff(value) ? diffText(value) : longText(value);
  if (value && typeof value === "object" && !Array.isArray(value)) {
    const texts = Object.entries(value).filter(([, inner]) => typeof inner === "string" && inner.includes("\n"));
    if (texts.length) {
      const rest = Object.fromEntries(Object.entries(value).filter(([name]) => !texts.some(([text]) => text === name)));
      return h("div", {}, Object.keys(rest).length ? longText(JSON.stringify(rest, null, 2)) : null,
        texts.map(([name, text]) => [h("div", { class: "dim" }, name), valueView(text)]));
    }
  }
  return longText(JSON.stringify(value, null, 2) ?? "");
}

function planView(step) {
  const entries = (step.entries ?? []).map((entry) => {
    const text = typeof entry === "string" ? entry : entry?.content ?? entry?.text ?? entry?.step ?? JSON.stringify(entry);
    const done = entry?.status === "completed" ? "☑" : entry?.status === "in_progress" ? "◐" : "☐";
    return h("li", {}, `${done} `, String(text));
  });
  return [h("ul", { class: "entries" }, entries), step.content ? markdown(step.content) : null];
}
