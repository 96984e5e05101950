// The search page: a query over everything the agents did and said; every hit leads to its place.
import { append, count, h, replaceContent, shorten } from "./dom.js";
import { listKeys, setKeys, trialHref } from "./navigation.js";
import { markWords, parseQuery, queryReading } from "./query.js";

const TYPING_PAUSE_MS = 250;
const INDEX_POLL_MS = 700;
const MAX_ROUNDS = 40;
const HITS_WANTED = 25;
const PLACE_WORDS = {
  trial: "trial",
  input: "asked",
  answer: "answered",
  reason: "reason",
  thought: "thought",
  message: "message",
  plan: "plan",
};
const QUERY_EXAMPLES = [
  ["rm", "a word in a command, an output, a thought, an answer or a reason"],
  ["tool:shell rm", "commands in a shell that hold the word, whatever the agent calls its tool"],
  ["failed:true cost>0.1", "failed trials that cost more than 10 cents"],
  ['"no such file" -type:thought', "words in this order, but not in thoughts"],
  ["rm -rf /srv/cache", "a command as it was pasted: behind a word, - negates only fields"],
  ["-error make", "make, without the word error: a leading - negates"],
  ["file:app.py error:true", "failed calls on a file"],
  ["exit:1 time>2m", "calls that ended with 1, in trials of over two minutes"],
  ["test* id:shell", "words that begin with test, in prompts of this name"],
];
const FIELD_HELP =
  "About a step: tool (shell, read, write, edit, search, list, web, agent, plan, mcp, or the name " +
  'of a tool; tool:"Bash" is that name only), file, exit, error:true, type (thought, message, plan, ' +
  "tool, answer, input, reason). About the trial: failed, passed or measured:true, cost (dollars), time (s, ms, m, h), " +
  "score, steps, id, run, category, cause. Compare numbers with > < >= <= or :.";

export function searchPage(source, params) {
  const search = new Search(source);
  setKeys(
    listKeys(() => [...document.querySelectorAll(".hit")], {
      enter: (hit) => hit.querySelector("a").click(),
    }),
    { Enter: "open the hit" },
  );
  search.start(params.get("q") ?? "");
  return h(
    "div",
    { class: "search" },
    h("h1", {}, "Search"),
    h("div", { class: "filters", role: "search" }, search.box),
    search.status,
    search.list,
    search.more,
    helpView((text) => search.start(text)),
  );
}

/** One query at a time; a newer one makes the answers of older ones void. */
class Search {
  box = h("input", {
    type: "search",
    id: "search",
    class: "wide",
    placeholder: "Find anything, such as tool:shell rm",
    "aria-label": "Search commands, outputs, thoughts, answers and files",
    maxlength: "1000",
  });
  status = h("p", { class: "dim", role: "status" });
  list = h("ol", { class: "hits" });
  more = h("button", { type: "button", class: "more", hidden: true }, "Search further");
  #source;
  #text = "";
  #after = "";
  #asked = 0;

  constructor(source) {
    this.#source = source;
    let timer;
    this.box.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.start(this.box.value), TYPING_PAUSE_MS);
    });
    this.more.addEventListener("click", () => this.#continue());
  }

  start(text) {
    if (this.box.value !== text) this.box.value = text;
    this.#text = text.trim();
    this.#after = "";
    replaceContent(this.list);
    const params = new URLSearchParams(this.#text ? { q: this.#text } : {});
    history.replaceState(null, "", params.size ? `#/search?${params}` : "#/search");
    return this.#continue();
  }

  async #continue() {
    this.#asked += 1;
    const request = this.#asked;
    this.more.hidden = true;
    try {
      const terms = parseQuery(this.#text); // says what is wrong without asking anybody
      const enough = this.list.childElementCount + HITS_WANTED;
      for (let round = 0; round < MAX_ROUNDS; round += 1) {
        const answer = await this.#source.search(this.#text, this.#after);
        if (request !== this.#asked) return; // The reader has typed on.
        this.#show(answer, terms);
        if (answer.indexed < answer.rows) {
          setTimeout(() => request === this.#asked && this.start(this.#text), INDEX_POLL_MS);
          return;
        }
        if (answer.next === null || this.list.childElementCount >= enough) return;
      }
    } catch (error) {
      if (request === this.#asked) replaceContent(this.status, error.message);
    }
  }

  #show({ hits, next, indexed, rows }, terms) {
    append(
      this.list,
      hits.map((hit) => hitView(hit, terms)),
    );
    this.#after = next ?? "";
    this.more.hidden = next === null;
    const n = this.list.childElementCount;
    const found = `${count(n)}${next === null ? "" : " or more"} ${n === 1 ? "place" : "places"}`;
    const indexing = `Indexing: ${count(indexed)} of ${count(rows)} rows so far. `;
    const read = terms.length ? `. Read as: ${queryReading(terms)}.` : "";
    const said = [indexed < rows ? indexing : "", this.#text ? `${found}${read}` : ""].join("");
    replaceContent(this.status, said);
  }
}

function hitView({ run, id, n, step, kind, tool, text }, terms) {
  const place = step === null ? PLACE_WORDS[kind] : `step ${step}, ${tool || PLACE_WORDS[kind]}`;
  const pieces = markWords(text, terms).map((piece) =>
    piece.marked ? h("mark", {}, piece.text) : piece.text,
  );
  return h(
    "li",
    { class: "hit" },
    h("a", { href: trialHref(run, id, n, step ?? undefined) }, shorten(id, 80)),
    h("span", { class: "dim" }, ` ${run}, trial ${n}, ${place}`),
    h("div", { class: "text plain" }, pieces),
  );
}

function helpView(ask) {
  const rows = QUERY_EXAMPLES.map(([query, meaning]) => {
    const button = h("button", { type: "button", on: { click: () => ask(query) } }, query);
    return [h("dt", {}, button), h("dd", {}, meaning)];
  });
  return h(
    "details",
    { class: "fold" },
    h("summary", {}, "How to ask"),
    h("dl", { class: "examples" }, rows),
    h("p", { class: "dim" }, FIELD_HELP),
  );
}
