// Numbers for people. Not measured is a dash, never a zero.

export const DASH = "–";

export function known(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

export function percent(share, places = 0) {
  return known(share) ? `${(100 * share).toFixed(places)} %` : DASH;
}

export function decimal(value, places = 2) {
  return known(value) ? value.toFixed(places) : DASH;
}

export function signed(value, places = 2) {
  return known(value) ? `${value > 0 ? "+" : ""}${value.toFixed(places)}` : DASH;
}

export function duration(ms) {
  if (!known(ms)) return DASH;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${(ms / 3600000).toFixed(1)} h`;
}

export function money(usd) {
  if (!known(usd)) return DASH;
  if (usd === 0) return "$0";
  return `$${usd.toFixed(usd >= 1 ? 2 : usd >= 0.01 ? 3 : 5)}`;
}

export function count(value) {
  return known(value) ? value.toLocaleString("en") : DASH;
}

export function bytes(n) {
  if (!known(n)) return DASH;
  if (n < 1024) return `${n} B`;
  if (n < 1048576) return `${(n / 1024).toFixed(0)} kB`;
  if (n < 1073741824) return `${(n / 1048576).toFixed(1)} MB`;
  return `${(n / 1073741824).toFixed(2)} GB`;
}

export function limits(pair, show = percent) {
  return pair ? `${show(pair[0])} to ${show(pair[1])}` : "";
}

/** A sign beside every colour: nobody has to tell red from green. */
export function mark(passed) {
  if (passed === true || passed === 1) return { sign: "✓", word: "passed", kind: "pass" };
  if (passed === false || passed === 0) return { sign: "✗", word: "failed", kind: "fail" };
  return { sign: "○", word: "not measured", kind: "none" };
}
