// Cells of tables of rules.

import { badge } from '../controls.js';
import { h } from '../dom.js';
import { count, percent, rate } from '../format.js';

/** The name and location of a rule. */
export function ruleName(get) {
  const rule = get();
  const below = [rule.domain, rule.name, rule.line ? `${rule.file}:${rule.line}` : rule.file].filter(Boolean).join(' · ');
  return h('div', {}, h('span', { class: 'path' }, rule.rule), h('span', { class: 'below' }, below));
}

const STATES = { off: ['off', 'bad'], shadow: ['shadow', 'warn'] };

/** The state of a rule that sheds: what its service reports, and what passes. */
function sheddingLine({ utilization, passed, is_shared: isShared }) {
  const reported = utilization === null ? 'no utilization reported' : `utilization ${percent(utilization)}`;
  const source = utilization === null || isShared ? '' : ' (reports to this instance)';
  return h('span', { class: 'below number' }, `${reported}${source}, ${percent(passed)} pass`);
}

/** A limit in two lines, its amount and its options, and the state of one that sheds. */
export function limitCell(get) {
  const rule = get();
  const [amount, ...rest] = rule.limit.split(', ');
  const grouped = amount.replace(/^\d+/, (digits) => BigInt(digits).toLocaleString('en'));
  return h('div', { class: 'limit' }, h('span', { class: 'strong number' }, grouped), h('span', { class: 'below' }, rest.join(', ')),
    rule.shedding && sheddingLine(rule.shedding), overrideLine(rule));
}

/** What overrides do to a rule, if there are any. */
function overrideLine({ override, key_overrides: keys }) {
  const words = [override && `override: ${override.limit}`, keys > 0 && `${keys} ${keys === 1 ? 'key' : 'keys'} overridden`];
  const text = words.filter(Boolean).join('; ');
  return text && h('span', { class: 'below' }, text);
}

export const limitMark = (rule) => `${rule.limit}${rule.shedding ? sheddingLine(rule.shedding).textContent : ''}`
  + `${rule.override?.limit ?? ''}${rule.key_overrides}`;

/** The enforcement state of a rule. */
export function ruleState(rule) {
  if (rule.switch) return badge(`switched ${STATES[rule.switch][0]}`, STATES[rule.switch][1]);
  if (rule.override) return badge('overridden', 'accent');
  if (rule.shadow_mode) return badge('shadow mode', 'warn');
  if (rule.quota_mode) return badge('quota mode', 'accent');
  return badge('enforced', 'ok');
}

export const stateMark = (rule) => `${rule.switch}${rule.override?.id}${rule.shadow_mode}${rule.quota_mode}`;
const rateText = (value) => (value === null ? '…' : rate(value));
const overPart = (rule) => (rule.hits === 0 ? 0 : rule.over / rule.hits);

export const numbers = {
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
