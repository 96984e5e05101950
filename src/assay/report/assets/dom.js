// Elements, long texts and numbers: the small parts of which every page is made.
// Text from agents is only ever added as text nodes; nothing parses it as HTML.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const FIRST_CHARACTERS = 20000;
const MORE_CHARACTERS = 200000;
const COLOUR_CODES = /\u001b\[[0-9;:]{0,40}m/g;
// Control characters, zero-width characters and those that change the direction of text.
const HIDDEN_CHARACTERS =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** What stands in the place of a number that was not measured: never a zero. */
export const DASH = "–";
const MAX_PLACES = 4;

/** Makes an HTML element: h("a", { href, class, on: { click } }, "text", child, ...). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Makes an SVG element, in the same way. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (isAbsent(value)) continue;
    if (name === "on") addListeners(element, value);
    // The attribute is only the initial state; what the element shows is the property.
    else if (name === "value") element.value = value;
    else if (name === "checked" || name === "selected") element[name] = Boolean(value);
    else element.setAttribute(name, value === true ? "" : revealHidden(value));
  }
  return append(element, children);
}

function isAbsent(value) {
  return value === null || value === undefined || value === false;
}

function addListeners(element, listeners) {
  for (const [event, listener] of Object.entries(listeners)) {
    element.addEventListener(event, listener);
  }
}

/** Appends children: nested lists are flattened, and null, undefined and false are left out. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (isAbsent(child)) continue;
    const node = child instanceof Node ? child : document.createTextNode(revealHidden(child));
    element.append(node);
  }
  return element;
}

/** Replaces the children of an element. */
export function replaceContent(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Makes NUL, escapes, zero-width characters and bidirectional overrides visible. */
function revealHidden(text) {
  return String(text)
    .replace(COLOUR_CODES, "")
    .replace(HIDDEN_CHARACTERS, (character) => {
      const code = character.codePointAt(0);
      // Unicode has a picture for each of the first 32 control characters, from U+2400 on.
      if (code < 32) return String.fromCodePoint(0x2400 + code);
      return `⟦U+${code.toString(16).toUpperCase().padStart(4, "0")}⟧`;
    });
}

/** Shows a text of any length: its beginning at once, the rest piece by piece. */
export function longText(text, props = {}, firstCharacters = FIRST_CHARACTERS) {
  const whole = String(text);
  const body = h(
    "pre",
    { class: "text", tabindex: "0", ...props },
    whole.slice(0, firstCharacters),
  );
  if (whole.length <= firstCharacters) return body;
  let shown = firstCharacters;
  const caption = () =>
    `Show more (${(whole.length - shown).toLocaleString("en")} characters left)`;
  const button = h("button", { class: "more", type: "button" }, caption());
  button.addEventListener("click", () => {
    append(body, whole.slice(shown, shown + MORE_CHARACTERS));
    shown += MORE_CHARACTERS;
    if (shown >= whole.length) button.remove();
    else replaceContent(button, caption());
  });
  return h("div", {}, body, button);
}

export function shorten(text, most = 22) {
  const whole = String(text);
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

export function isKnown(value) {
  return typeof value === "number" && !Number.isNaN(value);
}

/** A share in percent, with so many digits that it does not seem to be 0 or 100 if it is not. */
export function percent(share, places = 0) {
  if (!isKnown(share)) return DASH;
  const shown = (100 * share).toFixed(places);
  const isEnd = Number(shown) === 0 || Number(shown) === 100;
  const isBlurred = isEnd && Math.abs(100 * share - Number(shown)) > 1e-9;
  return isBlurred && places < MAX_PLACES ? percent(share, places + 1) : `${shown} %`;
}

export function decimal(value, places = 2) {
  return isKnown(value) ? value.toFixed(places) : DASH;
}

export function signed(value, places = 2) {
  return isKnown(value) ? `${value > 0 ? "+" : ""}${value.toFixed(places)}` : DASH;
}

export function duration(ms) {
  if (!isKnown(ms)) return DASH;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${(ms / 3600000).toFixed(1)} h`;
}

export function money(usd) {
  if (!isKnown(usd)) return DASH;
  if (usd === 0) return "$0";
  return `$${usd.toFixed(usd >= 1 ? 2 : usd >= 0.01 ? 3 : 5)}`;
}

export function count(value) {
  return isKnown(value) ? value.toLocaleString("en") : DASH;
}

export function bytes(size) {
  if (!isKnown(size)) return DASH;
  if (size < 1024) return `${size} B`;
  if (size < 1048576) return `${(size / 1024).toFixed(0)} kB`;
  if (size < 1073741824) return `${(size / 1048576).toFixed(1)} MB`;
  return `${(size / 1073741824).toFixed(2)} GB`;
}

/** Writes an interval, "12 % to 34 %"; nothing where there is none. */
export function intervalText(interval, show = percent) {
  return interval ? `${show(interval[0])} to ${show(interval[1])}` : "";
}

/** A sign beside every colour, so that nobody has to tell red from green. */
export function resultMark(passed) {
  if (passed === true || passed === 1) return { sign: "✓", word: "passed", kind: "pass" };
  if (passed === false || passed === 0) return { sign: "✗", word: "failed", kind: "fail" };
  return { sign: "○", word: "not measured", kind: "none" };
}
