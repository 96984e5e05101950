// A game of 64 x 64 pixels, move by move: the picture, the action, and what the agent was thinking.
import { decodeBase64, decompress } from "./data.js";
import { count, h, longText, replaceContent } from "./dom.js";

// The sixteen official colours of ARC-AGI-3.
const PALETTE =
  "FFFFFF CCCCCC 999999 666666 333333 000000 E53AA3 FF7BCC " +
  "F93C31 1E93FF 88D8F1 FFDC00 FF851B 921231 4FCC30 A356D6";
const COLOURS = PALETTE.split(" ").map((hex) =>
  [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)),
);
const UNKNOWN_COLOUR = [255, 0, 255];
const SIDE = 64;
const FRAME_BYTES = SIDE * SIDE;
const PIXEL_SIZE = 6;
const CANVAS_SIDE = SIDE * PIXEL_SIZE;
const MOVE_MS = 180;

/** Shows the log of a game; its lines are JSON records, one for each move. */
export async function replay(lines, trial) {
  const player = readGame(lines, trial);
  if (!player) return h("p", { class: "dim" }, "The log holds no picture.");
  await player.show(0);
  return player.view();
}

function readGame(lines, trial) {
  const records = (lines ?? [])
    .filter((line) => line.trim())
    .map(parseRecord)
    .filter(Boolean);
  const header = records.find((record) => record.type === "header") ?? {};
  const moves = records.filter((record) => record.type === "event" && record.answer?.frames);
  return moves.length ? new ReplayPlayer(header, moves, trial.trajectory) : null;
}

function parseRecord(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null; // The last line of a game that still runs may be cut.
  }
}

/** Two trials of one game, move by move in step; nothing where one of them has no log. */
export function gamesBeside(source, id, sides) {
  if (!sides.every(({ trial }) => trial.metadata.evidence?.log)) return null;
  const box = h("section", { class: "game", "aria-label": "Both games in step" });
  const show = async () => {
    const players = await Promise.all(
      sides.map(async ({ run, n, trial }) => readGame(await source.game(run, id, n), trial)),
    );
    if (players.some((player) => !player)) return;
    // The longer game drives: its buttons, its slider and its keys move both.
    const driver = players.reduce((one, other) => (other.length > one.length ? other : one));
    driver.onMove = (number) =>
      players.filter((player) => player !== driver).map((player) => player.show(number));
    await Promise.all(players.map((player) => player.show(0)));
    const views = players.map((player) => player.view({ controls: player === driver }));
    replaceContent(box, h("h2", {}, "Games in step"), h("div", { class: "halves" }, views));
  };
  show().catch((error) => {
    replaceContent(box, h("p", { class: "notice" }, `The games cannot be shown: ${error.message}`));
  });
  return box;
}

/** The picture with its controls: buttons, slider, arrow keys and the space bar. */
class ReplayPlayer {
  /** Called with the number of the move that is shown. */
  onMove = () => {};
  #header;
  #moves;
  #trajectory;
  #calls;
  #current = 0;
  #timer = null;
  #canvas = h("canvas", {
    width: CANVAS_SIDE,
    height: CANVAS_SIDE,
    role: "img",
    "aria-label": "The game",
  });
  #description = h("div", { class: "move", "aria-live": "polite" });
  #playButton = h("button", { type: "button" }, "▶ Play");
  #slider;

  constructor(header, moves, trajectory) {
    this.#header = header;
    this.#moves = moves;
    this.#trajectory = trajectory;
    this.#calls = callsOfMoves(moves, trajectory);
    const max = moves.length - 1;
    this.#slider = h("input", { type: "range", min: 0, max, value: 0, "aria-label": "Move" });
    this.#slider.addEventListener("input", () => this.#jump(Number(this.#slider.value)));
    this.#playButton.addEventListener("click", () => this.#toggle());
  }

  get length() {
    return this.#moves.length;
  }

  view({ controls: withControls = true } = {}) {
    const last = this.length - 1;
    const controls = [
      this.#button("|◀", "First move", () => 0),
      this.#button("◀", "Previous move", () => this.#current - 1),
      this.#playButton,
      this.#button("▶", "Next move", () => this.#current + 1),
      this.#button("▶|", "Last move", () => last),
      this.#slider,
    ];
    if (!withControls) {
      return h("div", { class: "replay" }, h("div", {}, this.#canvas), this.#description);
    }
    return h(
      "div",
      {
        class: "replay",
        tabindex: "0",
        role: "group",
        "aria-label": "Replay: left and right arrows step, space plays",
        on: { keydown: (event) => this.#handleKey(event) },
      },
      h("div", {}, this.#canvas, h("div", { class: "controls" }, controls)),
      this.#description,
    );
  }

  async show(number) {
    this.#current = Math.max(0, Math.min(this.#moves.length - 1, number));
    const current = this.#current;
    this.#slider.value = current;
    this.onMove(number);
    const move = this.#moves[current];
    const frames = await decodeFrames(move);
    if (current !== this.#current) return; // Another move has been chosen meanwhile.
    if (frames.length) paint(this.#canvas, frames.at(-1), move);
    const place = { number: current, total: this.#moves.length };
    const context = callAndThought(this.#trajectory, this.#calls[current]);
    replaceContent(this.#description, moveView(this.#header, move, place, context));
  }

  #button(sign, title, target) {
    const click = () => this.#jump(target());
    return h("button", { type: "button", title, "aria-label": title, on: { click } }, sign);
  }

  #jump(number) {
    this.#stop();
    this.show(number);
  }

  #toggle() {
    if (this.#timer) {
      this.#stop();
      return;
    }
    const last = this.#moves.length - 1;
    if (this.#current === last) this.#current = -1; // From the end, play again from the start.
    replaceContent(this.#playButton, "❚❚ Pause");
    this.#timer = setInterval(() => {
      // The reader may have left the page while the game was playing.
      if (!this.#canvas.isConnected || this.#current >= last) this.#stop();
      else this.show(this.#current + 1);
    }, MOVE_MS);
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    replaceContent(this.#playButton, "▶ Play");
  }

  #handleKey(event) {
    // The slider and the buttons have keys of their own.
    if (event.target.tagName === "INPUT" || event.target.tagName === "BUTTON") return;
    const actions = {
      ArrowRight: () => this.show(this.#current + 1),
      ArrowLeft: () => this.show(this.#current - 1),
      " ": () => this.#toggle(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
}

/** A move may have several pictures, an animation; each pixel is a byte, the number of a colour. */
async function decodeFrames(move) {
  const data = await decompress(decodeBase64(move.answer.frames), "deflate");
  const frames = [];
  for (let start = 0; start + FRAME_BYTES <= data.length; start += FRAME_BYTES) {
    frames.push(data.subarray(start, start + FRAME_BYTES));
  }
  return frames;
}

function paint(canvas, frame, move) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(CANVAS_SIDE, CANVAS_SIDE);
  for (let y = 0; y < CANVAS_SIDE; y += 1) {
    for (let x = 0; x < CANVAS_SIDE; x += 1) {
      const pixel = Math.floor(y / PIXEL_SIZE) * SIDE + Math.floor(x / PIXEL_SIZE);
      const colour = COLOURS[frame[pixel]] ?? UNKNOWN_COLOUR;
      image.data.set([...colour, 255], 4 * (y * CANVAS_SIDE + x));
    }
  }
  context.putImageData(image, 0, 0);
  if (Number.isInteger(move.x) && Number.isInteger(move.y)) outlinePixel(context, move.x, move.y);
}

/** Marks where the agent clicked: white on black, to be seen on every colour. */
function outlinePixel(context, x, y) {
  const side = PIXEL_SIZE * 3;
  for (const [colour, width] of [
    ["#000", 4],
    ["#fff", 2],
  ]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect((x - 1) * PIXEL_SIZE, (y - 1) * PIXEL_SIZE, side, side);
  }
}

function moveView(header, move, { number, total }, { call, thought }) {
  const { answer, counters } = move;
  const place = Number.isInteger(move.x) ? ` at ${move.x}, ${move.y}` : "";
  const progress = ` move ${count(number + 1)} of ${count(total)}`;
  const state = `${stateWords(answer.state)}, level ${answer.levelsCompleted} of ${answer.winLevels} done`;
  const counts = ` · ${count(counters?.steps ?? 0)} steps, ${count(counters?.resets ?? 0)} resets`;
  return [
    h(
      "p",
      {},
      h("b", {}, header.title || header.gameId || "Game"),
      h("span", { class: "dim" }, progress),
    ),
    h("p", { class: "big" }, `${move.action ?? "?"}${place}`),
    h("p", {}, state, h("span", { class: "dim" }, counts)),
    call ? callView(call) : null,
    thought ? thoughtView(thought) : null,
  ];
}

function stateWords(state) {
  return state === "WIN" ? "won" : String(state).toLowerCase().replaceAll("_", " ");
}

function callView({ step, number }) {
  return [
    h("p", { class: "dim" }, `step ${number + 1}: ${step.name}`),
    longText(JSON.stringify(step.input ?? ""), { class: "text" }, 600),
  ];
}

function thoughtView({ step, number }) {
  return [
    h("p", { class: "dim" }, `what the agent said before (step ${number + 1})`),
    longText(step.content ?? "", { class: "text plain" }, 2500),
  ];
}

/** The number of the call behind each move, or null. The clocks of game and agent differ, so a
 * move belongs to the next call that names its action. */
function callsOfMoves(moves, steps) {
  let last = -1;
  return moves.map((move) => {
    const next = nextCall(steps, last + 1, move);
    if (next !== null) {
      last = next;
      return next;
    }
    // One call may hold several actions.
    return last >= 0 && callsMove(steps[last], move) ? last : null;
  });
}

function nextCall(steps, start, move) {
  for (let number = start; number < steps.length; number += 1) {
    if (callsMove(steps[number], move)) return number;
  }
  return null;
}

function callsMove(step, move) {
  if (step.type !== "tool_call") return false;
  const input = step.input ?? {};
  if (Number.isInteger(move.x)) {
    if (input.x !== undefined) return Number(input.x) === move.x && Number(input.y) === move.y;
    // Both numbers with a little between them, as in "12, 34" or {"x": 12, "y": 34} as a text.
    return new RegExp(`\\b${move.x}\\D{1,4}${move.y}\\b`).test(JSON.stringify(input));
  }
  const text = `${step.name} ${JSON.stringify(input)}`.toUpperCase();
  return text.includes(String(move.action).toUpperCase());
}

/** The call, and the last thing that the agent said or thought before it. */
function callAndThought(steps, number) {
  if (number === null) return { call: null, thought: null };
  const speaks = (step) => step.type === "thought" || step.type === "message";
  const before = steps.slice(0, number + 1).findLastIndex(speaks);
  return {
    call: { step: steps[number], number },
    thought: before >= 0 ? { step: steps[before], number: before } : null,
  };
}
