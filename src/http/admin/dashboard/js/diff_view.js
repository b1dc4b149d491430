// What differs between versions: first the rules, then the lines.

import { badge } from './controls.js';
import { h } from './dom.js';

const KINDS = { added: 'ok', removed: 'bad', changed: 'accent' };

/** An answer of the API's `diff`. */
export function diffView({ rules, files, problem }) {
  if (files.length === 0) return h('p', { class: 'empty' }, 'There is no difference.');
  return h('div', { class: 'stack' },
    rules.length > 0 && h('ul', { class: 'changes', 'aria-label': 'Rules that change' }, rules.map(ruleChange)),
    problem && h('p', { class: 'bad' }, `The rules can't be compared: ${problem}`),
    rules.length === 0 && !problem && h('p', { class: 'muted' }, 'No rule changes its limit: only the text differs.'),
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

/** What differs between two limits, and what does not: `60 per minute`, `250 per minute` and `fixed_window, name free`. */
export function apart(before, after) {
  const [old, now] = [before.split(', '), after.split(', ')];
  const without = (these, others) => these.filter((part) => !others.includes(part)).join(', ');
  const [gone, come] = [without(old, now), without(now, old)];
  // Where one of them has nothing of its own, both are told as they are.
  if (!gone || !come) return { old: before, now: after, same: '' };
  return { old: gone, now: come, same: now.filter((part) => old.includes(part)).join(', ') };
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
  return h('div', { class: 'diff', tabindex: '0', role: 'region', 'aria-label': `Lines of ${file.name} that differ` },
    h('table', {}, h('tbody', {}, rows)));
}
