// Builds elements. Text from agents goes in as text nodes only: there is no innerHTML anywhere.

const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const COLOUR_CODES = /\u001b\[[0-9;:]{0,40}m/g;
const SVG = "http://www.w3.org/2000/svg";

/** Shows what would otherwise be invisible or turn the text round: NUL, escapes, bidi overrides. */
export function clean(text) {
  return String(text)
    .replace(COLOUR_CODES, "")
    .replace(HIDDEN, (sign) => {
      const code = sign.codePointAt(0);
      if (code < 32) return String.fromCodePoint(0x2400 + code);
      return `⟦U+${code.toString(16).toUpperCase().padStart(4, "0")}⟧`;
    });
}

/** Makes an HTML element: h("a", {href, class, on: {click}}, "text", child, ...). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Makes an SVG element. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "value") element.value = value;
    else if (name === "checked" || name === "selected") element[name] = Boolean(value);
    else element.setAttribute(name, value === true ? "" : clean(value));
  }
  add(element, children);
  return element;
}

/** Appends children; texts are cleaned, lists flattened, nothing is nothing. */
export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return element;
}

/** Puts new children in the place of the old ones. */
export function swap(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

const FIRST = 20000;
const MORE = 200000;

/** Shows a text of any length: its beginning at once, the rest piece by piece. */
export function longText(text, props = {}, first = FIRST) {
  const whole = String(text);
  const body = h("pre", { class: "text", tabindex: "0", ...props }, whole.slice(0, first));
  if (whole.length <= first) return body;
  let shown = first;
  const left = () => `Show more (${(whole.length - shown).toLocaleString("en")} characters left)`;
  const button = h("button", { class: "more", type: "button" }, left());
  button.addEventListener("click", () => {
    body.append(document.createTextNode(clean(whole.slice(shown, shown + MORE))));
    shown += MORE;
    if (shown >= whole.length) button.remove();
    else swap(button, left());
  });
  return h("div", {}, body, button);
}
