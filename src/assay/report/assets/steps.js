// The steps of a trajectory: as a list that draws only what is near the screen, each step as a
// card, with the steps of sub-agents inside the call that started them.
import { stepCard } from "./cards.js";
import { count, h, money } from "./dom.js";

const STEPS_PER_BLOCK = 50;
const DRAG_DELAY_MS = 60;
const MAX_DRAWN_AT_ONCE = 400;
/** From here on every step starts as one line: open cards would be too tall for any browser. */
const MAX_OPEN_STEPS = 5000;
const LINE_PX = 34;
const CARD_PX = 110;
const MAX_DRAWN_BLOCKS = 4;
const CHILDLESS = Object.freeze([]);

/** The steps of a row that any program may have written; what is no step is shown as it is.
 * They are changed in place: copies of hundreds of thousands take long. */
export function readSteps(trajectory, cwd) {
  const base = typeof cwd === "string" && cwd.length > 1 ? cwd : undefined;
  return (Array.isArray(trajectory) ? trajectory : []).map((step) => {
    if (step === null || typeof step !== "object" || Array.isArray(step)) {
      return { type: "not a step", value: step };
    }
    for (const name of ["timestamp", "duration"]) {
      if (name in step && !Number.isFinite(step[name])) step[name] = undefined;
    }
    if (step.entries !== undefined && !Array.isArray(step.entries)) step.entries = undefined;
    if (base) step.cwd = base;
    return step;
  });
}

/** A list of steps to look at; for one in which steps are sought, use StepList itself. */
export function stepList(steps, options) {
  return new StepList(nestSteps(steps), options).view;
}

/** Nests the steps of sub-agents below the call that started them; numbers stay as in the file. */
export function nestSteps(steps) {
  const nodes = steps.map((step, number) => ({ step, number, parent: null, children: CHILDLESS }));
  const wanted = new Set(steps.map((step) => step.parent).filter((id) => id !== undefined));
  const callers = new Map();
  for (const node of wanted.size ? nodes : []) {
    const { callId } = node.step;
    if (wanted.has(callId) && !callers.has(callId)) callers.set(callId, node);
  }
  const top = [];
  for (const node of nodes) {
    const parent = node.step.parent === undefined ? null : callers.get(node.step.parent);
    // A parent that comes later would make a circle possible.
    if (parent && parent.number < node.number) {
      node.parent = parent;
      if (parent.children === CHILDLESS) parent.children = [];
      parent.children.push(node);
    } else top.push(node);
  }
  top.all = nodes;
  return top;
}

/** Draws a list of nodes in blocks; of a long list only the blocks near the screen. */
export class StepList {
  view = h("div", { class: "step-list" });
  #nodes;
  #options;
  #blocks = [];
  #observer = null;
  #lists = new Map();

  /** Options: turns (usage of each), linkTo (address of a step), idPrefix, dense,
   * requestOf (what shows the request that a step answers). */
  constructor(nodes, options = {}) {
    this.#nodes = nodes;
    this.#options = { dense: (nodes.all ?? nodes).length > MAX_OPEN_STEPS, turns: [], ...options };
    const isLong = nodes.length > MAX_DRAWN_AT_ONCE;
    const size = isLong ? STEPS_PER_BLOCK : Math.max(nodes.length, 1);
    for (let start = 0; start < nodes.length; start += size) this.#addBlock(start, size);
    this.view.addEventListener("unfold", () => this.#drawAll());
    if (isLong) this.#watch();
    else for (const block of this.#blocks) this.#draw(block);
  }

  /** Draws a step, with all that it is inside of, opens it, and returns its element. */
  reveal(node) {
    const element = this.#listOf(node)?.#drawStep(node) ?? null;
    if (element) openFolds(element);
    return element;
  }

  /** The list that a node stands in: this one, or that of a sub-agent. */
  #listOf(node) {
    if (!node.parent) return this;
    const outer = this.#listOf(node.parent);
    const caller = outer?.#drawStep(node.parent);
    if (caller) openFolds(caller);
    return outer?.#lists.get(node.parent) ?? null;
  }

  #drawStep(node) {
    const place = this.#placeOf(node);
    const block = this.#blocks.find(({ start, end }) => start <= place && place < end);
    if (!block) return null;
    this.#draw(block);
    return block.element.querySelector(`#${this.#stepId(node.number)}`);
  }

  /** Draws every step, for printing; a trial of very many stays as long as the screen shows. */
  #drawAll() {
    if (this.#nodes.length > MAX_OPEN_STEPS) return;
    this.#observer?.disconnect();
    for (const block of this.#blocks) this.#draw(block);
  }

  #placeOf(node) {
    // Numbers grow along the list, so that the place of one can be found by halving.
    let [low, high] = [0, this.#nodes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#nodes[middle].number < node.number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #stepId(number) {
    return `${this.#options.idPrefix ?? ""}step-${number}`;
  }

  #addBlock(start, size) {
    const end = Math.min(start + size, this.#nodes.length);
    const element = h("ol", { class: "steps" });
    const block = { element, start, end, drawn: false, seen: 0 };
    this.#blocks.push(block);
    this.view.append(element);
  }

  #watch() {
    const height = this.#options.dense ? LINE_PX : CARD_PX;
    this.view.classList.add("long");
    for (const block of this.#blocks) {
      block.element.style.height = `${(block.end - block.start) * height}px`;
    }
    const blockOf = new Map(this.#blocks.map((block) => [block.element, block]));
    let [clock, timer, lastY] = [0, 0, scrollY];
    this.#observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting, boundingClientRect } of entries) {
          const block = blockOf.get(target);
          block.height = boundingClientRect.height;
          block.near = isIntersecting;
          block.seen = clock += 1;
        }
        // Who drags the scroll bar passes thousands of steps: they are drawn where it stops.
        const isFar = Math.abs(scrollY - lastY) > 3 * innerHeight;
        lastY = scrollY;
        clearTimeout(timer);
        timer = setTimeout(() => this.#drawNear(), isFar ? DRAG_DELAY_MS : 0);
      },
      { rootMargin: "800px 0px" },
    );
    for (const block of this.#blocks) this.#observer.observe(block.element);
  }

  #drawNear() {
    for (const block of this.#blocks) if (block.near) this.#draw(block);
    this.#forgetFarBlocks();
  }

  #draw(block) {
    if (block.drawn) return;
    block.drawn = true;
    block.element.style.height = "";
    let turn = this.#nodes[block.start - 1]?.step.turn ?? null;
    for (const node of this.#nodes.slice(block.start, block.end)) {
      if (node.step.turn !== undefined && node.step.turn !== turn) {
        turn = node.step.turn;
        block.element.append(this.#turnTitle(turn));
      }
      block.element.append(this.#stepView(node));
    }
  }

  #turnTitle(turn) {
    const usage = h("span", { class: "dim" }, usageText(this.#options.turns[turn - 1]));
    return h("li", { class: "turn" }, `Turn ${turn}`, usage);
  }

  #stepView(node) {
    const { linkTo, dense, requestOf } = this.#options;
    const options = { id: this.#stepId(node.number), link: linkTo?.(node.number), dense };
    const card = stepCard(node, options, () => this.#nested(node));
    if (requestOf) card.append(requestOf(node.number));
    return card;
  }

  #nested(node) {
    if (!this.#lists.has(node)) {
      this.#lists.set(node, new StepList(node.children, { ...this.#options, turns: [] }));
    }
    return this.#lists.get(node).view;
  }

  /** Empties blocks that are far away; those in which the reader has opened something stay. */
  #forgetFarBlocks() {
    const drawn = this.#blocks.filter((block) => block.drawn && !block.near);
    if (drawn.length <= MAX_DRAWN_BLOCKS) return;
    const far = drawn
      .toSorted((a, b) => a.seen - b.seen)
      .slice(0, -MAX_DRAWN_BLOCKS)
      .filter(({ element }) => !element.querySelector("details[open], .current"));
    for (const block of far) {
      block.element.style.height = `${block.height}px`; // As measured when it left the screen.
      block.element.replaceChildren();
      block.drawn = false;
    }
  }
}

/** Opens the folds of a step, not those of its sub-agent's steps. */
function openFolds(step) {
  for (const details of step.querySelectorAll(":scope > details:not(.sent, .request)")) {
    details.dispatchEvent(new Event("unfold"));
    details.open = true;
  }
}

/** Writes tokens and cost, each after a dot; nothing for what is unknown. */
export function usageText(usage) {
  if (!usage) return "";
  const { inputTokens, outputTokens, cacheReadTokens, reasoningTokens, costUsd } = usage;
  const tokens = [
    [inputTokens, "in"],
    [outputTokens, "out"],
    [cacheReadTokens, "cached"],
    [reasoningTokens, "reasoning"],
  ]
    .filter(([n]) => n !== undefined)
    .map(([n, word]) => `${count(n)} ${word}`)
    .join(" / ");
  const estimated = usage.costSource === "estimated" ? " (estimated)" : "";
  const parts = [];
  if (tokens) parts.push(` · ${tokens} tokens`);
  if (costUsd !== undefined) parts.push(` · ${money(costUsd)}${estimated}`);
  return parts.join("");
}
