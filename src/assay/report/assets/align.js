// Two lists laid beside each other: equal items face each other, in time that stays bounded.

/** Work that the exact method may do; beyond it, items that occur once in both are landmarks. */
const MAX_CELLS = 4_000_000;
const MAX_WORDS = 4000;

/** Pairs the places of equal keys: [[a, b], ...], growing in both. */
export function matchKeys(left, right) {
  return matchRange(left, right, { a: 0, b: 0, endA: left.length, endB: right.length });
}

function matchRange(left, right, range) {
  let { a, b, endA, endB } = range;
  const before = [];
  const after = [];
  while (a < endA && b < endB && left[a] === right[b]) before.push([a++, b++]);
  while (a < endA && b < endB && left[endA - 1] === right[endB - 1]) after.push([--endA, --endB]);
  const rest = { a, b, endA, endB };
  const exact = (endA - a) * (endB - b) <= MAX_CELLS;
  const middle = exact ? longestCommon(left, right, rest) : byLandmarks(left, right, rest);
  return [...before, ...middle, ...after.reverse()];
}

/** The longest common subsequence, by a table of lengths from the end. */
function longestCommon(left, right, { a: startA, b: startB, endA, endB }) {
  const [rows, columns] = [endA - startA, endB - startB];
  if (!rows || !columns) return [];
  const width = columns + 1;
  const lengths = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        left[startA + i] === right[startB + j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < rows && j < columns;) {
    if (left[startA + i] === right[startB + j]) pairs.push([startA + i++, startB + j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

/** Matches keys that occur once on both sides, then what lies between them. */
function byLandmarks(left, right, { a, b, endA, endB }) {
  const placesB = uniquePlaces(right, b, endB);
  const shared = [...uniquePlaces(left, a, endA)]
    .filter(([key]) => placesB.has(key))
    .map(([key, place]) => [place, placesB.get(key)]);
  const landmarks = longestRising(shared);
  const pairs = [];
  let [fromA, fromB] = [a, b];
  for (const [toA, toB] of landmarks) {
    pairs.push(...matchGap(left, right, { a: fromA, b: fromB, endA: toA, endB: toB }), [toA, toB]);
    [fromA, fromB] = [toA + 1, toB + 1];
  }
  // Without any landmark, what is too long is left unmatched: it is shown as different.
  if (landmarks.length) pairs.push(...matchGap(left, right, { a: fromA, b: fromB, endA, endB }));
  return pairs;
}

function matchGap(left, right, range) {
  return range.a < range.endA && range.b < range.endB ? matchRange(left, right, range) : [];
}

function uniquePlaces(keys, start, end) {
  const places = new Map();
  for (let i = start; i < end; i += 1) places.set(keys[i], places.has(keys[i]) ? -1 : i);
  for (const [key, place] of places) if (place < 0) places.delete(key);
  return places;
}

/** The longest run of pairs that rises on the right side; they rise on the left already. */
function longestRising(pairs) {
  const tails = []; // place in pairs of the lowest end of a run of each length
  const previous = [];
  pairs.forEach(([, b], i) => {
    let [low, high] = [0, tails.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[tails[middle]][1] < b) low = middle + 1;
      else high = middle;
    }
    previous[i] = low ? tails[low - 1] : -1;
    tails[low] = i;
  });
  const run = [];
  for (let i = tails.at(-1) ?? -1; i >= 0; i = previous[i]) run.push(pairs[i]);
  return run.reverse();
}

/** Both texts in pieces, [text, isDifferent]: which words one has and the other does not. */
export function wordDifferences(left, right) {
  const [a, b] = [left, right].map((text) => String(text).match(/\s+|\w+|[^\w\s]/g) ?? []);
  if (a.length > MAX_WORDS || b.length > MAX_WORDS) return [[[left, true]], [[right, true]]];
  const pairs = matchKeys(a, b);
  return [pieces(a, new Set(pairs.map(([i]) => i))), pieces(b, new Set(pairs.map(([, j]) => j)))];
}

function pieces(words, matched) {
  const found = [];
  words.forEach((word, i) => {
    const differs = !matched.has(i);
    if (found.at(-1)?.[1] === differs) found.at(-1)[0] += word;
    else found.push([word, differs]);
  });
  return found;
}
