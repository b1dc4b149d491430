// The rules with their rates, and those that deny the most.

import { call, query } from '../api.js';
import { badge, button, field, head, notice, panel, select, troubles, viewerNotice, writeButton } from '../controls.js';
import { h, redraw } from '../dom.js';
import { count, percent, rate } from '../format.js';
import { go, link } from '../links.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { keyOf, ratedRules } from '../rule_rates.js';
import { table } from '../table.js';
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
    writeButton('Switch…', () => openSwitch(get()), 'small', about),
    button(label('Try'), () => go('try', { domain: get().domain }), 'quiet small'));
}

/** Opens the dialog for the switch that the rule has now. */
async function openSwitch({ domain, rule }) {
  try {
    const { records } = await call('GET', query('records', { kind: 'switch', domain, rule }));
    switchDialog({ domain, rule }, records[0]);
  } catch (error) {
    say(error.message, 'bad');
  }
}

/** The name and location of a rule. */
function ruleName(get) {
  const rule = get();
  const below = [rule.domain, rule.name, rule.line ? `${rule.file}:${rule.line}` : rule.file].filter(Boolean).join(' · ');
  return h('div', {}, h('span', { class: 'path' }, rule.rule), h('span', { class: 'below' }, below));
}


/** The state of a rule that sheds: what its service reports, and what passes. */
function sheddingLine({ utilization, passed, is_shared: isShared }) {
  const reported = utilization === null ? 'no utilization reported' : `utilization ${percent(utilization)}`;
  const source = utilization === null || isShared ? '' : ' (reports to this instance)';
  return h('span', { class: 'below number' }, `${reported}${source}, ${percent(passed)} pass`);
}

/** A limit in two lines, its amount and its options, and the state of one that sheds. */
function limitCell(get) {
  const rule = get();
  const [amount, ...rest] = rule.limit.split(', ');
  const grouped = amount.replace(/^\d+/, (digits) => BigInt(digits).toLocaleString('en'));
  return h('div', { class: 'limit' }, h('span', { class: 'strong number' }, grouped), h('span', { class: 'below' }, rest.join(', ')),
    rule.shedding && sheddingLine(rule.shedding), overrideLine(rule));
}

/** What overrides do to a rule, if there are any. */
function overrideLine({ domain, rule, override, key_overrides: keys }) {
  const words = [override && `override: ${override.limit}`, keys > 0 && `${keys} ${keys === 1 ? 'key' : 'keys'} overridden`];
  const text = words.filter(Boolean).join('; ');
  return text && h('a', { class: 'below', href: link('records', { domain, rule }) }, text);
}

const limitMark = (rule) => `${rule.limit}${rule.shedding ? sheddingLine(rule.shedding).textContent : ''}`
  + `${rule.override?.limit ?? ''}${rule.key_overrides}`;

/** The enforcement state of a rule. */
function ruleState(rule) {
  const changed = rule.switch ? badge(`switched ${rule.switch}`, 'warn') : rule.override && badge('overridden', 'accent');
  if (changed) return h('a', { href: link('records', { domain: rule.domain, rule: rule.rule }) }, changed);
  if (rule.shadow_mode) return badge('shadow mode', 'warn');
  if (rule.quota_mode) return badge('quota mode', 'accent');
  return badge('enforced', 'ok');
}

const stateMark = (rule) => `${rule.switch}${rule.override !== null}${rule.shadow_mode}${rule.quota_mode}`;
const rateText = (value) => (value === null ? '…' : rate(value));
const overPart = (rule) => (rule.hits === 0 ? 0 : rule.over / rule.hits);

const numbers = {
  hitsRate: { id: 'hitsRate', label: 'Hits/s', kind: 'numeric', text: (rule) => rateText(rule.hitsRate),
    sort: (rule) => rule.hitsRate ?? rule.hits },
  overRate: { id: 'overRate', label: 'Denied/s', kind: 'numeric', text: (rule) => rateText(rule.overRate),
    sort: (rule) => rule.overRate ?? rule.over },
  hits: { id: 'hits', label: 'Hits', kind: 'numeric', text: (rule) => count(rule.hits), sort: (rule) => rule.hits },
  over: { id: 'over', label: 'Denied', kind: 'numeric', text: (rule) => count(rule.over), sort: (rule) => rule.over },
  near: { id: 'near', label: 'Near', kind: 'numeric', text: (rule) => count(rule.near), sort: (rule) => rule.near },
  shadow: { id: 'shadow', label: 'Shadow', kind: 'numeric', text: (rule) => count(rule.shadow), sort: (rule) => rule.shadow },
  part: { id: 'part', label: 'Denied %', kind: 'numeric', text: (rule) => percent(overPart(rule)), sort: overPart },
};

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
