// Search, filter and sort of prompts inside a report; the viewer does the same in query.py.

const SORTS = {
  id: (row) => row.id,
  category: (row) => row.category,
  rate: (row) => mean(row, "rate"),
  score: (row) => mean(row, "score"),
  time: (row) => mean(row, "ms"),
  cost: (row) => mean(row, "usd"),
  steps: (row) => mean(row, "steps"),
};

export function matching(rows, query) {
  const words = (query.q ?? "").toLowerCase();
  const found = rows.filter((row) =>
    (!words || row.id.toLowerCase().includes(words) || row.head.toLowerCase().includes(words))
    && (!query.status || hasStatus(row, query.status))
    && (!query.category || row.category === query.category)
    && (!query.cause || row.cells.some((cell) => cell?.trials.some((trial) => trial.cause === query.cause))));
  const value = SORTS[query.sort];
  if (!value) return found;
  const sign = query.down ? -1 : 1;
  return found.toSorted((a, b) => order(value(a), value(b), sign));
}

/** Not measured goes to the end, whichever way. */
function order(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return a < b ? -sign : a > b ? sign : 0;
}

function mean(row, name) {
  const values = row.cells.map((cell) => cell?.[name]).filter((value) => value !== null && value !== undefined);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function hasStatus(row, status) {
  const cells = row.cells.filter(Boolean);
  const rates = cells.map((cell) => cell.rate).filter((rate) => rate !== null);
  if (status === "pass") return rates.some((rate) => rate === 1);
  if (status === "fail") return rates.some((rate) => rate === 0);
  if (status === "flaky") return rates.some((rate) => rate > 0 && rate < 1);
  if (status === "differ") return rates.length > 1 && new Set(rates).size > 1;
  return cells.some((cell) => cell.measured < cell.trials.length);
}
