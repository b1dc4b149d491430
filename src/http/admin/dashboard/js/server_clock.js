// The instance's clock, estimated from the dates of its responses: times of the API are relative to it.

let ahead = 0;

/** Adjusts the estimate to the date of a response, which has a resolution of a second. */
export function adjustClock(date) {
  const theirs = Date.parse(date ?? '');
  const difference = theirs + 500 - Date.now();
  if (Number.isFinite(difference)) ahead = Math.abs(difference) < 2000 ? 0 : difference;
}

/** Milliseconds since 1970, by the instance's clock. */
export const now = () => Date.now() + ahead;
