// Where the data comes from: blocks inside this file, or the viewer that served it.
import { matching } from "./query.js";

const HELD_CHUNKS = 6;

export function openSource() {
  return document.getElementById("data-index") ? new FileSource() : new LiveSource();
}

/** Reads gzip in base64 from script blocks that are never run. */
class FileSource {
  live = false;
  #held = new Map();

  async overview() {
    const told = JSON.parse(await this.#text("index"));
    this.prompts_ = told.prompts;
    this.byId = new Map(told.prompts.map((row) => [row.id, row]));
    this.places = new Map(told.places.map(([run, id, chunk, line]) => [key(run, id), [chunk, line]]));
    this.files = new Map(told.files.map(([run, id, n, kind, chunk]) => [key(run, id, n, kind), chunk]));
    return told.overview;
  }

  async prompts(query) {
    const found = matching(this.prompts_, query);
    return { total: found.length, rows: found.slice(query.offset, query.offset + query.limit) };
  }

  async prompt(id) {
    return this.byId.get(id) ?? null;
  }

  async row(run, id) {
    const place = this.places.get(key(run, id));
    if (!place) return null;
    const lines = await this.#lines(place[0]);
    return JSON.parse(lines[place[1]]);
  }

  async game(run, id, n) {
    const chunk = this.files.get(key(run, id, Number(n), "game"));
    return chunk === undefined ? null : this.#lines(chunk);
  }

  async raw(run, id, n) {
    const chunk = this.files.get(key(run, id, Number(n), "raw"));
    return chunk === undefined ? null : JSON.parse(await this.#text(chunk));
  }

  async #lines(chunk) {
    let lines = this.#held.get(chunk);
    if (!lines) {
      lines = (await this.#text(chunk)).split("\n");
      this.#held.set(chunk, lines);
      if (this.#held.size > HELD_CHUNKS) this.#held.delete(this.#held.keys().next().value);
    }
    return lines;
  }

  async #text(name) {
    return unzip(fromBase64(document.getElementById(`data-${name}`).textContent.trim()), "gzip");
  }
}

/** Asks the server; the token stands in the address of the page, so addresses are relative. */
class LiveSource {
  live = true;

  overview() {
    return this.#ask("overview", {});
  }

  prompts(query) {
    return this.#ask("prompts", query);
  }

  prompt(id) {
    return this.#ask("prompt", { id });
  }

  row(run, id) {
    return this.#ask("row", { run, id });
  }

  async game(run, id, n) {
    return (await this.#ask("game", { run, id, n }))?.lines ?? null;
  }

  raw(run, id, n) {
    return this.#ask("raw", { run, id, n });
  }

  state() {
    return this.#ask("state", {});
  }

  sheet() {
    return this.#ask("sheet", {});
  }

  async setLabel(number, label) {
    const said = await fetch("api/label", {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ number, label, runs: chosenRuns() }),
    });
    return said.json();
  }

  async #ask(what, query) {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") words.set(name, value);
    const chosen = chosenRuns();
    if (chosen) words.set("runs", chosen);
    const answer = await fetch(`api/${what}?${words}`);
    if (!answer.ok) throw new Error(`the viewer answered ${answer.status}: ${(await answer.text()).slice(0, 300)}`);
    return answer.json();
  }
}

export function chosenRuns() {
  return new URLSearchParams(location.search).get("runs") ?? "";
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

export async function unzip(data, format) {
  return new TextDecoder().decode(await unzipBytes(data, format));
}

export async function unzipBytes(data, format) {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function key(...parts) {
  return JSON.stringify(parts);
}
