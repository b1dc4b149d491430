// The rules that deny the most.

import { panel } from '../controls.js';
import { h } from '../dom.js';
import { link } from '../links.js';
import { keyOf, ratedRules } from '../rule_rates.js';
import { watch } from '../poll.js';
import { table } from '../table.js';
import { all } from '../observable.js';
import { limitCell, limitMark, numbers, ruleName, ruleState, stateMark } from './rule_cells.js';

const MAX_RULES = 6;

export function topRules() {
  const list = table({
    caption: 'The rules that deny the most',
    keyOf,
    empty: 'No rule has been hit since this instance started.',
    columns: [
      { id: 'rule', label: 'Rule', isHead: true, node: ruleName },
      { id: 'limit', label: 'Limit', mark: limitMark, node: limitCell },
      { ...numbers.hitsRate, sort: undefined },
      { ...numbers.overRate, sort: undefined },
      { ...numbers.part, sort: undefined },
      { id: 'state', label: 'State', mark: stateMark, node: (get) => ruleState(get()) },
    ],
  });
  const more = h('a', { href: link('rules'), class: 'small' }, 'All rules');
  const stop = all(watch('rules'), ratedRules.subscribe((rules) => rules && list.update(worst(rules))));
  return { node: panel('Rules that deny the most', more, list.node), stop };
}

const weight = (rule) => [rule.overRate ?? 0, rule.over, rule.hits];

function worst(rules) {
  const hit = rules.filter((rule) => rule.hits > 0);
  const order = (a, b) => weight(b).map((value, at) => value - weight(a)[at]).find((difference) => difference !== 0) ?? 0;
  return hit.sort(order).slice(0, MAX_RULES);
}
