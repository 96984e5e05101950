// Serves one grader module, in bun or in Node.js: for each question that comes as a line of JSON
// on file descriptor 3, one line of JSON is written to 4: {"value": …} or {"error": "…"}, with
// "ended" when it is the last one. The question null only loads the module.
// stdin is empty, and stdout is stderr, so that nothing the module prints, or a program that it
// starts, can get between the answers.
import { spawnSync } from "node:child_process";
import { closeSync, read, writeSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const QUESTIONS = 3;
const ANSWERS = 4;
const path = process.argv[2];
const VARIABLES = "assay:env"; // in a question: variables for programs that the module starts
let variables = {};
const ownKeys = Reflect.ownKeys;
const isSame = Object.is;
class Missing extends Error {}
let asked = false; // whether a question waits for its answer
let ending = false;
let exited = false;
const exit = process.exit.bind(process);
process.exit = (code) => {
  exited = true;
  exit(code);
};

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
process.on("exit", (code) => {
  if (ending) return;
  const why = exited ? `called process.exit(${code})` : "waits for something that can never come";
  answer({ error: `Grader ${why}`, ended: true });
});

// The module is loaded for the first question, so that an error has somebody to go to.
let call;
let shared = [];
for await (const line of lines()) {
  asked = true;
  const reply = await judged(line);
  // What one trial has changed must not judge the next: another process goes on.
  const ended = isPolluted();
  answer(ended ? { ...reply, ended } : reply);
  if (ended) break;
}
ending = true;
exit(0); // although a timer or a connection of the module may be open

async function judged(line) {
  try {
    call ??= await load();
    const question = JSON.parse(line);
    setVariables(question?.[VARIABLES] ?? {});
    delete question?.[VARIABLES];
    shared = noteShared();
    return { value: question === null ? null : ((await call(question)) ?? null) };
  } catch (error) {
    return { error: explain(error) };
  }
}

// What all objects have in common. A careless merge puts names of hostile data there, as in
// {"__proto__": {"pass": true}}, or replaces what is there: {"__proto__": {"toString": 1}}.
function noteShared() {
  const types = [Object, Array, String, Number, Boolean, Function, RegExp, Map, Set, Promise, Date, Error];
  const noted = [];
  for (const one of [...types, ...types.map((type) => type.prototype), JSON, Math]) {
    const names = Reflect.ownKeys(one);
    // Properties with getters change by themselves, as the last match of a regular expression.
    const plain = names.filter((name) => "value" in Object.getOwnPropertyDescriptor(one, name));
    noted.push({ one, size: names.length, plain, values: plain.map((name) => one[name]) });
  }
  return noted;
}

// Without a method that may have been replaced.
function isPolluted() {
  for (let i = 0; i < shared.length; i++) {
    const { one, size, plain, values } = shared[i];
    if (ownKeys(one).length !== size) return true;
    for (let j = 0; j < plain.length; j++) if (!isSame(one[plain[j]], values[j])) return true;
  }
  return false;
}

// Those of one question do not stay for the next.
function setVariables(given) {
  for (const name of Object.keys(variables)) delete process.env[name];
  variables = given;
  Object.assign(process.env, given);
}

// Not node:readline over a stream: older versions of bun cannot read this descriptor so.
async function* lines() {
  const block = Buffer.alloc(65536);
  let parts = [];
  for (;;) {
    const size = await new Promise((resolve, reject) => {
      read(QUESTIONS, block, 0, block.length, null, (error, n) => (error ? reject(error) : resolve(n)));
    });
    if (size === 0) return;
    let start = 0;
    for (let end = block.indexOf(10); end >= 0 && end < size; end = block.indexOf(10, start)) {
      parts.push(Buffer.from(block.subarray(start, end)));
      yield Buffer.concat(parts).toString();
      parts = [];
      start = end + 1;
    }
    parts.push(Buffer.from(block.subarray(start, size)));
  }
}

async function load() {
  const module = await import(pathToFileURL(path).href);
  const exported = module.default;
  const found = [module.grade, exported, exported?.grade, exported?.default, module.compare, exported?.compare];
  const grade = found.find((value) => typeof value === "function");
  if (grade === undefined) {
    // A CommonJS module without exports has an empty default.
    const isEmpty = typeof exported === "object" && Object.keys(exported ?? {}).length === 0;
    const hidden = ["__esModule", "module.exports", ...(isEmpty ? ["default"] : [])];
    const names = Object.keys(module).filter((name) => !hidden.includes(name));
    throw new Missing(`exports no function \`grade\`, only: ${names.join(", ") || "nothing"}`);
  }
  return grade;
}

function answer(value) {
  if (!asked) return;
  let text;
  try {
    // Half of a character beyond 16 bits, as slice may leave it, is no valid text elsewhere.
    text = JSON.stringify(value, (_, v) => (typeof v === "string" ? v.replace(/[\uD800-\uDFFF]/gu, "\uFFFD") : v));
  } catch (error) {
    const why = `Invalid grader result: cannot be written as JSON: ${error.message}`;
    text = JSON.stringify({ error: why, ...(value.ended && { ended: true }) });
  }
  asked = false;
  let data = Buffer.from(text + "\n");
  while (data.length > 0) data = data.subarray(writeSync(ANSWERS, data));
}

function fail(error) {
  // After its verdict a grader is asked nothing any more: the next question finds the reason here.
  if (!asked) writeSync(2, `after a verdict: ${explain(error)}\n`);
  answer({ error: explain(error), ended: true });
  ending = true;
  closeSync(ANSWERS);
  exit(1);
}

function explain(error) {
  if (error instanceof Missing) return error.message;
  if (!(error instanceof Error)) return `Grader threw ${typeof error === "string" ? error : inspect(error)}`;
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return explain(error.errors[0]);
  const place = where(error);
  return `${error.name}: ${error.message}${place ? ` (${place})` : ""}`;
}

// The first place of the stack in the module itself, as file:line:column.
function where(error) {
  const { file, line, column } = error.position ?? {}; // of bun's parser
  if (file) return `${basename(file)}:${line}:${column}`;
  const name = basename(path).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const place = new RegExp(`${name}:\\d+(:\\d+)?`);
  const found = place.exec(error.stack ?? "");
  if (found || error.name !== "SyntaxError" || process.versions.bun) return found?.[0];
  // Node.js tells the line of a syntax error only to those who ask for it.
  return place.exec(spawnSync(process.execPath, ["--check", path], { encoding: "utf8" }).stderr)?.[0];
}

function inspect(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}
