// Addresses behind the #: every trial and every step has one.

export function href(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function trialHref(run, id, n, step) {
  const parts = ["run", run, "prompt", id, "trial", n];
  return step === undefined ? href(...parts) : href(...parts, "step", step);
}

export function besideHref(id, runA, a, runB, b) {
  return href("beside", id, runA, a, runB, b);
}

/** Gives the page and its words: run/X/prompt/Y becomes {page: "run", run: "X", prompt: "Y"}. */
export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path ? path.split("/").map(decode) : [];
  const told = { page: parts[0] || "overview", parts, query: new URLSearchParams(query ?? "") };
  if (parts[0] === "run") {
    for (let i = 0; i + 1 < parts.length; i += 2) told[parts[i]] = parts[i + 1];
  }
  return told;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
