// Draws the page that the address names, and draws it again when the address or the data changes.
import { openSource } from "./data.js";
import { h, replaceContent } from "./dom.js";
import { drawLiveStrip, noteUse, updatePage } from "./live.js";
import {
  currentRoute,
  goToStep,
  href,
  listenForKeys,
  setKeys,
  showKeyboardHelp,
} from "./navigation.js";
import { overviewPage } from "./overview.js";
import { promptPage, promptsPage } from "./prompts.js";
import { openForPrint } from "./print.js";
import { runsPage } from "./runs.js";
import { searchPage } from "./search.js";
import { sideBySidePage } from "./beside.js";
import { labelPage, trialPage } from "./trial.js";
import { whyPage } from "./why.js";

const POLL_MS = 1500;
const source = openSource();
let overview;

const PAGES = {
  overview: () =>
    overview.library && !overview.runs.length
      ? runsPage(overview, new URLSearchParams())
      : overviewPage(source, overview),
  prompts: (route) => promptsPage(source, overview, route.query),
  prompt: (route) => promptPage(source, overview, route.parts[1]),
  run: (route) => trialPage(source, overview, route),
  beside: (route) => sideBySidePage(source, overview, route),
  runs: (route) => runsPage(overview, route.query),
  search: (route) => searchPage(source, route.query),
  label: () => labelPage(source),
  why: () => whyPage(source),
};

async function start() {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to read compressed data");
  }
  overview = await source.overview();
  document.title = overview.title;
  drawNavigation();
  listenForKeys({
    "/": focusSearch,
    "?": showKeyboardHelp,
    t: toggleTheme,
    u: goUp,
    o: () => goTo("#/"),
    p: () => goTo("#/prompts"),
    s: () => goTo("#/search"),
    w: () => goTo("#/why"),
  });
  addEventListener("hashchange", draw);
  openForPrint();
  noteUse();
  await draw();
  if (source.live) pollForChanges(overview.version);
}

async function draw() {
  const route = currentRoute();
  const main = document.getElementById("main");
  if (goToStep(route)) return;
  setKeys({});
  const isList = route.page === "overview" && overview.library && !overview.runs.length;
  markCurrentLink(isList ? "runs" : route.page);
  try {
    const known = Object.hasOwn(PAGES, route.page);
    replaceContent(main, known ? await PAGES[route.page](route) : notice("There is no such page."));
    main.dataset.page = route.page;
    if (!route.step) scrollTo(0, 0);
    if (route.page === "search" && !route.query.get("q")) focusSearch();
  } catch (error) {
    showError(error);
  }
  performance.mark("drawn");
  main.dataset.drawn = String(Number(main.dataset.drawn ?? 0) + 1);
}

function notice(text) {
  return h("p", { class: "notice" }, text);
}

function showError(error) {
  const main = document.getElementById("main");
  replaceContent(main, notice(`This page cannot be shown: ${error.message}`));
}

function drawNavigation() {
  const links = [
    ["overview", "Overview", "#/"],
    ["prompts", "Prompts", "#/prompts"],
    ["why", "Why", "#/why"],
    ["search", "Search", "#/search"],
  ];
  if (overview.library) links.unshift(["runs", "Runs", "#/runs"]);
  if (overview.canLabel) links.push(["label", "Label", "#/label"]);
  const skipToContent = (event) => {
    event.preventDefault(); // #main would be read as the address of a page.
    document.getElementById("main").focus();
  };
  const button = (sign, title, label, click) =>
    h("button", { type: "button", title, "aria-label": label, on: { click } }, sign);
  replaceContent(
    document.getElementById("nav"),
    h("a", { class: "skip", href: "#main", on: { click: skipToContent } }, "To the content"),
    h(
      "nav",
      { "aria-label": "Pages" },
      h("b", {}, "assay"),
      links.map(([page, text, target]) => h("a", { href: target, "data-page": page }, text)),
    ),
    h(
      "span",
      {},
      button("◐", "Light or dark (t)", "Light or dark", toggleTheme),
      button("?", "Keyboard (?)", "Keyboard help", showKeyboardHelp),
    ),
  );
}

function markCurrentLink(page) {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function toggleTheme() {
  const root = document.documentElement;
  const systemTheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? systemTheme) === "dark" ? "light" : "dark";
}

function goTo(address) {
  location.hash = address;
}

function goUp() {
  const { page, prompt, parts } = currentRoute();
  if (page === "run" || page === "beside") goTo(href("prompt", prompt ?? parts[1]));
  else goTo(page === "prompt" ? "#/prompts" : "#/");
}

function focusSearch() {
  const box = document.getElementById("search");
  if (box) box.focus();
  else goTo("#/search"); // which focuses its box
}

/** Follows a run that is still being written: the strip, counts and tables change as it grows. */
async function pollForChanges(seenVersion) {
  let version = seenVersion;
  const main = document.getElementById("main");
  try {
    const state = await source.state();
    drawLiveStrip(state.live, state.now);
    if (state.version !== version) {
      overview = await source.overview();
      version = overview.version;
      await redraw(main);
    }
    delete main.dataset.lost;
  } catch {
    main.dataset.lost = "1";
  }
  setTimeout(() => pollForChanges(version), POLL_MS);
}

/** Changes the page in place. A page that can do so itself has a method; trials are finished. */
async function redraw(main) {
  const route = currentRoute();
  const drawn = main.firstElementChild;
  if (drawn?.refresh) await drawn.refresh(overview);
  else if (["overview", "runs"].includes(route.page)) {
    const page = await PAGES[route.page](route);
    if (main.firstElementChild === drawn) await updatePage(main, page);
  }
  main.dataset.updated = String(Number(main.dataset.updated ?? 0) + 1);
}

start().catch(showError);
