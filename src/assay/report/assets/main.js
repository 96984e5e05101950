// Draws the page that the address names, and draws it again when the address or the data changes.
import { openSource } from "./data.js";
import { h, replaceContent } from "./dom.js";
import {
  currentRoute,
  goToStep,
  href,
  listenForKeys,
  setKeys,
  showKeyboardHelp,
} from "./navigation.js";
import { overviewPage, runsPage } from "./overview.js";
import { promptPage, promptsPage } from "./prompts.js";
import { openForPrint } from "./print.js";
import { sideBySidePage } from "./beside.js";
import { labelPage, trialPage } from "./trial.js";

const POLL_MS = 1500;
const source = openSource();
let overview;

const PAGES = {
  overview: () =>
    overview.library && !overview.runs.length ? runsPage(overview) : overviewPage(source, overview),
  prompts: (route) => promptsPage(source, overview, route.query),
  prompt: (route) => promptPage(source, overview, route.parts[1]),
  run: (route) => trialPage(source, overview, route),
  beside: (route) => sideBySidePage(source, overview, route),
  runs: () => runsPage(overview),
  label: () => labelPage(source),
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
  });
  addEventListener("hashchange", draw);
  openForPrint();
  await draw();
  if (source.live) pollForChanges(overview.version);
}

async function draw() {
  const route = currentRoute();
  const main = document.getElementById("main");
  if (goToStep(route)) return;
  setKeys({});
  markCurrentLink(route.page);
  try {
    const known = Object.hasOwn(PAGES, route.page);
    replaceContent(main, known ? await PAGES[route.page](route) : notice("There is no such page."));
    main.dataset.page = route.page;
    if (!route.step) scrollTo(0, 0);
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

async function focusSearch() {
  if (currentRoute().page !== "prompts") {
    goTo("#/prompts");
    await new Promise((done) => setTimeout(done, 50)); // until that page is drawn
  }
  document.getElementById("search")?.focus();
}

/** Follows a run that is still being written: counts and tables are drawn again as it grows. */
async function pollForChanges(seenVersion) {
  let version = seenVersion;
  try {
    const state = await source.state();
    if (state.version !== version) {
      overview = await source.overview();
      version = overview.version;
      if (mayRedraw(currentRoute().page)) await draw();
    }
  } catch {
    document.getElementById("main").dataset.lost = "1";
  }
  setTimeout(() => pollForChanges(version), POLL_MS);
}

/** Leaves alone what somebody reads or types: trials, and prompts once scrolled or searched. */
function mayRedraw(page) {
  const typing = document.activeElement?.tagName === "INPUT";
  return page === "overview" || page === "runs" || (page === "prompts" && scrollY < 200 && !typing);
}

start().catch(showError);
