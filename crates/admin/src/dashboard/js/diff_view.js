// Differences between versions: first rules, then lines.

import { badge } from './controls.js';
import { h } from './dom.js';

const KINDS = { added: 'ok', removed: 'bad', changed: 'accent' };

/** Renders a response of the API's `diff`. */
export function diffView({ rules, files, problem }) {
  if (files.length === 0) return h('p', { class: 'empty' }, 'No differences.');
  return h('div', { class: 'stack' },
    rules.length > 0 && h('ul', { class: 'changes', 'aria-label': 'Changed rules' }, rules.map(ruleChange)),
    problem && h('p', { class: 'bad' }, `Cannot compare the rules: ${problem}`),
    rules.length === 0 && !problem && h('p', { class: 'muted' }, 'No limit changes; only the text differs.'),
    files.map((file) => h('section', { class: 'stack' },
      h('h3', { class: 'row' }, h('code', {}, file.name), badge(file.change, KINDS[file.change])), patch(file))));
}

function ruleChange({ domain, rule, change, before, after }) {
  const name = h('code', { class: 'strong' }, `${domain}.${rule}`);
  if (change === 'added') return h('li', {}, badge('added', 'ok'), name, after);
  if (change === 'removed') return h('li', {}, badge('removed', 'bad'), name, before);
  const { old, now, same } = apart(before, after);
  return h('li', {}, badge('changed', 'accent'), name, h('span', {}, h('del', {}, old), ' → ', h('ins', { class: 'strong' }, now)),
    same && h('span', { class: 'muted' }, same));
}

/** Splits two limits into different and equal parts: `60 per minute`, `250 per minute` and `fixed_window, name free`. */
export function apart(before, after) {
  // The value in braces of an option is one part.
  const [old, now] = [before, after].map((limit) => limit.split(/, (?![^{]*\})/));
  const without = (these, others) => these.filter((part) => !others.includes(part)).join(', ');
  const [removed, added] = [without(old, now), without(now, old)];
  // If one has no part of its own, both are shown whole.
  if (!removed || !added) return { old: before, now: after, same: '' };
  return { old: removed, now: added, same: now.filter((part) => old.includes(part)).join(', ') };
}

function patch(file) {
  const rows = [];
  let [old, now] = [0, 0];
  for (const line of file.patch.split('\n')) {
    const place = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (place) {
      [old, now] = [Number(place[1]), Number(place[2])];
      rows.push(h('tr', { class: 'place' }, h('td', { colspan: 4 }, line)));
    } else if (rows.length > 0 && '+- '.includes(line[0] ?? 'x')) {
      const kind = { '+': 'added', '-': 'removed', ' ': '' }[line[0]];
      rows.push(h('tr', { class: kind }, h('td', { class: 'at' }, kind === 'added' ? '' : String(old++)),
        h('td', { class: 'at' }, kind === 'removed' ? '' : String(now++)),
        h('td', { class: 'sign' }, line[0]), h('td', {}, line.slice(1))));
    }
  }
  return h('div', { class: 'diff', tabindex: '0', role: 'region', 'aria-label': `Changed lines of ${file.name}` },
    h('table', {}, h('tbody', {}, rows)));
}
