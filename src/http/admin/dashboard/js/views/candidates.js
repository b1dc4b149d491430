// Comparisons of rules with their candidates, and recommended limits.

import { chart } from '../chart.js';
import { head, panel, troubles } from '../controls.js';
import { h } from '../dom.js';
import { count, date, percent, plural, rate } from '../format.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

const SPAN_MS = 15 * 60_000;
const PARTS = [0.001, 0.01, 0.05];

const keyOf = ({ domain, rule }) => `${domain}\n${rule}`;
const sum = ({ admitted, rule_only: ruleOnly, candidate_only: candidateOnly, denied }) => admitted + ruleOnly + candidateOnly + denied;

const nameCell = (get) => h('div', {}, h('span', { class: 'path' }, get().rule), h('span', { class: 'below' }, get().domain));

export function candidates() {
  const list = comparisons();
  const differences = differenceChart();
  const limits = recommendations();
  const trouble = troubles('candidates', 'recommendations');
  const note = h('span');
  const stop = all(trouble.stop, differences.stop, watch('candidates', 'recommendations'),
    data.candidates.subscribe((answer) => {
      if (!answer) return;
      list.update(answer.candidates);
      differences.add(answer.candidates);
    }),
    data.recommendations.subscribe((answer) => {
      if (!answer) return;
      note.textContent = `from the demand that one of ${plural(answer.instances, 'instance', 'instances')} has seen`;
      limits.update(answer.recommendations);
    }));
  const node = h('div', { class: 'view' },
    head('Candidates', 'Limits that are charged beside those of rules, and deny nothing; and limits that the demand of keys recommends.'),
    trouble.node,
    panel('Differences', 'hits per second that only one of both denies, while this page is open', differences.node),
    panel('Comparisons', 'of all instances', list.node),
    panel('Recommended limits', note, limits.node));
  return { title: 'Candidates', node, stop };
}

function comparisons() {
  const part = (get, name) => `${count(get.hits[name])} (${percent(sum(get.hits) === 0 ? 0 : get.hits[name] / sum(get.hits))})`;
  const keys = (found) => found.map((one) => `${one.key}: ${count(one.hits)}`).join(', ') || 'none';
  return table({
    caption: 'Rules with a candidate',
    keyOf,
    empty: 'No rule has a candidate. A rule states one as candidate beside its limit.',
    columns: [
      { id: 'rule', label: 'Rule', isHead: true, sort: (one) => one.rule, node: nameCell },
      { id: 'limits', label: 'Limit, candidate', mark: (one) => one.limit + one.candidate,
        node: (get) => h('div', { class: 'limit' }, h('span', {}, get().limit), h('span', { class: 'below' }, get().candidate)) },
      { id: 'admitted', label: 'Both admit', kind: 'numeric', text: (one) => part(one, 'admitted') },
      { id: 'rule_only', label: 'Only the rule denies', kind: 'numeric', sort: (one) => one.hits.rule_only, text: (one) => part(one, 'rule_only') },
      { id: 'candidate_only', label: 'Only the candidate denies', kind: 'numeric', sort: (one) => one.hits.candidate_only, text: (one) => part(one, 'candidate_only') },
      { id: 'denied', label: 'Both deny', kind: 'numeric', text: (one) => part(one, 'denied') },
      { id: 'keys', label: 'Keys', mark: (one) => JSON.stringify(one.keys),
        node: (get) => h('div', {}, h('span', {}, `candidate: ${keys(get().keys.candidate_only)}`),
          h('span', { class: 'below' }, `rule: ${keys(get().keys.rule_only)}`)) },
      { id: 'since', label: 'Since', text: (one) => date(one.since_ms) },
    ],
  });
}

/** The differences of all rules together, from the growth of the sums while the page is open. */
function differenceChart() {
  const samples = [];
  let before = null;
  const drawn = chart({
    name: 'Differences per second',
    span: SPAN_MS,
    show: rate,
    series: [
      { name: 'only the candidate denies', kind: 'over', value: (sample) => sample.candidate_only },
      { name: 'only the rule denies', kind: 'degraded', value: (sample) => sample.rule_only },
    ],
  });
  return {
    node: drawn.node,
    stop: drawn.stop,
    add(found) {
      const now = { at_ms: Date.now(), candidate_only: total(found, 'candidate_only'), rule_only: total(found, 'rule_only') };
      const seconds = before && (now.at_ms - before.at_ms) / 1000;
      if (seconds > 0) {
        const grown = (name) => Math.max(0, now[name] - before[name]) / seconds;
        samples.push({ at_ms: now.at_ms, candidate_only: grown('candidate_only'), rule_only: grown('rule_only') });
        while (samples[0].at_ms < now.at_ms - SPAN_MS) samples.shift();
        const last = samples.at(-1);
        drawn.update(samples, `Now ${rate(last.candidate_only)} a second only by candidates, ${rate(last.rule_only)} only by rules.`);
      }
      before = now;
    },
  };
}

const total = (found, name) => found.reduce((all, one) => all + one.hits[name], 0);

function recommendations() {
  const limit = (found, part) => {
    const one = found.find((other) => other.part === part);
    if (!one) return '–';
    return one.high === null ? `${count(one.limit)} (too few keys)` : `${count(one.limit)} (${count(one.low)} to ${count(one.high)})`;
  };
  const columns = (name, of, what) => PARTS.map((part) => ({
    id: `${name}${part}`, label: `${percent(part)} of ${what}`, kind: 'numeric', text: (one) => limit(of(one), part) }));
  return table({
    caption: 'Limits that deny a part of the hits or of the keys, with the interval of 95 % confidence',
    keyOf,
    empty: 'No rule was observed for a whole window yet.',
    columns: [
      { id: 'rule', label: 'Rule', isHead: true, sort: (one) => one.rule, node: nameCell },
      { id: 'limit', label: 'Limit now', kind: 'numeric', text: (one) => `${count(one.limit)} per ${count(one.window_s)} s` },
      { id: 'denied', label: 'Denies', kind: 'numeric', text: (one) => `${percent(one.denied_hits)} of hits` },
      ...columns('hits', (one) => one.by_hits, 'hits'),
      ...columns('keys', (one) => one.by_keys, 'keys'),
      { id: 'windows', label: 'Windows', kind: 'numeric', text: (one) => count(one.windows) },
    ],
  });
}
