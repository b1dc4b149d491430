// Rates of each rule, from the growth of its counters while the page is open.

import { Observable } from './observable.js';
import { data } from './poll.js';

const WINDOW_MS = 20_000;

/** The rules, each with `hitsRate` and `overRate`, null before the second response. */
export const ratedRules = new Observable();

export const keyOf = (rule) => `${rule.domain}\n${rule.rule}`;

let seen = [];

data.rules.subscribe((answer) => {
  if (!answer) {
    seen = [];
    return ratedRules.set(undefined);
  }
  const at = performance.now();
  const counters = new Map(answer.rules.map((rule) => [keyOf(rule), rule]));
  const first = seen.find((one) => at - one.at <= WINDOW_MS);
  seen = [...seen.filter((one) => at - one.at <= WINDOW_MS), { at, counters }];
  ratedRules.set(answer.rules.map((rule) => rated(rule, first, at)));
});

function rated(rule, first, at) {
  const before = first?.counters.get(keyOf(rule));
  const seconds = (at - (first?.at ?? at)) / 1000;
  // Lower counters than before mean that the instance was restarted.
  if (!before || seconds < 1 || before.hits > rule.hits) return { ...rule, hitsRate: null, overRate: null };
  return { ...rule, hitsRate: (rule.hits - before.hits) / seconds, overRate: (rule.over - before.over) / seconds };
}
