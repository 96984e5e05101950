// One step as a card: a command with its exit code and the beginning of its output, an edit as a
// diff, a file with its path, a search, a call of an MCP server, a sub-agent with its own steps.
import { callState, describeCall, fileOf, stepLine } from "./calls.js";
import { append, count, duration, h, longText, shorten } from "./dom.js";
import { diffView, editView, looksLikeDiff, markdown } from "./markdown.js";
import { usageText } from "./steps.js";
import { kindWord } from "./tools.js";
import { counted } from "./words.js";

const FIRST_LINES = 8;
const MAX_LINE_CHARACTERS = 2000;
const STEP_NAMES = { thought: "Thought", message: "Message", tool_call: "Tool", plan: "Plan" };

/** A step as an item of a list; nested builds the list of what its sub-agent did. */
export function stepCard({ step, number, children }, { id, link, dense }, nested) {
  const state = callState(step);
  const kind = Object.hasOwn(STEP_NAMES, step.type) ? step.type : "other";
  const view = h("li", { class: `step ${kind} ${state}`, id });
  const title = stepTitle(step, number, state, link);
  const build = () => [stepContent(step, state), subAgentView(children, nested)];
  if (dense) append(view, [title, fold(h("span", { class: "line" }, stepLine(step)), build)]);
  else append(view, [title, build()]);
  return view;
}

export function stepTitle(step, number, state, link) {
  const where = h(
    "a",
    { class: "where", href: link ?? `#step-${number}`, "aria-label": `Step ${number + 1}` },
    number + 1,
  );
  return h(
    "div",
    { class: "title" },
    where,
    h("b", {}, stepName(step)),
    step.type === "tool_call" ? [" ", h("code", {}, step.name ?? "unknown")] : null,
    stateMark(step, state),
    h("span", { class: "dim" }, ` ${stepTime(step)}${usageText(step.usage)}`),
  );
}

function stepName(step) {
  if (step.type === "tool_call") return kindWord(describeCall(step).kind);
  return STEP_NAMES[step.type] ?? String(step.type);
}

function stateMark({ exitCode, type }, state) {
  if (state === "unfinished") return h("span", { class: "mark fail" }, " ⚠ never finished");
  if (state === "failed") {
    return h("span", { class: "mark fail" }, ` ✗ ${exitCode ? `exit ${exitCode}` : "failed"}`);
  }
  return type === "tool_call" && exitCode === 0
    ? h("span", { class: "mark pass" }, " ✓ exit 0")
    : null;
}

export function stepTime({ timestamp, duration: ms }) {
  return ms === undefined ? duration(timestamp) : `${duration(timestamp)} + ${duration(ms)}`;
}

function subAgentView(children, nested) {
  if (!children.length) return null;
  const summary = h("summary", {}, `Sub-agent, ${counted(children.length, "step")}`);
  return h("details", { class: "nested", open: true }, summary, nested());
}

function stepContent(step, state) {
  if (step.type === "tool_call") return callContent(step, state);
  if (step.type === "plan") return planContent(step);
  if (step.type === "message" || step.type === "thought") return markdown(step.content ?? "");
  const { cwd, ...own } = step; // Added by readSteps.
  return valueView(own);
}

function callContent(step, state) {
  const call = describeCall(step);
  const failure = step.error === undefined ? null : longText(step.error, { class: "text error" });
  const original = SHOWS_INPUT.has(call.kind) ? null : inputFold(step, "Call as sent ");
  original?.classList.add("sent");
  return [CALL_VIEWS[call.kind](call, step, state), failure, original];
}

/** Kinds whose card shows the input as it is; the others fold it away at their end. */
const SHOWS_INPUT = new Set(["web", "mcp", "agent", "other"]);

const CALL_VIEWS = {
  shell: (call, step) => [
    textStart(`$ ${call.about}`, "text command"),
    callOutput(step, { open: true }),
  ],
  read: (call, step, state) => [
    aboutLine(call, step),
    callOutput(step, { open: state === "failed" }),
  ],
  list: (call, step, state) => [aboutLine(call), callOutput(step, { open: state === "failed" })],
  search: (call, step) => [aboutLine(call), callOutput(step, { open: true })],
  web: (call, step) => [aboutLine(call), inputFold(step), callOutput(step, { open: true })],
  write: (call, step, state) => [
    aboutLine(call, step),
    call.content ? textStart(call.content) : null,
    callOutput(step, { open: state === "failed" }),
  ],
  edit: (call, step, state) => [
    aboutLine(call, step),
    call.patch ? diffView(call.patch) : editView(call),
    callOutput(step, { open: state === "failed" }),
  ],
  mcp: (call, step) => [aboutLine(call), inputFold(step), callOutput(step, { open: true })],
  agent: (call, step) => [aboutLine(call), inputFold(step), callOutput(step, { open: true })],
  plan: (call, step) => [planOf(step.input), callOutput(step, { open: false })],
  other: (call, step, state) => [inputFold(step), callOutput(step, { open: state === "failed" })],
};

function aboutLine({ about }, step) {
  if (!about) return null;
  const name = h("code", {}, shorten(about, 500));
  const href = step && editorLink(fileOf(step));
  const title = "Open in your editor (see ASSAY_EDITOR_URL)";
  return h("p", { class: "about" }, href ? h("a", { href, title }, name) : name);
}

/** A link by which an editor opens a file at its line, if the page names an editor. */
function editorLink(file) {
  const form = document.querySelector('meta[name="assay-editor"]')?.content;
  if (!form || !file) return null;
  const path = file.path.split("/").map(encodeURIComponent).join("/");
  return form.replace("{path}", () => path).replace("{line}", () => String(file.line));
}

/** The call exactly as the agent sent it. */
function inputFold({ input }, title = "Input ") {
  if (input === undefined) return null;
  const preview = h("span", { class: "dim" }, previewText(input));
  return fold([title, preview], () => valueView(input));
}

/** What a call gave back: its first lines at once, or folded where it is rarely read. */
export function callOutput({ output }, { open }) {
  if (output === undefined || output === "") return null;
  if (open && typeof output === "string" && !looksLikeDiff(output)) return textStart(output);
  const preview = h("span", { class: "dim" }, previewText(output));
  return fold(["Output ", preview], () => valueView(output));
}

/** The first lines of a text, and a button for all of them. */
function textStart(text, className = "text") {
  const whole = String(text);
  const props = { class: className, tabindex: "0" };
  const start = cutLines(whole);
  if (start.length === whole.length) return longText(whole, props);
  const lines = whole.split("\n").length;
  const caption = lines > FIRST_LINES ? `Show all ${count(lines)} lines` : "Show all";
  const button = h("button", { type: "button", class: "more" }, caption);
  const box = h("div", { class: "cut" }, h("pre", props, start), button);
  const showAll = () => box.replaceWith(longText(whole, props));
  button.addEventListener("click", showAll);
  box.addEventListener("unfold", showAll); // before the page is printed
  return box;
}

function cutLines(text) {
  let end = -1;
  for (let line = 0; line < FIRST_LINES; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) return text.slice(0, MAX_LINE_CHARACTERS);
  }
  return text.slice(0, Math.min(end, MAX_LINE_CHARACTERS));
}

function previewText(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.slice(0, 90).replaceAll("\n", " ");
}

function planContent(step) {
  return [entryList(step.entries ?? []), step.content ? markdown(step.content) : null];
}

function planOf(input) {
  const entries = input?.todos ?? input?.plan ?? input?.entries;
  return Array.isArray(entries) ? entryList(entries) : null;
}

function entryList(entries) {
  const items = entries.map((entry) => {
    const text =
      typeof entry === "string"
        ? entry
        : (entry?.content ??
          entry?.description ??
          entry?.text ??
          entry?.step ??
          JSON.stringify(entry));
    const boxes = { completed: "☑", in_progress: "◐" };
    const box = Object.hasOwn(boxes, entry?.status) ? boxes[entry.status] : "☐";
    return h("li", {}, `${box} `, String(text));
  });
  return h("ul", { class: "entries" }, items);
}

/** A folded part of the page whose content is built when it is first opened. */
export function fold(summary, build) {
  const details = h("details", { class: "fold" }, h("summary", {}, summary));
  const fill = () => {
    if (details.childElementCount === 1) append(details, build());
  };
  details.addEventListener("toggle", () => {
    if (details.open) fill();
  });
  // Before the page is printed: the toggle event would come too late.
  details.addEventListener("unfold", fill);
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
