// A game of 64x64 pixels step by step: the picture, the action, and what the agent was thinking.
import { h, longText, swap } from "./dom.js";
import { count } from "./format.js";
import { fromBase64, unzipBytes } from "./source.js";

// The sixteen official colours.
const PALETTE = ["FFFFFF", "CCCCCC", "999999", "666666", "333333", "000000", "E53AA3", "FF7BCC", "F93C31", "1E93FF", "88D8F1", "FFDC00", "FF851B", "921231", "4FCC30", "A356D6"];
const COLOURS = PALETTE.map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const SIDE = 64;
const SCALE = 6;
const FRAME = SIDE * SIDE;
const PAUSE_MS = 180;

export async function replay(lines, trial) {
  const records = lines.filter((line) => line.trim()).map(parse).filter(Boolean);
  const header = records.find((record) => record.type === "header") ?? {};
  const moves = records.filter((record) => record.type === "event" && record.answer?.frames);
  if (!moves.length) return h("p", { class: "dim" }, "The log holds no picture.");
  const calls = callsOf(moves, trial.trajectory);
  const canvas = h("canvas", { width: SIDE * SCALE, height: SIDE * SCALE, role: "img", "aria-label": "The game" });
  const words = h("div", { class: "move", "aria-live": "polite" });
  const slider = h("input", { type: "range", min: 0, max: moves.length - 1, value: 0, "aria-label": "Move" });
  const play = h("button", { type: "button" }, "▶ Play");
  let at = 0;
  let timer = null;

  async function show(number) {
    at = Math.max(0, Math.min(moves.length - 1, number));
    slider.value = at;
    const move = moves[at];
    const frames = await framesOf(move);
    if (moves[at] === move && frames.length) paint(canvas, frames[frames.length - 1], move);
    swap(words, moveView(header, move, at, moves.length, said(trial.trajectory, calls[at])));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    swap(play, "▶ Play");
  }

  function toggle() {
    if (timer) { stop(); return; }
    if (at === moves.length - 1) at = -1;
    swap(play, "❚❚ Pause");
    timer = setInterval(() => {
      if (!canvas.isConnected || at >= moves.length - 1) { stop(); return; }
      show(at + 1);
    }, PAUSE_MS);
  }

  const button = (text, title, action) => h("button", { type: "button", title, "aria-label": title, on: { click: () => { stop(); action(); } } }, text);
  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  const box = h("div", { class: "replay", tabindex: "0", role: "group", "aria-label": "Replay: left and right arrows step, space plays" },
    h("div", {}, canvas, h("div", { class: "controls" },
      button("|◀", "First move", () => show(0)), button("◀", "Previous move", () => show(at - 1)), play,
      button("▶", "Next move", () => show(at + 1)), button("▶|", "Last move", () => show(moves.length - 1)), slider)), words);
  box.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT" || event.target.tagName === "BUTTON") return;
    const action = { ArrowRight: () => show(at + 1), ArrowLeft: () => show(at - 1), " ": toggle }[event.key];
    if (action) { event.preventDefault(); event.stopPropagation(); action(); }
  });
  await show(0);
  return box;
}

function parse(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

async function framesOf(move) {
  const data = await unzipBytes(fromBase64(move.answer.frames), "deflate");
  const frames = [];
  for (let from = 0; from + FRAME <= data.length; from += FRAME) frames.push(data.subarray(from, from + FRAME));
  return frames;
}

function paint(canvas, frame, move) {
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(SIDE * SCALE, SIDE * SCALE);
  for (let y = 0; y < SIDE * SCALE; y += 1) {
    for (let x = 0; x < SIDE * SCALE; x += 1) {
      const [r, g, b] = COLOURS[frame[Math.floor(y / SCALE) * SIDE + Math.floor(x / SCALE)]] ?? [255, 0, 255];
      pixels.data.set([r, g, b, 255], 4 * (y * SIDE * SCALE + x));
    }
  }
  context.putImageData(pixels, 0, 0);
  if (Number.isInteger(move.x) && Number.isInteger(move.y)) {
    for (const [colour, width] of [["#000", 4], ["#fff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect((move.x - 1) * SCALE, (move.y - 1) * SCALE, SCALE * 3, SCALE * 3);
    }
  }
}

function moveView(header, move, at, total, { thought, call }) {
  const where = Number.isInteger(move.x) ? ` at ${move.x}, ${move.y}` : "";
  return [
    h("p", {}, h("b", {}, `${header.title || header.gameId || "Game"}`), h("span", { class: "dim" }, ` move ${count(at + 1)} of ${count(total)}`)),
    h("p", { class: "big" }, `${move.action ?? "?"}${where}`),
    h("p", {}, `${move.answer.state}, level ${move.answer.levelsCompleted} of ${move.answer.winLevels} done`, h("span", { class: "dim" }, ` · ${count(move.counters?.steps ?? 0)} steps, ${count(move.counters?.resets ?? 0)} resets`)),
    call ? [h("p", { class: "dim" }, `step ${call.number + 1}: ${call.step.name}`), longText(JSON.stringify(call.step.input ?? ""), { class: "text" }, 600)] : null,
    thought ? [h("p", { class: "dim" }, `what the agent said before (step ${thought.number + 1})`), longText(thought.step.content ?? "", { class: "text plain" }, 2500)] : null,
  ];
}

/** The call behind each move: the next one that names its action. Clocks of game and agent differ. */
function callsOf(moves, steps) {
  let last = -1;
  return moves.map((move) => {
    for (let number = last + 1; number < steps.length; number += 1) {
      if (names(steps[number], move)) { last = number; return number; }
    }
    return last >= 0 && names(steps[last], move) ? last : null; // one call, several actions
  });
}

function names(step, move) {
  if (step.type !== "tool_call") return false;
  const input = step.input ?? {};
  if (Number.isInteger(move.x)) {
    if (input.x !== undefined) return Number(input.x) === move.x && Number(input.y) === move.y;
    return new RegExp(`\\b${move.x}\\D{1,4}${move.y}\\b`).test(JSON.stringify(input));
  }
  const text = `${step.name} ${JSON.stringify(input)}`.toUpperCase();
  return text.includes(String(move.action).toUpperCase());
}

/** The call, and the last thing the agent said or thought before it. */
function said(steps, number) {
  if (number === null) return { call: null, thought: null };
  let before = number;
  while (before >= 0 && steps[before].type !== "thought" && steps[before].type !== "message") before -= 1;
  return { call: { step: steps[number], number }, thought: before >= 0 ? { step: steps[before], number: before } : null };
}
