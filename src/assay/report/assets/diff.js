// Colours changes: unified diffs, patches, and the old and new text of an edit.
import { h, longText } from "./dom.js";

const MOST_LINES = 4000;

export function looksLikeDiff(text) {
  const head = String(text).slice(0, 4000);
  return /^(diff --git |@@ |\*\*\* Begin Patch|--- .*\n\+\+\+ )/m.test(head);
}

export function diffText(text) {
  const lines = String(text).split("\n");
  if (lines.length > MOST_LINES) return longText(text);
  return shown(lines.map((line) => [kindOf(line), line]));
}

/** An edit as tools describe it: what stood there and what shall stand there. */
export function editOf(input) {
  if (!input || typeof input !== "object") return null;
  const before = input.old_string ?? input.oldText ?? input.old_str;
  const after = input.new_string ?? input.newText ?? input.new_str;
  if (typeof before !== "string" || typeof after !== "string") return null;
  if (before.length + after.length > 100000) return null;
  const lines = [
    ...before.split("\n").map((line) => ["minus", `-${line}`]),
    ...after.split("\n").map((line) => ["plus", `+${line}`]),
  ];
  return shown(lines);
}

function kindOf(line) {
  if (/^(\+\+\+|---|diff --git|index |\*\*\* )/.test(line)) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (line.startsWith("+")) return "plus";
  if (line.startsWith("-")) return "minus";
  return "same";
}

function shown(lines) {
  return h("pre", { class: "text diff", tabindex: "0" },
    lines.map(([kind, line]) => h("span", { class: kind }, line, "\n")));
}
