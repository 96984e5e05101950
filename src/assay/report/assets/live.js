// A run that is still being written: a strip that says how far it is, and pages that change in
// place, so that the reader loses neither the position nor an open fold.
import { duration, h, money } from "./dom.js";

const SETTLED_MS = 120;
const MAX_SETTLE_MS = 2000;
const MAX_RUNNING = 12;
/** These are changed part by part; anything else is replaced when it differs. */
const CONTAINERS = /^(DIV|SECTION|TABLE|TBODY|THEAD|TR|UL|DL|DETAILS|ARTICLE)$/;
/** These hold a state of their own: they stay as they are, or are replaced as a whole. */
const UNITS = ".changes, .filters, figure, select, svg";

/** Draws the strip above the page; the same numbers as in the terminal of the run. */
export function drawLiveStrip(states, nowSeconds) {
  let strip = document.getElementById("live");
  if (!states.length) {
    strip?.remove();
    return;
  }
  if (!strip) {
    strip = h("section", { id: "live", "aria-label": "Runs in progress" });
    document.getElementById("main").before(strip);
  }
  const fresh = h(
    "section",
    {},
    states.map((state) => liveRun(state, nowSeconds, states.length > 1)),
  );
  updateChildren(strip, fresh);
}

function liveRun(state, now, named) {
  const who = [named ? state.run : "", state.agent].filter(Boolean).join(", ");
  const before = state.before ? ` (${state.before} before)` : "";
  const left = state.leftS === null ? "" : `${duration(state.leftS * 1000)} left`;
  const spent =
    state.budgetUsd === null ? "" : `${money(state.spentUsd)} of ${money(state.budgetUsd)} budget`;
  const facts = [`${state.done} of ${state.total} done${before}`, left, spent, state.result];
  return h(
    "div",
    { class: "live-run", "data-key": `live-${state.run}` },
    h(
      "p",
      {},
      h("b", { class: "live-mark" }, "● live"),
      ` ${who ? `${who}: ` : ""}${facts.filter(Boolean).join(", ")}`,
    ),
    h("progress", { max: state.total || 1, value: state.done, "aria-label": `${who} done` }),
    state.nRunning ? runningTrials(state, now) : null,
  );
}

function runningTrials({ running, nRunning }, now) {
  const rows = running.slice(0, MAX_RUNNING).map((trial) => {
    const number = trial.trial > 1 ? ` #${trial.trial}` : "";
    const took = duration(Math.max(0, now - trial.began) * 1000);
    return h(
      "li",
      {},
      `${trial.prompt}${number}`,
      h("span", { class: "dim" }, ` ${took}, step ${trial.steps}: ${trial.step}`),
    );
  });
  const rest = nRunning - rows.length;
  if (rest > 0) rows.push(h("li", { class: "dim" }, `and ${rest} more`));
  const title = nRunning === 1 ? "1 trial is running" : `${nRunning} trials are running`;
  return h(
    "details",
    { "data-key": "running", open: true },
    h("summary", {}, title),
    h("ul", {}, rows),
  );
}

/** Draws a page again: what has not changed stays, with its folds, its focus and its place. */
export async function updatePage(main, page) {
  await settled(page);
  const places = [...main.querySelectorAll(".scroll")].map((box) => [
    box,
    box.scrollLeft,
    box.scrollTop,
  ]);
  const [x, y] = [scrollX, scrollY];
  const fresh = h("div", {}, page);
  updateChildren(main, fresh);
  for (const [box, left, top] of places) box.scrollTo(left, top);
  scrollTo(x, y);
}

/** Waits until a page has filled in what it asks its source for. */
function settled(page) {
  return new Promise((done) => {
    let timer = setTimeout(finish, SETTLED_MS);
    const limit = setTimeout(finish, MAX_SETTLE_MS);
    const observer = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(finish, SETTLED_MS);
    });
    observer.observe(page, { childList: true, subtree: true, characterData: true });
    function finish() {
      clearTimeout(timer);
      clearTimeout(limit);
      observer.disconnect();
      done();
    }
  });
}

/** Remembers which units a reader has used: those are left alone. */
export function noteUse() {
  const note = (event) => event.target.closest?.(UNITS)?.setAttribute("data-used", "");
  addEventListener("click", note, true);
  addEventListener("input", note, true);
}

function update(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return fresh;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  if (old.matches(UNITS))
    return old.hasAttribute("data-used") || old.isEqualNode(fresh) ? old : fresh;
  if (!CONTAINERS.test(old.nodeName)) return old.isEqualNode(fresh) ? old : fresh;
  updateAttributes(old, fresh);
  updateChildren(old, fresh);
  return old;
}

function updateAttributes(old, fresh) {
  const isCurrent = old.classList.contains("current");
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if (isCurrent) old.classList.add("current");
}

/** Brings children in line: those of the same key or, without one, of the same place stay. */
export function updateChildren(old, fresh) {
  const known = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
  const used = new Set();
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    let mine = key ? known.get(key) : place;
    if (mine && (used.has(mine) || (!key && keyOf(mine)))) mine = null;
    const kept = mine ? update(mine, child) : child;
    used.add(kept);
    if (kept === place) {
      place = place.nextSibling;
      continue;
    }
    if (mine && kept !== mine) {
      if (mine === place) place = place.nextSibling;
      mine.replaceWith(kept);
    } else if (place !== kept) {
      old.insertBefore(kept, place);
    }
  }
  for (const child of [...old.childNodes]) if (!used.has(child)) child.remove();
}

/** What names a part across two drawings: its key, or the first link of a row. */
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  if (node.dataset.key) return node.dataset.key;
  return node.nodeName === "TR" ? (node.querySelector("a")?.getAttribute("href") ?? "") : "";
}
