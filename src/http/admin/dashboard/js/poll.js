// Asks again and again for what is shown: never twice at once, not while nobody looks, and less while nobody answers.

import { Away, Late, Refused, call } from './api.js';
import { Cell } from './cell.js';

const WAITS_MS = [1000, 2000, 4000, 8000, 15_000];

/** What can be asked for, and how often while it is shown. */
const RESOURCES = {
  me: { name: 'Who you are', path: 'me', every: 15_000 },
  status: { name: 'The state', path: 'status', every: 2000 },
  history: { name: 'The history', path: 'history', every: 5000 },
  rules: { name: 'The rules', path: 'rules?limit=1000', every: 3000 },
  top: { name: 'Top talkers', path: 'top?limit=20', every: 4000 },
  lists: { name: 'The lists', path: 'lists', every: 4000 },
  versions: { name: 'The versions', path: 'versions?limit=50', every: 4000 },
  audit: { name: 'The audit log', path: 'audit?limit=100', every: 5000 },
};

const names = Object.keys(RESOURCES);
const states = new Map(names.map((name) => [name, { wanted: 0, due: 0, underway: null }]));

/** The latest answers. */
export const data = Object.fromEntries(names.map((name) => [name, new Cell()]));
/** Why there is no newer answer: a message, or null. */
export const trouble = Object.fromEntries(names.map((name) => [name, new Cell(null)]));
/** Whether the instance answers: null, or since when it does not and when it is asked again. */
export const away = new Cell(null);
/** Set when the API wants a token, or another one. */
export const isTokenWanted = new Cell(false);

let timer = null;
let misses = 0;
let answeredAt = 0;

/** Keeps these fresh until the function that is given back is called. */
export function watch(...wanted) {
  for (const name of wanted) states.get(name).wanted += 1;
  turn();
  return () => wanted.forEach((name) => (states.get(name).wanted -= 1));
}

/** Asks for these now, and anew if an answer is under way that may be older. */
export async function refresh(...wanted) {
  await Promise.all(wanted.map((name) => states.get(name).underway));
  await Promise.all(wanted.map(load));
}

/** Forgets what was told, as whoever comes next may not see it. */
export function forget() {
  for (const name of names) {
    data[name].set(undefined);
    states.get(name).due = 0;
  }
}

/** Asks for all that is due, and sees to the next time. None waits for another one's answer. */
export function turn() {
  clearTimeout(timer);
  if (document.hidden || isTokenWanted.get()) return;
  const held = away.get();
  if (held && held.again > Date.now()) return plan();
  // While nobody answers, or nobody knows who asks, one question is enough.
  const asked = held || !data.me.get() ? ['me'] : names.filter((name) => isDue(states.get(name)));
  asked.forEach(load);
  plan();
}

const isDue = (state) => state.wanted > 0 && !state.underway && state.due <= Date.now();

/** What is under way plans anew at its end. */
function plan() {
  clearTimeout(timer);
  if (document.hidden || isTokenWanted.get()) return;
  const at = nextDue();
  if (at !== Infinity) timer = setTimeout(turn, Math.max(20, at - Date.now()));
}

function nextDue() {
  const held = away.get();
  if (held || !data.me.get()) return states.get('me').underway ? Infinity : held?.again ?? Date.now() + 2000;
  const idle = [...states.values()].filter((state) => state.wanted > 0 && !state.underway);
  return Math.min(...idle.map((state) => state.due));
}

function load(name) {
  const state = states.get(name);
  state.underway ??= ask(name).finally(() => {
    state.underway = null;
    state.due = Date.now() + RESOURCES[name].every;
    plan();
  });
  return state.underway;
}

async function ask(name) {
  const start = Date.now();
  try {
    const answer = await call('GET', RESOURCES[name].path);
    answered();
    trouble[name].set(null);
    data[name].set(answer);
  } catch (error) {
    // Late alone, while others are answered: it is about this one.
    if (error instanceof Late && answeredAt > start) return lateAlone(name, error);
    if (error instanceof Away) return missed(error);
    if (!(error instanceof Refused)) throw error;
    answered();
    if (error.status === 401) isTokenWanted.set(true);
    else trouble[name].set(error.message);
  }
}

const lateAlone = (name, error) => name === 'me' || trouble[name].set(`${RESOURCES[name].name}: ${error.message}`);

function answered() {
  answeredAt = Date.now();
  misses = 0;
  if (away.get()) away.set(null);
}

function missed(error) {
  const held = away.get();
  // Several that were under way together are one miss.
  if (held && held.again > Date.now()) return;
  const wait = WAITS_MS[Math.min(misses, WAITS_MS.length - 1)];
  misses += 1;
  away.set({ since: held?.since ?? Date.now(), again: Date.now() + wait, why: error.message });
}

/** Asks at once, whatever was waited for. */
export function askNow() {
  const held = away.get();
  if (held) away.set({ ...held, again: Date.now() });
  turn();
}

document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : turn()));
addEventListener('online', askNow);
