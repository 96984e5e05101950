// Moving about: the addresses behind the #, and the keyboard with its help.
import { h } from "./dom.js";

const COMMON_HELP = {
  "j / k": "next, previous",
  Enter: "open",
  "/": "search",
  o: "overview",
  p: "prompts",
  s: "search everything",
  w: "why trials failed",
  u: "one level up",
  t: "light or dark",
  "?": "this help",
};
let pageActions = {};
let pageHelp = {};
let stepAction = null;

export function href(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** Address of a trial or of a step; query keeps the filter of the table it was found in. */
export function trialHref(run, id, n, step, query) {
  const parts = ["run", run, "prompt", id, "trial", n];
  const address = step === undefined ? href(...parts) : href(...parts, "step", step);
  return query?.size ? `${address}?${query}` : address;
}

export function sideBySideHref(id, runA, trialA, runB, trialB) {
  return href("beside", id, runA, trialA, runB, trialB);
}

/** Reads the address: run/X/prompt/Y becomes { page: "run", run: "X", prompt: "Y" }. */
export function currentRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path ? path.split("/").map(decodePart) : [];
  const route = { page: parts[0] || "overview", parts, query: new URLSearchParams(query ?? "") };
  if (parts[0] === "run") {
    for (let i = 0; i + 1 < parts.length; i += 2) route[parts[i]] = parts[i + 1];
  }
  return route;
}

function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // An address written by hand may hold a bare %.
  }
}

/** Lets a page go to a step by itself, where only the step in the address changes. */
export function setStepAction(action) {
  stepAction = { action, base: addressWithoutStep() };
}

/** Goes to the step of the address if the page that is shown can; says whether it could. */
export function goToStep({ step }) {
  if (!step || stepAction?.base !== addressWithoutStep()) return false;
  stepAction.action(step);
  return true;
}

function addressWithoutStep() {
  return location.hash.replace(/\/step\/[^/?]*/, "");
}

/** Puts a link to an address of this page on the clipboard; says whether that worked. */
export async function copyLink(address) {
  const url = new URL(address, location.href).href;
  try {
    await navigator.clipboard.writeText(url);
    return true;
  } catch {
    return false; // Not allowed, or not a secure context.
  }
}

/** Sets the keys of a page, { key: action }, and what the help says about them. */
export function setKeys(actions, help = {}) {
  pageActions = actions;
  pageHelp = help;
  stepAction = null;
}

/** Listens for keys; those of the page come before these common ones. */
export function listenForKeys(commonActions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const tag = event.target.tagName;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(tag)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    // Enter and space on a button or link already mean something to the browser.
    if (/^(BUTTON|A|SUMMARY)$/.test(tag) && (event.key === "Enter" || event.key === " ")) return;
    const action = pageActions[event.key] ?? commonActions[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}

/** Gives the keys j, k and Enter for a list of elements, to be passed to setKeys. */
export function listKeys(elements, { enter, start = -1 } = {}) {
  let current = start;
  const move = (step) => {
    const all = elements();
    if (!all.length) return;
    all[current]?.classList.remove("current");
    current = Math.max(0, Math.min(all.length - 1, current + step));
    all[current].classList.add("current");
    all[current].scrollIntoView({ block: "nearest" });
  };
  const open = () => {
    const element = elements()[current];
    if (element) enter(element);
  };
  return { j: () => move(1), k: () => move(-1), Enter: open };
}

export function showKeyboardHelp() {
  const keys = Object.entries({ ...COMMON_HELP, ...pageHelp });
  const dialog = h(
    "dialog",
    { class: "help", "aria-label": "Keyboard" },
    h("h2", {}, "Keyboard"),
    h(
      "dl",
      {},
      keys.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]),
    ),
    h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
