// The data behind the pages: from blocks inside this file, or from the viewer that served it.
// Both sources answer the same questions. Search, filter and sort for the file are here as well.

import { entriesOf } from "./entries.js";
import { matchesLabel } from "./labels.js";
import { cutSnippet, findParts, matchesTrial, parseQuery } from "./query.js";

const MAX_CACHED_CHUNKS = 6;
const HITS_AT_ONCE = 50;
const HITS_OF_TRIAL = 5;

export function openSource() {
  return document.getElementById("data-index") ? new FileSource() : new LiveSource();
}

/** Reads gzip in base64 from script blocks, which the browser never runs because of their type. */
class FileSource {
  live = false;
  #overview = null;
  #prompts = [];
  #runs = [];
  #promptsById = new Map();
  #rowPlaces = new Map();
  #fileChunks = new Map();
  #cachedChunks = new Map();

  async overview() {
    const index = JSON.parse(await this.#text("index"));
    this.#prompts = index.prompts;
    this.#runs = index.overview.runs.map(({ label }) => label);
    this.#promptsById = new Map(index.prompts.map((prompt) => [prompt.id, prompt]));
    this.#rowPlaces = new Map(
      index.places.map(([run, id, chunk, line]) => [joinKey(run, id), { chunk, line }]),
    );
    this.#fileChunks = new Map(
      index.files.map(([run, id, n, kind, chunk]) => [joinKey(run, id, n, kind), chunk]),
    );
    this.#overview = index.overview;
    return index.overview;
  }

  async prompts(query) {
    const found = filterPrompts(this.#prompts, query, this.#overview);
    return { total: found.length, rows: found.slice(query.offset, query.offset + query.limit) };
  }

  async around(query, id) {
    const found = filterPrompts(this.#prompts, query, this.#overview);
    const place = found.findIndex((prompt) => prompt.id === id);
    if (place < 0) return null;
    return {
      position: place + 1,
      total: found.length,
      previous: found[place - 1] ?? null,
      next: found[place + 1] ?? null,
    };
  }

  async prompt(id) {
    return this.#promptsById.get(id) ?? null;
  }

  /** Looks through all rows from a place on, some hits at a time; the server does the same. */
  async search(text, after) {
    const terms = parseQuery(text);
    const places = [...this.#rowPlaces].slice(Number(after || 0));
    const hits = [];
    let seen = Number(after || 0);
    for (const [key, { chunk, line }] of terms.length ? places : []) {
      if (hits.length >= HITS_AT_ONCE) break;
      seen += 1;
      const [run, id] = JSON.parse(key);
      const lines = await this.#lines(chunk);
      hits.push(...rowHits(terms, run, this.#promptsById.get(id), this.#runs, lines[line]));
    }
    const rows = this.#rowPlaces.size;
    return { hits, next: seen < rows && terms.length ? String(seen) : null, indexed: rows, rows };
  }

  async why() {
    return this.#overview.why ?? null;
  }

  async row(run, id) {
    const place = this.#rowPlaces.get(joinKey(run, id));
    if (!place) return null;
    const lines = await this.#lines(place.chunk);
    return JSON.parse(lines[place.line]);
  }

  async game(run, id, n) {
    const chunk = this.#fileChunks.get(joinKey(run, id, Number(n), "game"));
    return chunk === undefined ? null : this.#lines(chunk);
  }

  async raw(run, id, n) {
    const chunk = this.#fileChunks.get(joinKey(run, id, Number(n), "raw"));
    return chunk === undefined ? null : JSON.parse(await this.#text(chunk));
  }

  async #lines(chunk) {
    const cached = this.#cachedChunks.get(chunk);
    if (cached) return cached;
    const lines = (await this.#text(chunk)).split("\n");
    this.#cachedChunks.set(chunk, lines);
    if (this.#cachedChunks.size > MAX_CACHED_CHUNKS) {
      // A Map keeps the order of insertion: its first key is the oldest chunk.
      this.#cachedChunks.delete(this.#cachedChunks.keys().next().value);
    }
    return lines;
  }

  async #text(name) {
    const block = document.getElementById(`data-${name}`);
    const data = await decompress(decodeBase64(block.textContent.trim()), "gzip");
    return new TextDecoder().decode(data);
  }
}

/** The places of one row that match a query. */
function rowHits(terms, run, prompt, runs, line) {
  const cell = prompt?.cells[runs.indexOf(run)];
  if (!cell) return [];
  const row = JSON.parse(line);
  return entriesOf(row).flatMap((entry, n) => {
    const trial = cell.trials[n];
    if (!trial || !matchesTrial(terms, trialFacts(run, prompt, trial))) return [];
    const parts = findParts(terms, entry, row.input).slice(0, HITS_OF_TRIAL);
    return parts.map(({ kind, step, text, call }) => ({
      run,
      id: prompt.id,
      n: trial.n,
      step,
      kind,
      tool: String(call?.name ?? ""),
      text: cutSnippet(text, terms),
    }));
  });
}

function trialFacts(run, prompt, trial) {
  return {
    run,
    id: prompt.id,
    category: prompt.category,
    cause: trial.cause,
    passed: trial.passed === null ? null : trial.passed === 1,
    cost: trial.usd,
    time: trial.ms === null ? null : trial.ms / 1000,
    steps: trial.steps,
    score: trial.score,
  };
}

/** Asks the server. Its token is part of the page's address, so all requests are relative. */
class LiveSource {
  live = true;

  overview() {
    return this.#ask("overview");
  }

  prompts(query) {
    return this.#ask("prompts", query);
  }

  around(query, id) {
    return this.#ask("around", { ...query, id });
  }

  prompt(id) {
    return this.#ask("prompt", { id });
  }

  row(run, id) {
    return this.#ask("row", { run, id });
  }

  async game(run, id, n) {
    const answer = await this.#ask("game", { run, id, n });
    return answer?.lines ?? null;
  }

  raw(run, id, n) {
    return this.#ask("raw", { run, id, n });
  }

  /** What the agent of a trial asked its models; in a file there is none. */
  requests(run, id, n) {
    return this.#ask("requests", { run, id, n });
  }

  request(run, id, n, request) {
    return this.#ask("request", { run, id, n, request });
  }

  why() {
    return this.#ask("why");
  }

  state() {
    return this.#ask("state");
  }

  search(q, after) {
    return this.#ask("search", { q, after });
  }

  sheet() {
    return this.#ask("sheet");
  }

  async setLabel(number, label) {
    const response = await fetch("api/label", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ number, label, runs: chosenRuns() }),
    });
    return response.json();
  }

  async #ask(what, query = {}) {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== "") params.set(name, value);
    }
    const chosen = chosenRuns();
    if (chosen) params.set("runs", chosen);
    const response = await fetch(`api/${what}?${params}`);
    if (response.ok) return response.json();
    const text = await response.text();
    throw new Error(`the viewer answered ${response.status}: ${text.slice(0, 300)}`);
  }
}

/** The runs that the page's address names, joined by commas. */
export function chosenRuns() {
  return new URLSearchParams(location.search).get("runs") ?? "";
}

export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const data = new Uint8Array(characters.length);
  for (let i = 0; i < data.length; i += 1) data[i] = characters.charCodeAt(i);
  return data;
}

export async function decompress(data, format) {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function joinKey(...parts) {
  return JSON.stringify(parts);
}

const SORT_VALUES = {
  id: (prompt) => prompt.id,
  category: (prompt) => prompt.category,
  rate: (prompt) => cellMean(prompt, "rate"),
  score: (prompt) => cellMean(prompt, "score"),
  time: (prompt) => cellMean(prompt, "ms"),
  cost: (prompt) => cellMean(prompt, "usd"),
  steps: (prompt) => cellMean(prompt, "steps"),
};

/** Searches, filters and sorts prompts; the viewer's server gives the same for the same query. */
function filterPrompts(prompts, query, overview) {
  const found = prompts.filter((prompt) => matchesQuery(prompt, query, overview));
  const direction = query.down ? -1 : 1;
  if (query.sort === "difference") {
    const key = (prompt) => differenceKey(differencesOf(prompt, query.pair));
    return found.toSorted((a, b) => compareValues(key(a), key(b), direction));
  }
  const valueOf = SORT_VALUES[query.sort];
  if (!valueOf) return found;
  return found.toSorted((a, b) => compareValues(valueOf(a), valueOf(b), direction));
}

function matchesQuery(prompt, query, overview) {
  const text = (query.q ?? "").toLowerCase();
  const asked = query.in_run ? [Number(query.in_run)] : prompt.cells.map((_, run) => run);
  const someTrial = (wanted) =>
    asked.some((run) => prompt.cells[run]?.trials.some((trial) => wanted(trial, run)));
  return (
    (!text || prompt.id.toLowerCase().includes(text) || prompt.head.toLowerCase().includes(text)) &&
    (!query.status || hasStatus(prompt, query, asked)) &&
    (!query.category || prompt.category === query.category) &&
    (!query.label || someTrial((trial) => matchesLabel(trial, query.label))) &&
    (!query.cause || someTrial((trial) => trial.cause === query.cause)) &&
    (!query.tool ||
      someTrial(({ tools }, run) => usesTool(tools, overview.runs[run], query.tool))) &&
    ((!query.least_ms && !query.most_ms) || someTrial(({ ms }) => isWithin(ms, query)))
  );
}

/** Whether a trial used a tool: tools is a number with a bit for each tool of the run. */
function usesTool(tools, run, name) {
  const bit = run.tools.indexOf(name);
  return bit >= 0 && Math.floor(tools / 2 ** bit) % 2 === 1;
}

function isWithin(ms, { least_ms: least, most_ms: most }) {
  return ms !== null && ms >= Number(least || 0) && ms < (most ? Number(most) : Infinity);
}

function hasStatus(prompt, { status, pair }, asked) {
  const cells = asked.map((run) => prompt.cells[run]).filter(Boolean);
  const rates = cells.map((cell) => cell.rate).filter((rate) => rate !== null);
  if (Object.hasOwn(CHANGES, status)) return CHANGES[status](differencesOf(prompt, pair));
  if (status === "pass") return rates.some((rate) => rate === 1);
  if (status === "fail") return rates.some((rate) => rate === 0);
  if (status === "flaky") return rates.some((rate) => rate > 0 && rate < 1);
  if (status === "differ") return rates.length > 1 && new Set(rates).size > 1;
  return cells.some((cell) => cell.measured < cell.trials.length);
}

const CHANGES = {
  regressed: ({ rate }) => rate < 0,
  improved: ({ rate }) => rate > 0,
  lower: ({ rate, score }) => !rate && score < 0,
  higher: ({ rate, score }) => !rate && score > 0,
};

/** What the second run of a pair has more than the first; null where one is not measured. */
export function differencesOf(prompt, pair) {
  const [a, b] = readPair(pair, prompt.cells.length).map((run) => prompt.cells[run]);
  const difference = (name) =>
    isMeasured(a?.[name]) && isMeasured(b?.[name]) ? b[name] - a[name] : null;
  return { rate: difference("rate"), score: difference("score") };
}

function isMeasured(value) {
  return value !== null && value !== undefined;
}

/** The numbers of two runs, "0,1"; without any, or with wrong ones, the first two. */
export function readPair(pair, runs) {
  const found = /^(\d{1,5}),(\d{1,5})$/.exec(pair ?? "");
  const numbers = found ? [Number(found[1]), Number(found[2])] : [0, 1];
  return numbers.every((number) => number < runs) ? numbers : [0, 1];
}

/** By pass rate, then by score. */
function differenceKey({ rate, score }) {
  if (rate === null) return score === null ? null : score * 1e-5;
  return rate + (score ?? 0) * 1e-5;
}

/** Orders two values; what was not measured comes last in either direction. */
function compareValues(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return a < b ? -direction : a > b ? direction : 0;
}

function cellMean(prompt, name) {
  const values = prompt.cells
    .map((cell) => cell?.[name])
    .filter((value) => value !== null && value !== undefined);
  if (!values.length) return null;
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
