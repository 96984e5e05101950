// One keyboard for all pages: j/k, /, ?, and what the page adds.
import { h } from "./dom.js";

const COMMON = {
  "j / k": "next, previous",
  Enter: "open",
  "/": "search",
  o: "overview",
  p: "prompts",
  u: "one level up",
  t: "light or dark",
  "?": "this help",
};
let own = {};
let ownHelp = {};

/** Takes the keys of a page: {key: action}, and what the help says about them. */
export function setKeys(actions, help = {}) {
  own = actions;
  ownHelp = help;
}

export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const pressing = /^(BUTTON|A|SUMMARY)$/.test(event.target.tagName) && (event.key === "Enter" || event.key === " ");
    const action = own[event.key] ?? actions[event.key];
    if (!action || pressing) return;
    event.preventDefault();
    action(event);
  });
}

export function showHelp() {
  const dialog = h("dialog", { class: "help", "aria-label": "Keyboard" },
    h("h2", {}, "Keyboard"),
    h("dl", {}, Object.entries({ ...COMMON, ...ownHelp }).flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** j and k over a list of elements; gives the actions for setKeys. */
export function walk(elements, { enter, start = -1, moved } = {}) {
  let at = start;
  const go = (step) => {
    const all = elements();
    if (!all.length) return;
    all[at]?.classList.remove("current");
    at = Math.max(0, Math.min(all.length - 1, at + step));
    all[at].classList.add("current");
    all[at].scrollIntoView({ block: "nearest" });
    moved?.(all[at], at);
  };
  return { j: () => go(1), k: () => go(-1), Enter: () => elements()[at] && enter?.(elements()[at], at) };
}
