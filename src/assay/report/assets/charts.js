// Plain SVG pictures. No library: eight simple pictures need some hundred lines, a library brings
// 100 kB to 3 MB, inline styles that a strict Content-Security-Policy refuses, and updates to follow.
import { h, s } from "./dom.js";
import { DASH, known } from "./format.js";

export const WIDTH = 560;
const HUES = 8;

/** Class of a run's colour; pictures also bear names, so that colour alone says nothing. */
export function hue(n) {
  return `hue-${n % HUES}`;
}

/** A picture with its title, what it says in words, and a table of the same numbers. */
export function figure(title, words, picture, head, rows) {
  return h("figure", {},
    h("figcaption", {}, h("h3", {}, title), words ? h("p", { class: "dim" }, words) : null),
    picture,
    head && rows?.length ? h("details", { class: "numbers" }, h("summary", {}, "Numbers"), numbers(head, rows)) : null);
}

export function numbers(head, rows) {
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell ?? DASH)))))));
}

export function picture(height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label, class: "picture" }, ...children);
}

export function label(x, y, text, props = {}) {
  return s("text", { x, y, ...props }, text);
}

/** Maps values to places; knows round numbers between its ends. */
export function scale(low, high, from, to, { log = false } = {}) {
  const f = log ? Math.log10 : (value) => value;
  const a = f(low);
  const b = f(high) === a ? a + 1 : f(high);
  const at = (value) => from + ((f(value) - a) / (b - a)) * (to - from);
  return { at, ticks: log ? logTicks(low, high) : linearTicks(low, high), low, high };
}

function linearTicks(low, high) {
  const span = high - low || 1;
  const rough = span / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Number(tick.toPrecision(10)));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const n of [1, 3]) {
      const tick = n * 10 ** power;
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return ticks.length > 7 ? ticks.filter((tick) => Number.isInteger(Math.log10(tick) + 1e-12) || /^1/.test(String(tick))) : ticks;
}

/** Lines up and down with their numbers under them. */
export function xAxis(x, top, bottom, show) {
  return s("g", { class: "axis" },
    x.ticks.map((tick) => [
      s("line", { x1: x.at(tick), x2: x.at(tick), y1: top, y2: bottom }),
      label(x.at(tick), bottom + 16, show(tick), { "text-anchor": "middle" }),
    ]));
}

export function yAxis(y, left, right, show) {
  return s("g", { class: "axis" },
    y.ticks.map((tick) => [
      s("line", { x1: left, x2: right, y1: y.at(tick), y2: y.at(tick) }),
      label(left - 6, y.at(tick) + 4, show(tick), { "text-anchor": "end" }),
    ]));
}

export function legend(names) {
  return h("p", { class: "legend" }, names.map((name, n) => h("span", {}, h("i", { class: `swatch ${hue(n)}` }), name)));
}

export function short(text, most = 22) {
  const whole = String(text);
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

export function extent(values) {
  const good = values.filter(known);
  return good.length ? [Math.min(...good), Math.max(...good)] : null;
}
