// Draws the page that the address names, and again when address or data change.
import { besidePage } from "./beside.js";
import { h, swap } from "./dom.js";
import { listen, setKeys, showHelp } from "./keys.js";
import { labelPage } from "./label.js";
import { overviewPage } from "./overview.js";
import { promptPage, promptsPage } from "./prompts.js";
import { href, route } from "./router.js";
import { runsPage } from "./runs.js";
import { openSource } from "./source.js";
import { trialPage } from "./trial.js";

const POLL_MS = 1500;
const source = openSource();
let told;

const PAGES = {
  overview: () => (told.library && !told.runs.length ? runsPage(told) : overviewPage(told)),
  prompts: (at) => promptsPage(source, told, at.query),
  prompt: (at) => promptPage(source, told, at.parts[1]),
  run: (at) => trialPage(source, told, at),
  beside: (at) => besidePage(source, told, at.parts),
  runs: () => runsPage(told),
  label: () => labelPage(source),
};

async function draw() {
  const at = route();
  const main = document.getElementById("main");
  setKeys({});
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === at.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const page = Object.hasOwn(PAGES, at.page) ? await PAGES[at.page](at) : h("p", { class: "notice" }, "There is no such page.");
    swap(main, page);
    main.dataset.page = at.page;
    if (!at.step) scrollTo(0, 0);
  } catch (error) {
    swap(main, h("p", { class: "notice" }, `This page cannot be shown: ${error.message}`));
  }
  performance.mark("drawn");
  main.dataset.drawn = String(Number(main.dataset.drawn ?? 0) + 1);
}

function navigation() {
  const links = [["overview", "Overview", "#/"], ["prompts", "Prompts", "#/prompts"]];
  if (told.library) links.unshift(["runs", "Runs", "#/runs"]);
  if (told.canLabel) links.push(["label", "Label", "#/label"]);
  const theme = h("button", { type: "button", title: "Light or dark (t)", "aria-label": "Light or dark", on: { click: turn } }, "◐");
  const help = h("button", { type: "button", title: "Keyboard (?)", "aria-label": "Keyboard help", on: { click: showHelp } }, "?");
  swap(document.getElementById("nav"), h("a", { class: "skip", href: "#main", on: { click: (event) => { event.preventDefault(); document.getElementById("main").focus(); } } }, "To the content"),
    h("nav", { "aria-label": "Pages" }, h("b", {}, "assay"), links.map(([page, text, to]) => h("a", { href: to, "data-page": page }, text))), h("span", {}, theme, help));
}

function turn() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function up() {
  const at = route();
  location.hash = at.page === "run" || at.page === "beside" ? href("prompt", at.prompt ?? at.parts[1]) : at.page === "prompt" ? "#/prompts" : "#/";
}

/** A run that is still being written: counts and tables follow it. */
async function follow(seen) {
  let version = seen;
  try {
    const state = await source.state();
    if (state.version !== version) {
      told = await source.overview();
      version = told.version;
      const page = route().page;
      if (page === "overview" || page === "runs" || (page === "prompts" && scrollY < 200 && document.activeElement?.tagName !== "INPUT")) await draw();
    }
  } catch {
    document.getElementById("main").dataset.lost = "1";
  }
  setTimeout(() => follow(version), POLL_MS);
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to read compressed data");
  told = await source.overview();
  document.title = told.title;
  navigation();
  listen({
    "/": async () => {
      if (route().page !== "prompts") { location.hash = "#/prompts"; await new Promise((done) => { setTimeout(done, 50); }); }
      document.getElementById("search")?.focus();
    },
    "?": showHelp, t: turn, u: up, o: () => { location.hash = "#/"; }, p: () => { location.hash = "#/prompts"; },
  });
  addEventListener("hashchange", draw);
  await draw();
  if (source.live) follow(told.version);
}

start().catch((error) => swap(document.getElementById("main"), h("p", { class: "notice" }, `This page cannot be shown: ${error.message}`)));
