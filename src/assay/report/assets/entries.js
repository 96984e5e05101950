// The trials of a row as they are in the file: the only script that knows how a row of captures
// and a row of repeated trials differ, as records/trial does for the programs.

/** The trials of a row; a capture is its own and only one. */
export function entriesOf(row) {
  return Array.isArray(row.trials) ? row.trials : [row];
}

/** Which trial of its prompt this is, from 1. */
export function trialNumber(entry) {
  return entry?.trialNum ?? 1;
}

/** The verdict on a trial with its score and reason; null without one. */
export function gradeOf(entry, row) {
  if (entry === row) return entry.score ?? null;
  const { pass, score, reasoning } = entry;
  return pass === undefined ? null : { pass, score, reasoning };
}
