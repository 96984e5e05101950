// Words for people in the place of the short names that files use.

const CAUSES = {
  agent_timeout: "ran out of time",
  agent_crash: "agent crashed",
  agent_refused: "agent refused",
  agent_limit: "agent reached a limit",
  provider: "provider error",
  auth: "not logged in",
  spawn: "agent did not start",
  world: "environment failed",
  harness: "harness error",
  user: "simulated user failed",
  worker_lost: "worker lost",
  tape: "not on the tape",
};
const VERDICTS = {
  better: "better",
  confirmed: "confirmed",
  promising: "promising",
  worse: "worse",
  same: "same",
  "not-worse": "not worse",
  "not-enough-data": "not enough data",
};

/** Why a trial failed. Causes of other programs are shown without their underscores. */
export function causeWords(cause) {
  return wordsFrom(CAUSES, cause);
}

export function verdictWords(code) {
  return wordsFrom(VERDICTS, code);
}

function wordsFrom(known, slug) {
  const text = String(slug ?? "");
  return Object.hasOwn(known, text) ? known[text] : text.replaceAll(/[_-]+/g, " ");
}

/** Whether a trial that failed for this cause still measures the agent. */
export function countsAgainstAgent(cause) {
  return String(cause).startsWith("agent_");
}

/** "1 call", "3 calls": a number with its noun. */
export function counted(n, noun, plural = `${noun}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : plural}`;
}
