// The outline of a trial: a line for each step, of which only those on the screen are drawn.
import { callState, stepLine } from "./calls.js";
import { h } from "./dom.js";

const OUTLINE_LINE_PX = 24;
const EXTRA_LINES = 20;
const MAX_WHOLE_OUTLINE = 400;
const STEP_SIGNS = { thought: "…", message: "“", plan: "☰", tool_call: "›" };

export class Outline {
  view = h("nav", { class: "outline", "aria-label": "Outline of the steps" });
  #nodes;
  #linkTo;
  #list = h("ol");
  #lines = new Map();
  #first = -1;
  #current = -1;

  constructor(nodes, linkTo) {
    this.#nodes = nodes;
    this.#linkTo = linkTo;
    this.view.append(this.#list);
    this.#list.style.height = `${nodes.length * OUTLINE_LINE_PX}px`;
    this.view.addEventListener("scroll", () => this.#draw());
    // Its height is known only once it is in the page.
    new ResizeObserver(() => this.#draw(true)).observe(this.view);
  }

  /** Marks the step that is being read, and keeps it in sight. */
  mark(number) {
    if (number === this.#current) return;
    this.#lines.get(this.#current)?.removeAttribute("aria-current");
    this.#current = number;
    const top = number * OUTLINE_LINE_PX;
    const { scrollTop, clientHeight } = this.view;
    if (top < scrollTop || top + OUTLINE_LINE_PX > scrollTop + clientHeight) {
      this.view.scrollTop = top - clientHeight / 2;
      this.#draw();
    }
    this.#lines.get(number)?.setAttribute("aria-current", "step");
  }

  #draw(again = false) {
    const isShort = this.#nodes.length <= MAX_WHOLE_OUTLINE;
    const above = Math.floor(this.view.scrollTop / OUTLINE_LINE_PX) - EXTRA_LINES;
    const first = isShort ? 0 : Math.max(0, above);
    if (this.#first >= 0 && !again && Math.abs(first - this.#first) < EXTRA_LINES / 2) return;
    if (isShort && this.#first === 0) return;
    this.#first = first;
    const onScreen = Math.ceil(this.view.clientHeight / OUTLINE_LINE_PX) + 2 * EXTRA_LINES;
    const shown = isShort ? this.#nodes.length : onScreen;
    this.#lines.clear();
    const lines = this.#nodes.slice(first, first + shown).map((node) => this.#line(node));
    this.#list.replaceChildren(...lines);
    this.#list.style.paddingTop = `${first * OUTLINE_LINE_PX}px`;
  }

  #line({ step, number, parent }) {
    const state = callState(step);
    const props = {
      href: this.#linkTo(number),
      class: `${state}${parent ? " inner" : ""}`,
      "aria-current": number === this.#current ? "step" : null,
    };
    const sign = state === "done" ? (STEP_SIGNS[step.type] ?? "·") : "✗";
    const link = h(
      "a",
      props,
      h("span", { class: "sign" }, sign),
      ` ${stepLine(step).slice(0, 80)}`,
    );
    this.#lines.set(number, link);
    return h("li", {}, link);
  }
}
