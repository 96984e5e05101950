// Texts with a form: a small, safe part of Markdown, and changes to files in colour.
// No HTML and no pictures; a link always shows where it leads.
import { h, longText } from "./dom.js";

const MAX_MARKDOWN_CHARACTERS = 200000;
const MAX_DIFF_LINES = 4000;
const MAX_EDIT_CHARACTERS = 100000;
// `code`, **strong**, *emphasis*, [label](target), and a bare address. Every repeat has a limit,
// so that no text makes the search slow.
const INLINE_MARKUP =
  /`([^`\n]{1,500})`|\*\*([^*\n]{1,500})\*\*|\*([^*\s][^*\n]{0,500})\*|!?\[([^\]\n]{0,300})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;
const SAFE_TARGET = /^(https?:\/\/|mailto:)/i;
const FENCE = /^\s{0,3}(`{3,}|~{3,})/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>/;
const LIST_ITEM = /^\s*([-*+]|\d{1,9}[.)])\s+/;
const BLOCK_START = /^\s{0,3}(`{3,}|~{3,}|>|#{1,6}\s)/;

export function markdown(text) {
  const whole = String(text);
  if (whole.length > MAX_MARKDOWN_CHARACTERS) return longText(whole);
  const lines = whole.split("\n");
  const view = h("div", { class: "markdown" });
  let start = 0;
  while (start < lines.length) {
    const [element, next] = readBlock(lines, start);
    if (element) view.append(element);
    start = next;
  }
  return view;
}

/** Reads the block that starts at a line; gives its element and the line after it. */
function readBlock(lines, start) {
  const line = lines[start];
  if (!line.trim()) return [null, start + 1];
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, start, fence[1]);
  const heading = HEADING.exec(line);
  // A paragraph in bold, not a heading: the outline of the page stays ours.
  if (heading) return [h("p", { class: "heading" }, inlineMarkup(heading[2])), start + 1];
  if (RULE.test(line)) return [h("hr"), start + 1];
  if (QUOTE.test(line)) return readQuote(lines, start);
  if (LIST_ITEM.test(line)) return readList(lines, start);
  if (isTableStart(line, lines[start + 1] ?? "")) return readTable(lines, start);
  const [taken, next] = takeWhile(lines, start, (text, n) => n === 0 || isPlainLine(text));
  return [h("p", {}, withLineBreaks(taken)), next];
}

function isPlainLine(text) {
  return text.trim() && !LIST_ITEM.test(text) && !BLOCK_START.test(text);
}

function isTableStart(line, below) {
  return line.includes("|") && /^[\s|:-]+$/.test(below) && below.includes("-");
}

function takeWhile(lines, start, wanted) {
  let next = start;
  while (next < lines.length && wanted(lines[next], next - start)) next += 1;
  return [lines.slice(start, next), next];
}

function readFence(lines, start, fence) {
  let end = start + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  const code = lines.slice(start + 1, end).join("\n");
  const view = looksLikeDiff(code) ? diffView(code) : longText(code, { class: "text code" });
  return [view, end + 1];
}

function readQuote(lines, start) {
  const [taken, next] = takeWhile(lines, start, (text) => QUOTE.test(text));
  const texts = taken.map((text) => text.replace(/^\s{0,3}>\s?/, ""));
  return [h("blockquote", {}, withLineBreaks(texts)), next];
}

function readList(lines, start) {
  const belongs = (text) => LIST_ITEM.test(text) || /^\s{2,}\S/.test(text);
  const [taken, next] = takeWhile(lines, start, belongs);
  const tag = /^\s*\d/.test(taken[0]) ? "ol" : "ul";
  const items = [];
  for (const text of taken) {
    if (LIST_ITEM.test(text)) items.push([text.replace(LIST_ITEM, "")]);
    else items.at(-1).push(text.trim());
  }
  const views = items.map((item) => h("li", {}, withLineBreaks(item)));
  return [h(tag, {}, views), next];
}

function readTable(lines, start) {
  const [taken, next] = takeWhile(lines, start, (text) => text.includes("|"));
  const cells = (text) =>
    text
      .trim()
      .replace(/^\||\|$/g, "")
      .split("|");
  const row = (text, tag) => {
    const views = cells(text).map((cell) => h(tag, {}, inlineMarkup(cell.trim())));
    return h("tr", {}, views);
  };
  const head = h("thead", {}, row(taken[0], "th"));
  const body = taken.slice(2).map((text) => row(text, "td"));
  return [h("table", {}, head, h("tbody", {}, body)), next];
}

function withLineBreaks(texts) {
  return texts.flatMap((text, n) => (n ? [h("br"), ...inlineMarkup(text)] : inlineMarkup(text)));
}

function inlineMarkup(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE_MARKUP)) {
    parts.push(text.slice(end, found.index), inlinePart(found));
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

function inlinePart([whole, code, strong, emphasis, label, target, address]) {
  if (code) return h("code", {}, code);
  if (strong) return h("strong", {}, strong);
  if (emphasis) return h("em", {}, emphasis);
  if (address) return link(address, address);
  // A picture and a link to anything else stay the text that they are.
  return SAFE_TARGET.test(target) && !whole.startsWith("!") ? link(target, label) : whole;
}

/** The reader always sees where a link leads, and nothing is loaded before a click. */
function link(target, label) {
  const props = { href: target, rel: "noopener noreferrer nofollow", target: "_blank" };
  return [h("a", props, label || target), label && label !== target ? ` (${target})` : ""];
}

export function looksLikeDiff(text) {
  const start = String(text).slice(0, 4000);
  return /^(diff --git |@@ |\*\*\* Begin Patch|--- .*\n\+\+\+ )/m.test(start);
}

/** Shows a unified diff or a patch. */
export function diffView(text) {
  const lines = String(text).split("\n");
  if (lines.length > MAX_DIFF_LINES) return longText(text);
  return colouredLines(lines.map((line) => [diffLineKind(line), line]));
}

/** Shows an edit as a diff: the old text, then the new. Null where it is too long, or empty. */
export function editView({ before, after }) {
  const size = before.length + after.length;
  if (!size || size > MAX_EDIT_CHARACTERS) return null;
  return colouredLines([
    ...(before ? before.split("\n").map((line) => ["minus", `-${line}`]) : []),
    ...(after ? after.split("\n").map((line) => ["plus", `+${line}`]) : []),
  ]);
}

function diffLineKind(line) {
  if (/^(\+\+\+|---|diff --git|index |\*\*\* )/.test(line)) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (line.startsWith("+")) return "plus";
  if (line.startsWith("-")) return "minus";
  return "same";
}

function colouredLines(lines) {
  const spans = lines.map(([kind, line]) => h("span", { class: kind }, line, "\n"));
  return h("pre", { class: "text diff", tabindex: "0" }, spans);
}
