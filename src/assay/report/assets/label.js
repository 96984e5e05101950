// Labels by people, blind: the grader's verdict is not even sent to this page.
import { h, longText, swap } from "./dom.js";
import { setKeys } from "./keys.js";
import { markdown } from "./markdown.js";
import { stepList } from "./steps.js";

const WORDS = { p: "pass", f: "fail", a: "ambiguous" };

export async function labelPage(source) {
  const sheet = await source.sheet();
  if (!sheet || sheet.why) return h("div", {}, h("h1", {}, "Label"), h("p", { class: "notice" }, sheet?.why ?? "There is nothing to label."));
  const { rows } = sheet;
  const box = h("div");
  let at = Math.max(0, rows.findIndex((row) => row.label === null));

  function show() {
    const row = rows[at];
    const done = rows.filter((each) => each.label !== null).length;
    const turns = Array.isArray(row.input) ? row.input.join("\n\n") : row.input;
    swap(box,
      h("p", { class: "dim", role: "status" }, `${at + 1} of ${rows.length} · ${done} labelled · ${sheet.file}`),
      h("h2", {}, "Asked"), longText(turns, { class: "text plain" }, 4000),
      row.hint ? h("p", {}, h("b", {}, "Hint: "), row.hint) : null,
      h("h2", {}, "Answered"), row.output ? markdown(row.output) : h("p", { class: "dim" }, "nothing"),
      h("div", { class: "choices", role: "group", "aria-label": "Your verdict" }, Object.entries(WORDS).map(([key, word]) =>
        h("button", { type: "button", class: row.label === word ? `chosen ${word}` : word, "aria-pressed": String(row.label === word), on: { click: () => set(word) } }, `${word} `, h("kbd", {}, key)))),
      row.trajectory?.length ? h("details", { class: "fold" }, h("summary", {}, `Steps (${row.trajectory.length})`), stepList(row.trajectory)) : null);
  }

  async function set(word) {
    const number = at;
    const said = await source.setLabel(number, word);
    if (said.error) { swap(box, h("p", { class: "notice" }, said.error)); return; }
    rows[number].label = word;
    if (at < rows.length - 1) at += 1;
    show();
  }

  const move = (step) => () => { at = Math.max(0, Math.min(rows.length - 1, at + step)); show(); };
  const actions = Object.fromEntries(Object.entries(WORDS).map(([key, word]) => [key, () => set(word)]));
  setKeys({ ...actions, j: move(1), k: move(-1) }, { "p / f / a": "pass, fail, ambiguous", "j / k": "next, previous row" });
  show();
  return h("div", { class: "labelling" }, h("h1", {}, "Label"), box);
}
