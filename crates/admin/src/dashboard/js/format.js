// Formats of numbers and times, by the instance's clock, which is estimated from the dates of its responses.

let ahead = 0;

/** Adjusts the estimate to the date of a response, which has a resolution of a second. */
export function adjustClock(date) {
  const theirs = Date.parse(date ?? '');
  const difference = theirs + 500 - Date.now();
  if (Number.isFinite(difference)) ahead = Math.abs(difference) < 2000 ? 0 : difference;
}

/** Milliseconds since 1970, by the instance's clock. */
export const now = () => Date.now() + ahead;

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const clockTime = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const minuteTime = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const dayTime = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

/** `1,234`, and `1.23M` for large numbers. */
export const count = (value) => (value < 100_000 ? whole.format(value) : short.format(value));

/** Events per second: `0`, `0.4`, `12`, `3.4K`. */
export function rate(value) {
  if (value === 0) return '0';
  if (value < 0.1) return '<0.1';
  return value < 10 ? String(Number(value.toFixed(1))) : value < 10_000 ? whole.format(value) : short.format(value);
}

/** A fraction: `0 %`, `0.4 %`, `31 %`. */
export function percent(part) {
  const value = part * 100;
  if (value === 0) return '0 %';
  if (value < 0.1) return '<0.1 %';
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`;
}

/** Microseconds, as a number and its unit. */
export function latency(micros) {
  if (micros === null || micros === undefined) return ['–', ''];
  if (micros < 1000) return [whole.format(micros), 'µs'];
  const millis = micros / 1000;
  if (millis < 1000) return [millis < 100 ? String(Number(millis.toPrecision(2))) : whole.format(millis), 'ms'];
  return [(millis / 1000).toFixed(1), 's'];
}

export const micros = (value) => latency(value).join(' ').trim();

/** `45 s`, `12 min`, `3 h`, `2 days`. */
export function span(millis) {
  const length = Math.max(0, millis);
  if (length < MINUTE) return `${Math.round(length / SECOND)} s`;
  if (length < HOUR) return `${Math.floor(length / MINUTE)} min`;
  if (length < DAY) return `${Math.floor(length / HOUR)} h ${Math.floor((length % HOUR) / MINUTE)} min`;
  const days = Math.floor(length / DAY);
  return days === 1 ? '1 day' : `${days} days`;
}

export const ago = (at) => (now() - at < 1500 ? 'just now' : `${span(now() - at)} ago`);
export const until = (at) => (at <= now() ? 'ended' : `in ${span(at - now())}`);
export const clock = (at) => clockTime.format(at);
export const minute = (at) => minuteTime.format(at);
export const date = (at) => dayTime.format(at);
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
