// The runs of a folder: choose one, or several to compare.
import { h } from "./dom.js";
import { bytes, count } from "./format.js";
import { setKeys, walk } from "./keys.js";
import { chosenRuns } from "./source.js";

export function runsPage(told) {
  const chosen = new Set(chosenRuns().split(",").filter(Boolean));
  const open = () => {
    const words = new URLSearchParams();
    if (chosen.size) words.set("runs", [...chosen].join(","));
    location.assign(`?${words}#/`);
  };
  const button = h("button", { type: "button", on: { click: open } }, "Open the chosen runs");
  const rows = told.library.map((run) => h("tr", {},
    h("td", {}, h("input", { type: "checkbox", "aria-label": `Choose ${run.name}`, checked: chosen.has(run.key), on: { change: (event) => { if (event.target.checked) chosen.add(run.key); else chosen.delete(run.key); } } })),
    h("td", {}, h("a", { href: `?runs=${encodeURIComponent(run.key)}#/` }, run.name)),
    h("td", {}, run.kind), h("td", { class: "number" }, bytes(run.size)),
    h("td", { class: "number" }, run.trials === null ? "" : count(run.trials)),
    h("td", {}, new Date(run.changed * 1000).toISOString().replace("T", " ").slice(0, 16))));
  setKeys(walk(() => [...document.querySelectorAll("tbody tr")], { enter: (row) => location.assign(row.querySelector("a").href) }));
  return h("div", {}, h("h1", {}, "Runs"),
    rows.length ? null : h("p", { class: "notice" }, "No captures or trials were found here."),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, ["", "run", "kind", "size", "trials", "changed"].map((text) => h("th", { scope: "col" }, text || h("span", { class: "hidden" }, "chosen"))))),
      h("tbody", {}, rows))), rows.length ? button : null);
}
