// Polls the resources that are shown: one request for each at a time, none while the page is hidden, and with backoff during
// outages.

import { Refused, TimedOut, Unreachable, call } from './api.js';
import { Observable } from './observable.js';

const RETRY_DELAYS_MS = [1000, 2000, 4000, 8000, 15_000];

// The counts of all records are in each page of them.
const COUNTS = 'records?limit=1';

/** Resources and their polling intervals in milliseconds. */
const RESOURCES = {
  me: { name: 'The caller', path: 'me', every: 15_000 },
  status: { name: 'The status', path: 'status', every: 2000 },
  history: { name: 'The history', path: 'history', every: 5000 },
  rules: { name: 'The rules', path: 'rules?limit=1000', every: 3000 },
  top: { name: 'Top talkers', path: 'top?limit=20', every: 4000 },
  records: { name: 'The runtime changes', path: COUNTS, every: 4000 },
  candidates: { name: 'The candidates', path: 'candidates', every: 4000 },
  recommendations: { name: 'Recommended limits', path: 'recommendations', every: 15_000 },
  bans: { name: 'The bans', path: 'bans?limit=200', every: 4000 },
  versions: { name: 'The versions', path: 'versions?limit=50', every: 4000 },
  regions: { name: 'The regions', path: 'regions', every: 3000 },
  events: { name: 'The events', path: 'events?limit=100', every: 5000 },
  audit: { name: 'The audit log', path: 'audit?limit=100', every: 5000 },
};

const names = Object.keys(RESOURCES);
const states = new Map(names.map((name) => [name, { wanted: 0, due: 0, inFlight: null }]));

/** The latest responses. */
export const data = Object.fromEntries(names.map((name) => [name, new Observable()]));
/** Error of the last request of each resource, or null. */
export const trouble = Object.fromEntries(names.map((name) => [name, new Observable(null)]));
/** The current outage: its start, the time of the next attempt and its cause; null without one. */
export const outage = new Observable(null);
/** Set when the API requires a token, or another one. */
export const isTokenRequired = new Observable(false);

let timer = null;
let failures = 0;
let succeededAt = 0;

/** Polls these resources until the returned function is called. */
export function watch(...wanted) {
  for (const name of wanted) states.get(name).wanted += 1;
  poll();
  return () => wanted.forEach((name) => (states.get(name).wanted -= 1));
}

/** Requests these now, after requests in flight whose response may be outdated. */
export async function refresh(...wanted) {
  await Promise.all(wanted.map((name) => states.get(name).inFlight));
  await Promise.all(wanted.map(load));
}

/** Polls another part of the records from now on, or only their counts. */
export function showRecords(path = COUNTS) {
  RESOURCES.records.path = path;
  data.records.set(undefined);
  states.get('records').due = 0;
  poll();
}

/** Clears all responses, as the next user may not be permitted to see them. */
export function forget() {
  for (const name of names) {
    data[name].set(undefined);
    states.get(name).due = 0;
  }
}

/** Requests all resources that are due, concurrently, and schedules the next poll. */
export function poll() {
  clearTimeout(timer);
  if (document.hidden || isTokenRequired.get()) return;
  const held = outage.get();
  if (held && held.again > Date.now()) return schedule();
  // During an outage, or before the caller is known, one request suffices.
  const due = held || !data.me.get() ? ['me'] : names.filter((name) => isDue(states.get(name)));
  due.forEach(load);
  schedule();
}

const isDue = (state) => state.wanted > 0 && !state.inFlight && state.due <= Date.now();

/** Schedules the next poll. Requests in flight schedule it again when they end. */
function schedule() {
  clearTimeout(timer);
  if (document.hidden || isTokenRequired.get()) return;
  const at = nextDue();
  if (at !== Infinity) timer = setTimeout(poll, Math.max(20, at - Date.now()));
}

function nextDue() {
  const held = outage.get();
  if (held || !data.me.get()) return states.get('me').inFlight ? Infinity : held?.again ?? Date.now() + 2000;
  const idle = [...states.values()].filter((state) => state.wanted > 0 && !state.inFlight);
  return Math.min(...idle.map((state) => state.due));
}

function load(name) {
  const state = states.get(name);
  const { path, every } = RESOURCES[name];
  state.inFlight ??= request(name, path).finally(() => {
    state.inFlight = null;
    state.due = Date.now() + (path === RESOURCES[name].path ? every : 0);
    schedule();
  });
  return state.inFlight;
}

async function request(name, path) {
  const start = Date.now();
  try {
    const response = await call('GET', path);
    succeeded();
    trouble[name].set(null);
    // Another part may be wanted by now.
    if (path === RESOURCES[name].path) data[name].set(response);
  } catch (error) {
    // Others succeeded meanwhile: the problem is this resource.
    if (error instanceof TimedOut && succeededAt > start) return timedOutAlone(name, error);
    if (error instanceof Unreachable) return failed(error);
    if (!(error instanceof Refused)) throw error;
    succeeded();
    if (error.status === 401) isTokenRequired.set(true);
    else trouble[name].set(error.message);
  }
}

const timedOutAlone = (name, error) => name === 'me' || trouble[name].set(`${RESOURCES[name].name}: ${error.message}`);

function succeeded() {
  succeededAt = Date.now();
  failures = 0;
  if (outage.get()) outage.set(null);
}

function failed(error) {
  const held = outage.get();
  // Several concurrent requests are one failed attempt.
  if (held && held.again > Date.now()) return;
  const wait = RETRY_DELAYS_MS[Math.min(failures, RETRY_DELAYS_MS.length - 1)];
  failures += 1;
  outage.set({ since: held?.since ?? Date.now(), again: Date.now() + wait, why: error.message });
}

/** Polls immediately. */
export function pollNow() {
  const held = outage.get();
  if (held) outage.set({ ...held, again: Date.now() });
  poll();
}

document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : poll()));
addEventListener('online', pollNow);
