// The query language of the search: `tool:Bash rm`, `failed:true cost>0.1`, `-not "exact words"`.
// The viewer's server has the same in query.py; the same cases are tested on both.
import { askedKind, kindOfTool } from "./tools.js";

const TERM = /(-?)(?:([a-z]+)(>=|<=|:|=|>|<))?(?:"([^"]*)"?|(\S+))/giu;
const WORD = /[\p{L}\p{N}]+/gu;
const AMOUNT = /^\$?(\d+\.?\d*|\.\d+)(ms|s|m|h)?$/i;
const UNIT_SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600 };
const NUMBER_FIELDS = ["cost", "time", "steps", "score"];
const FLAG_FIELDS = ["failed", "passed", "measured"];
const NAME_FIELDS = ["run", "category", "cause"];
const PART_FIELDS = ["tool", "file", "exit", "error", "type"];
const QUERY_FIELDS = new Set([
  ...NUMBER_FIELDS,
  ...FLAG_FIELDS,
  ...NAME_FIELDS,
  ...PART_FIELDS,
  "id",
]);
const PART_TYPES = ["thought", "message", "plan", "tool", "answer", "input", "reason"];
/** Keys of a tool's input under which agents give file names, in lower case. */
const PATH_KEYS = new Set([
  "path",
  "file",
  "filename",
  "file_path",
  "filepath",
  "notebook_path",
  "paths",
  "files",
]);
const MAX_QUERY = 1000;
const AROUND = 70;

/** Reads a query; throws an error that says what cannot be understood. */
export function parseQuery(text) {
  if (text.length > MAX_QUERY) {
    throw new Error(`the query is longer than ${MAX_QUERY} characters`);
  }
  const terms = [];
  for (const [, minus, name, op, quoted, bare] of text.matchAll(TERM)) {
    // In `rm -rf /srv` the -rf is an option of a command: text, as is all that begins with - behind
    // a word. A field or a phrase is negated wherever it stands.
    const follows = terms.some(({ field, negated }) => field === "" && !negated);
    terms.push(readTerm(minus === "-", name ?? "", op ?? "", quoted ?? "", bare ?? "", follows));
  }
  return terms;
}

/** Says how a query was read, as in: "rm" and "rf", not tool "read". */
export function queryReading(terms) {
  const said = terms.map(({ negated, field, op, text, prefix }) => {
    const what = field ? `${field} ${op === ":" ? "" : `${op} `}` : "";
    return `${negated ? "not " : ""}${what}"${text}${prefix ? "*" : ""}"`;
  });
  return said.join(" and ");
}

function readTerm(minus, name, givenOp, quoted, bare, follows) {
  let [field, op, value] = [name.toLowerCase(), givenOp, quoted || bare];
  if (field && !QUERY_FIELDS.has(field)) [field, op, value] = ["", "", `${name}${op}${value}`];
  const negated = minus && (Boolean(field) || Boolean(quoted) || !follows);
  const term = { field, op, text: value, words: [], prefix: false, value: null, negated };
  if (NUMBER_FIELDS.includes(field) || field === "exit") {
    return { ...term, value: readAmount(field, value) };
  }
  if (FLAG_FIELDS.includes(field) || field === "error") {
    return { ...term, value: readFlag(field, value) };
  }
  if (field === "type" && !PART_TYPES.includes(value.toLowerCase())) {
    throw new Error(`type: "${value}" is none of ${PART_TYPES.join(", ")}`);
  }
  const prefix = value.endsWith("*") && !quoted;
  const plain = prefix ? value.slice(0, -1) : value;
  const asked = { ...term, text: plain.toLowerCase(), words: splitWords(plain), prefix };
  // In quotes it is the name of a tool and nothing else.
  return field === "tool" && !quoted && !prefix ? { ...asked, kind: askedKind(asked.text) } : asked;
}

/** Splits a text into words: letters and digits, in lower case. */
function splitWords(text) {
  return text.toLowerCase().match(WORD) ?? [];
}

function readAmount(field, text) {
  const found = AMOUNT.exec(text);
  if (!found || (found[2] && field !== "time")) {
    throw new Error(`${field}: "${text}" is not a number`);
  }
  return Number(found[1]) * UNIT_SECONDS[(found[2] ?? "s").toLowerCase()];
}

function readFlag(field, text) {
  const word = text.toLowerCase();
  if (word !== "true" && word !== "false") {
    throw new Error(`${field}: "${text}" is neither true nor false`);
  }
  return word === "true";
}

function isAboutTrial({ field }) {
  return [...NUMBER_FIELDS, ...FLAG_FIELDS, ...NAME_FIELDS, "id"].includes(field);
}

/** Whether the facts of a trial fulfil a query: { run, id, category, cause, passed, cost, ... }. */
export function matchesTrial(terms, facts) {
  return terms.filter(isAboutTrial).every((term) => holdsFor(term, facts) !== term.negated);
}

function holdsFor(term, facts) {
  const { field, value } = term;
  if (NUMBER_FIELDS.includes(field)) return compareAmount(term, facts[field]);
  if (field === "failed") return (facts.passed === false) === value;
  if (field === "passed") return (facts.passed === true) === value;
  if (field === "measured") return (facts.passed !== null) === value;
  if (field === "id") return hasWords(facts.id, term);
  return isNamed(String(facts[field]), term);
}

function isNamed(name, { text, prefix }) {
  return prefix ? name.toLowerCase().startsWith(text) : name.toLowerCase() === text;
}

function compareAmount({ op, value }, number) {
  if (typeof number !== "number") return false;
  if (op === ">") return number > value;
  if (op === "<") return number < value;
  if (op === ">=") return number >= value;
  if (op === "<=") return number <= value;
  return number === value;
}

/** Gives the parts of a trial that match; without terms about parts, the trial itself. */
export function findParts(terms, trial, input) {
  const asked = terms.filter((term) => !isAboutTrial(term));
  if (!asked.length) return [{ kind: "trial", step: null, text: searchTextOf(input), call: null }];
  return partsOf(trial, input).filter((part) =>
    asked.every((term) => isInPart(term, part) !== term.negated),
  );
}

function isInPart(term, { kind, text, call }) {
  if (term.field === "") return hasWords(text, term);
  if (term.field === "type") return kind === term.text;
  if (!call) return false;
  if (term.field === "tool") return isTool(String(call.name ?? ""), term);
  if (term.field === "file") return searchPathsOf(call.input).some((path) => hasWords(path, term));
  const code = Number.isInteger(call.exitCode) ? call.exitCode : null;
  if (term.field === "exit") return compareAmount(term, code);
  return (call.status === "failed" || Boolean(call.error) || Boolean(code)) === term.value;
}

function isTool(name, term) {
  return isNamed(name, term) || (Boolean(term.kind) && kindOfTool(name) === term.kind);
}

/** Whether the words of a term follow each other in a text; of the last, its beginning may. */
function hasWords(text, term) {
  if (!term.words.length) return text.toLowerCase().includes(term.text);
  return wordPattern(term).test(text.toLowerCase());
}

function wordPattern({ words, prefix }) {
  // Words hold only letters and digits: nothing in them means anything in a pattern.
  const body = words.join("[^\\p{L}\\p{N}]+");
  return new RegExp(`(?<![\\p{L}\\p{N}])${body}${prefix ? "" : "(?![\\p{L}\\p{N}])"}`, "u");
}

function partsOf(trial, input) {
  const steps = Array.isArray(trial.trajectory) ? trial.trajectory : [];
  const grade = isRecord(trial.score) ? trial.score : trial;
  const reasons = [grade.reasoning, trial.failure?.message].map(searchTextOf).filter(Boolean);
  return [
    { kind: "input", step: null, text: searchTextOf(input), call: null },
    ...steps.map((step, n) => (isRecord(step) ? stepPart(step, n + 1) : null)).filter(Boolean),
    { kind: "answer", step: null, text: searchTextOf(trial.output), call: null },
    { kind: "reason", step: null, text: reasons.join("\n"), call: null },
  ];
}

function stepPart(step, number) {
  if (step.type === "tool_call") {
    const texts = [step.name, step.input, step.output, step.error]
      .map(searchTextOf)
      .filter(Boolean);
    return { kind: "tool", step: number, text: texts.join("\n"), call: step };
  }
  const kind = PART_TYPES.includes(step.type) ? step.type : "message";
  return {
    kind,
    step: number,
    text: searchTextOf(step.content) || searchTextOf(step.entries),
    call: null,
  };
}

/** Joins all texts and whole numbers of a value; keys do not count. */
function searchTextOf(value) {
  if (typeof value === "string") return value;
  if (Number.isInteger(value)) return String(value);
  if (value === null || typeof value !== "object") return "";
  return Object.values(value).map(searchTextOf).filter(Boolean).join("\n");
}

function searchPathsOf(value, key = "") {
  if (typeof value === "string") return PATH_KEYS.has(key.toLowerCase()) ? [value] : [];
  if (Array.isArray(value)) return value.flatMap((one) => searchPathsOf(one, key));
  if (!isRecord(value)) return [];
  return Object.entries(value).flatMap(([name, one]) => searchPathsOf(one, name));
}

function isRecord(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Cuts a text around the first word that was looked for, on one line. */
export function cutSnippet(text, terms) {
  const lower = text.toLowerCase();
  const found = terms
    .filter(
      ({ field, words, negated }) =>
        ["", "tool", "file"].includes(field) && words.length && !negated,
    )
    .map((term) => lower.search(wordPattern(term)))
    .filter((at) => at >= 0);
  const at = found.length ? Math.min(...found) : 0;
  const start = Math.max(0, at - AROUND);
  const end = at + 2 * AROUND;
  const cut = text.slice(start, end).split(/\s+/).filter(Boolean).join(" ");
  return `${start ? "…" : ""}${cut}${end < text.length ? "…" : ""}`;
}

/** Divides a text into pieces; the ones that were looked for are marked. */
export function markWords(text, terms) {
  const sought = terms.filter(
    ({ field, words, negated }) => field === "" && words.length && !negated,
  );
  if (!sought.length) return [{ text, marked: false }];
  const bodies = sought.map((term) => wordPattern(term).source);
  const pattern = new RegExp(bodies.join("|"), "giu");
  const pieces = [];
  let last = 0;
  for (const match of text.matchAll(pattern)) {
    pieces.push(
      { text: text.slice(last, match.index), marked: false },
      { text: match[0], marked: true },
    );
    last = match.index + match[0].length;
  }
  pieces.push({ text: text.slice(last), marked: false });
  return pieces.filter((piece) => piece.text);
}
