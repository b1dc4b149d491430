// The instance's clock, as far as its answers tell it: what it says to have been long ago was long ago by it.

let ahead = 0;

/** Learns from an answer's date, whose seconds are whole. */
export function learn(date) {
  const theirs = Date.parse(date ?? '');
  const difference = theirs + 500 - Date.now();
  if (Number.isFinite(difference)) ahead = Math.abs(difference) < 2000 ? 0 : difference;
}

/** Milliseconds since 1970, by the instance's clock. */
export const now = () => Date.now() + ahead;
