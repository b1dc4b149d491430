// The active rules, their counts, and actions on them.

import { all } from '../observable.js';
import { button, field, head, notice, panel, select, troubles, viewerNotice, writeButton } from '../controls.js';
import { h, redraw } from '../dom.js';
import { data, watch } from '../poll.js';
import { go } from '../links.js';
import { keyOf, ratedRules } from '../rule_rates.js';
import { table } from '../table.js';
import { limitCell, limitMark, numbers, ruleName, ruleState, stateMark } from './rule_cells.js';
import { emergencyDialog } from './emergency_dialog.js';
import { overrideDialog } from './override_dialog.js';
import { switchDialog } from './switch_dialog.js';

export function rules(parameters) {
  const words = h('input', { type: 'search', value: parameters.get('filter') ?? '', placeholder: 'free, /login, search.yaml',
    on: { input: draw } });
  const domain = select([['', 'All domains']], '', { on: { change: draw } });
  const only = select([['', 'All rules'], ['hit', 'Hit since start'], ['over', 'Denying'], ['switched', 'Switched'],
    ['overridden', 'Overridden']], '',
    { on: { change: draw } });
  const cut = h('div');
  const list = table({
    caption: 'Active rules and their counts since this instance started',
    keyOf,
    empty: 'No rule matches this filter.',
    columns: [
      { id: 'rule', label: 'Rule', isHead: true, sort: (rule) => `${rule.domain} ${rule.rule}`, node: ruleName,
        mark: (rule) => `${rule.name}${rule.file}${rule.line}` },
      { id: 'limit', label: 'Limit', mark: limitMark, node: limitCell, sort: (rule) => rule.requests_per_unit ?? -1 },
      numbers.hitsRate, numbers.overRate, numbers.hits, numbers.over, numbers.near, numbers.shadow,
      { id: 'state', label: 'State', mark: stateMark, node: (get) => ruleState(get()), sort: stateMark },
      { id: 'do', label: 'Actions', isBare: true, isWhole: true, node: tools },
    ],
    order: { id: 'hitsRate', isDescending: true },
  });
  const viewer = viewerNotice();
  const trouble = troubles('rules');
  const stop = all(viewer.stop, trouble.stop, watch('rules'), ratedRules.subscribe((all) => all && update(all)));

  function update(all) {
    const domains = [...new Set(all.map((rule) => rule.domain))].sort();
    redraw(domain, domains.join('\n'), () => [h('option', { value: '' }, 'All domains'),
      ...domains.map((name) => h('option', { value: name }, name))]);
    redraw(cut, String(data.rules.get().is_truncated), () => data.rules.get().is_truncated
      && notice('warn', h('p', {}, `Only the first ${all.length} rules are shown.`)));
    draw();
  }

  function draw() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (rule) => {
      const text = `${rule.domain} ${rule.rule} ${rule.name ?? ''} ${rule.limit} ${rule.file}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    };
    const kinds = { hit: (rule) => rule.hits > 0, over: (rule) => rule.over > 0, switched: (rule) => rule.switch !== null,
      overridden: (rule) => rule.override !== null || rule.key_overrides > 0 };
    const is = kinds[only.value] ?? (() => true);
    const all = ratedRules.get() ?? [];
    list.update(all.filter((rule) => (!domain.value || rule.domain === domain.value) && is(rule) && found(rule)));
  }

  const filters = h('div', { class: 'row end' },
    h('div', { class: 'grow' }, field('Find a rule', words)), field('Domain', domain), field('Show', only));
  const emergency = writeButton('Emergency…', emergencyDialog, 'small');
  const node = h('div', { class: 'view' },
    head('Rules', 'The active rules and their counts since this instance started.', emergency),
    viewer.node, trouble.node, filters, cut, panel('Active rules', '', list.node));
  return { title: 'Rules', node, stop };
}

function tools(get) {
  const about = `of ${get().rule}`;
  const label = (word) => [word, h('span', { class: 'unseen' }, ` ${about}`)];
  return h('div', { class: 'tools' },
    button(label('Edit limit'), () => go('editor', { file: get().file, line: get().line, domain: get().domain, rule: get().rule }), 'small'),
    writeButton('Override…', () => overrideDialog(get()), 'small', about),
    writeButton('Switch…', () => switchDialog(get()), 'small', about),
    button(label('Try'), () => go('try', { domain: get().domain }), 'quiet small'));
}
