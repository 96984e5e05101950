// Tool calls of different agents under one name: `Bash {"command"}`, `exec_command {"cmd"}` and
// `run_shell_command` are all a command in a shell. What the agent really sent is kept and shown.
import { kindOfTool, kindWord, mcpNames } from "./tools.js";

const SHELL_WRAPPER = /^(?:\/usr)?(?:\/bin\/)?(?:ba|z)?sh -l?c (['"]?)([^]*)\1$/;
const PATCH_FILE = /^\*\*\* (Add|Update|Delete) File: (.*)$/;
const PATH_FIELDS =
  "file_path filePath path absolute_path absolutePath notebook_path target_file dir_path";
const ENDED = new Set(["completed", "failed", "success", "error", "done"]);
const MAX_COMPARED_CHARACTERS = 20000;

/** What a call does: its kind, what it is about, and the parts that its card shows. */
export function describeCall(step) {
  const name = String(step.name ?? "unknown");
  const kind = kindOfTool(name);
  if (kind === "mcp") return { kind, about: mcpNames(name).join(" · ") };
  const input = step.input ?? {};
  const pathOf = (from) => shortPath(textOf(from, PATH_FIELDS), step.cwd);
  if (kind === "shell") return { kind, about: commandText(input) };
  if (kind === "edit") return describeEdit(input, pathOf);
  if (kind === "write")
    return {
      kind,
      about: pathOf(input),
      content: textOf(input, "content file_text text contents"),
    };
  if (kind === "read" || kind === "list") return { kind, about: pathOf(input) };
  if (kind === "search") {
    const place = pathOf(input);
    return { kind, about: textOf(input, "pattern query regex q") + (place ? ` in ${place}` : "") };
  }
  if (kind === "web") return { kind, about: textOf(input, "url query prompt") };
  if (kind === "agent") return { kind, about: textOf(input, "description prompt message") };
  if (kind === "plan") return { kind, about: "" };
  return { kind: "other", about: "" };
}

/** One line for a step, as outlines and timelines show it. */
export function stepLine(step) {
  if (step.type !== "tool_call") return firstLine(step.content ?? "") || String(step.type);
  const { kind, about } = describeCall(step);
  if (kind === "shell") return `$ ${firstLine(about)}`;
  if (kind === "other" || kind === "plan") return `${step.name ?? "unknown"} ${inputLine(step)}`;
  return `${kindWord(kind)} ${firstLine(about)}${kind === "mcp" ? ` ${inputLine(step)}` : ""}`;
}

function inputLine({ input }) {
  if (input === undefined || input === null) return "";
  return firstLine(typeof input === "string" ? input : JSON.stringify(input));
}

function firstLine(text) {
  const line = String(text).trimStart().slice(0, 200);
  const end = line.indexOf("\n");
  return end < 0 ? line : line.slice(0, end);
}

/** How a call ended: "failed", "unfinished" or "done". */
export function callState(step) {
  if (step.type !== "tool_call") return "done";
  if (step.status === "failed" || step.error !== undefined || (step.exitCode ?? 0) !== 0) {
    return "failed";
  }
  if (step.status === "cancelled" || step.status === "canceled") return "unfinished";
  const open = !ENDED.has(step.status) && step.output === undefined && step.duration === undefined;
  return open && step.status !== undefined ? "unfinished" : "done";
}

/** What must be equal in two steps for them to be the same; times, ids and wording do not count. */
export function comparableStep(step) {
  if (step.type !== "tool_call") {
    const text = typeof step.content === "string" ? step.content.trim() : step.content;
    return JSON.stringify([step.type, text, step.entries]).slice(0, MAX_COMPARED_CHARACTERS);
  }
  const call = describeCall(step);
  const parts = COMPARED[call.kind]?.(call, step) ?? [
    call.about,
    step.name,
    sortedEntries(step.input),
  ];
  const text = JSON.stringify([call.kind, ...parts]).slice(0, MAX_COMPARED_CHARACTERS);
  // Every trial has a working folder of its own.
  return step.cwd ? text.replaceAll(`${step.cwd}/`, "").replaceAll(step.cwd, ".") : text;
}

const COMPARED = {
  shell: (call) => [call.about.trim()],
  read: (call) => [call.about],
  list: (call) => [call.about],
  search: (call) => [call.about],
  web: (call) => [call.about],
  write: (call) => [call.about, call.content.trim()],
  edit: (call) => [call.about, call.before.trim(), call.after.trim()],
  mcp: (call, step) => [call.about, sortedEntries(step.input)],
};

function sortedEntries(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
}

function commandText(input) {
  if (typeof input === "string") return input;
  const command = input.command ?? input.cmd ?? input.script ?? "";
  if (Array.isArray(command)) return unwrapped(command.map(String).join(" "));
  return unwrapped(String(command));
}

/** The command itself, where an agent hands it to a shell: bash -lc "..." */
function unwrapped(command) {
  return SHELL_WRAPPER.exec(command)?.[2] ?? command;
}

function describeEdit(input, pathOf) {
  const patch = patchText(input);
  if (patch !== null) return readPatch(patch);
  const changes = Array.isArray(input.changes) ? input.changes : [];
  if (changes.length) {
    return {
      kind: "edit",
      about: changes.map((one) => shortPath(one?.path)).join(", "),
      before: "",
      after: JSON.stringify(changes),
    };
  }
  const edits = Array.isArray(input.edits) ? input.edits : [input];
  const before = edits
    .map((edit) => textOf(edit, "old_string oldString old_str oldText"))
    .join("\n");
  const after = edits
    .map((edit) => textOf(edit, "new_string newString new_str newText file_text"))
    .join("\n");
  return { kind: "edit", about: pathOf(input), before, after };
}

function patchText(input) {
  const text = typeof input === "string" ? input : (input.input ?? input.patch ?? input.diff);
  return typeof text === "string" && text.includes("***") ? text : null;
}

/** A patch of apply_patch: a single new file is a file written, everything else is an edit. */
function readPatch(patch) {
  const paths = [];
  const before = [];
  const after = [];
  let added = 0;
  for (const line of patch.split("\n")) {
    const file = PATCH_FILE.exec(line);
    if (file) {
      paths.push(shortPath(file[2]));
      added += file[1] === "Add";
    } else if (line.startsWith("-")) before.push(line.slice(1));
    else if (line.startsWith("+")) after.push(line.slice(1));
  }
  const about = paths.join(", ");
  if (added && added === paths.length) return { kind: "write", about, content: after.join("\n") };
  return { kind: "edit", about, before: before.join("\n"), after: after.join("\n"), patch };
}

/** Where a file that a call read or wrote is on the machine of the run: its path and line. */
export function fileOf(step) {
  const { kind, about } = describeCall(step);
  if (kind !== "read" && kind !== "write" && kind !== "edit") return null;
  const input = step.input ?? {};
  const named = textOf(input, PATH_FIELDS) || about.split(", ")[0];
  const inside = named.replace(/^(\.\/|\/workspace\/)/, "");
  const path = inside.startsWith("/") ? inside : step.cwd && inside ? `${step.cwd}/${inside}` : "";
  const line = input.line ?? input.offset ?? input.start_line ?? input.view_range?.[0];
  // What begins with two slashes would be another machine on some systems.
  if (!path || path.startsWith("//") || path.length > 4096) return null;
  return { path, line: Number.isInteger(line) && line > 0 ? line : 1 };
}

function shortPath(path, cwd) {
  const text = String(path ?? "");
  if (cwd && text.startsWith(`${cwd}/`)) return text.slice(cwd.length + 1);
  return text.replace(/^(\.\/|\/workspace\/)/, "");
}

/** The first of some fields that is a text. */
function textOf(input, names) {
  if (input === null || typeof input !== "object") return "";
  for (const name of names.split(" ")) if (typeof input[name] === "string") return input[name];
  return "";
}
