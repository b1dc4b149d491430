// Comparisons of rules with their candidates, and recommended limits.

import { head, panel, troubles } from '../controls.js';
import { h } from '../dom.js';
import { count, date, percent, plural } from '../format.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

const PARTS = [0.001, 0.01, 0.05];

const keyOf = ({ domain, rule }) => `${domain}\n${rule}`;
const sum = ({ admitted, rule_only: ruleOnly, candidate_only: candidateOnly, denied }) => admitted + ruleOnly + candidateOnly + denied;

const nameCell = (get) => h('div', {}, h('span', { class: 'path' }, get().rule), h('span', { class: 'below' }, get().domain));

export function candidates() {
  const list = comparisons();
  const limits = recommendations();
  const trouble = troubles('candidates', 'recommendations');
  const note = h('span');
  const stop = all(trouble.stop, watch('candidates', 'recommendations'),
    data.candidates.subscribe((answer) => {
      if (answer) list.update(answer.candidates);
    }),
    data.recommendations.subscribe((answer) => {
      if (!answer) return;
      note.textContent = `from the demand that one of ${plural(answer.instances, 'instance', 'instances')} has seen`;
      limits.update(answer.recommendations);
    }));
  const node = h('div', { class: 'view' },
    head('Candidates', 'Limits that are charged beside those of rules, and deny nothing; and limits that the demand of keys recommends.'),
    trouble.node,
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
