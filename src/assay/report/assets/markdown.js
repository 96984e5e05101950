// Markdown of agents as elements: a small, safe part of it. No HTML, no pictures, links shown whole.
import { h, longText } from "./dom.js";
import { diffText, looksLikeDiff } from "./diff.js";

const TOO_LONG = 200000;
const INLINE = /`([^`\n]{1,500})`|\*\*([^*\n]{1,500})\*\*|\*([^*\s][^*\n]{0,500})\*|!?\[([^\]\n]{0,300})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;
const SAFE = /^(https?:\/\/|mailto:)/i;

export function markdown(text) {
  const whole = String(text);
  if (whole.length > TOO_LONG) return longText(whole);
  const lines = whole.split("\n");
  const out = h("div", { class: "markdown" });
  let i = 0;
  while (i < lines.length) {
    const [element, next] = block(lines, i);
    if (element) out.append(element);
    i = next;
  }
  return out;
}

function block(lines, i) {
  const line = lines[i];
  if (!line.trim()) return [null, i + 1];
  const fence = /^\s{0,3}(`{3,}|~{3,})/.exec(line);
  if (fence) return fenced(lines, i, fence[1]);
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  // One below the page's own headings, so that the outline of the page stays whole.
  if (heading) return [h("p", { class: "heading" }, inline(heading[2])), i + 1];
  if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) return [h("hr"), i + 1];
  if (/^\s{0,3}>/.test(line)) {
    const [taken, next] = take(lines, i, (text) => /^\s{0,3}>/.test(text));
    return [h("blockquote", {}, lined(taken.map((text) => text.replace(/^\s{0,3}>\s?/, "")))), next];
  }
  if (isItem(line)) return list(lines, i);
  if (line.includes("|") && /^[\s|:-]+$/.test(lines[i + 1] ?? "") && lines[i + 1].includes("-")) {
    return table(lines, i);
  }
  const [taken, next] = take(lines, i, (text, n) => n === 0 || isPlain(text));
  return [h("p", {}, lined(taken)), next];
}

function isItem(text) {
  return /^\s*([-*+]|\d{1,9}[.)])\s+/.test(text);
}

function isPlain(text) {
  return text.trim() && !isItem(text) && !/^\s{0,3}(`{3,}|~{3,}|>|#{1,6}\s)/.test(text);
}

function take(lines, i, wanted) {
  let next = i;
  while (next < lines.length && wanted(lines[next], next - i)) next += 1;
  return [lines.slice(i, next), next];
}

function fenced(lines, i, fence) {
  let end = i + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  const code = lines.slice(i + 1, end).join("\n");
  const shown = looksLikeDiff(code) ? diffText(code) : longText(code, { class: "text code" });
  return [shown, end + 1];
}

function list(lines, i) {
  const [taken, next] = take(lines, i, (text) => isItem(text) || /^\s{2,}\S/.test(text));
  const tag = /^\s*\d/.test(taken[0]) ? "ol" : "ul";
  const items = [];
  for (const text of taken) {
    if (isItem(text)) items.push([text.replace(/^\s*([-*+]|\d{1,9}[.)])\s+/, "")]);
    else items[items.length - 1].push(text.trim());
  }
  return [h(tag, {}, items.map((item) => h("li", {}, lined(item)))), next];
}

function table(lines, i) {
  const [taken, next] = take(lines, i, (text) => text.includes("|"));
  const cells = (text) => text.trim().replace(/^\||\|$/g, "").split("|");
  const row = (text, tag) => h("tr", {}, cells(text).map((cell) => h(tag, {}, inline(cell.trim()))));
  const body = taken.slice(2).map((text) => row(text, "td"));
  return [h("table", {}, h("thead", {}, row(taken[0], "th")), h("tbody", {}, body)), next];
}

function lined(texts) {
  return texts.flatMap((text, n) => (n ? [h("br"), ...inline(text)] : inline(text)));
}

function inline(text) {
  const out = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    out.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const [whole, code, strong, soft, label, target, bare] = found;
    if (code) out.push(h("code", {}, code));
    else if (strong) out.push(h("strong", {}, strong));
    else if (soft) out.push(h("em", {}, soft));
    else if (bare) out.push(link(bare, bare));
    else out.push(SAFE.test(target) && !whole.startsWith("!") ? link(target, label) : whole);
  }
  out.push(text.slice(last));
  return out;
}

/** The reader always sees where a link leads; nothing is loaded before a click. */
function link(target, label) {
  const props = { href: target, rel: "noopener noreferrer nofollow", target: "_blank" };
  return [h("a", props, label || target), label && label !== target ? ` (${target})` : ""];
}
